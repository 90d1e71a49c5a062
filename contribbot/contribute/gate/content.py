"""Rules about what the patch brings and what its pull request says."""

from __future__ import annotations

import re
from typing import Final

from contribbot.contribute.gate.case import Case, Finding, failed, line, passed, person, refused
from contribbot.contribute.text.templates import compare_with_live, template_of
from contribbot.errors import ContribbotError, NotFoundError
from contribbot.github.git_data import read_file

_TABLE: Final = "[contribution] of patch.toml"
_NONE_NEEDED: Final = re.compile(r"(?i)none needed\b")
#: How a want starts that has a row of its own.
_ISSUE_WANT: Final = "the issue"


def issue(case: Case) -> Finding:
    """An issue is linked where the upstream needs one."""
    named = case.patch.spec.contribution.issue
    if named:
        return passed(f"fixes {named}")
    if case.rules.issue != "required":
        return passed("none is linked, and none is needed")
    first = f"; it is opened first: contribbot reproducer {case.patch.name}"
    return failed(
        "the upstream wants a linked issue, and none is named",
        f"name it as `issue` in {_TABLE}{first if case.rules.issue_first else ''}",
    )


def issue_open(case: Case) -> Finding:
    """The linked issue is an issue, and open."""
    named = case.patch.spec.contribution.issue
    if not named:
        return passed("no issue is named")
    repository, _, number = named.partition("#")
    then = f"correct `issue` in {_TABLE}"
    try:
        found = case.ask(lambda github: github.issue(repository, int(number)).complete())
    except NotFoundError:
        return failed(f"there is no {named}", then)
    said = f"{named} “{line(found.title)}”"
    if found.raw_data.get("pull_request") is not None:
        return failed(f"{said} is a pull request", f"{then}, or name it in `related`")
    if found.state == "closed":
        return person(
            f"{said} is closed", "read there why, and say in the text what is still wrong"
        )
    return passed(f"{said} is open")


def tests(case: Case) -> Finding:
    """The patch brings a test, where the upstream keeps its tests."""
    folders = case.rules.tests
    if not folders:
        return passed("not asked for")
    brought = [
        touch.path
        for touch in case.touches
        if not touch.removed and any(touch.path.startswith(f"{one}/") for one in folders)
    ]
    if brought:
        return passed(", ".join(brought))
    return failed(
        f"no file below {', '.join(folders)} is touched",
        f"bring a test that fails on the base: contribbot edit {case.patch.name}",
    )


def prose(case: Case) -> Finding:
    """The prose is written, and something is stated to be proved."""
    spec = case.patch.spec
    if spec.unwritten:
        return failed(f"{', '.join(spec.unwritten)} not written yet", "write it in patch.toml")
    if spec.unproved:
        return failed("nothing is stated that proves it", "state checks in patch.toml")
    return passed("problem, root_cause and solution")


def words(case: Case) -> Finding:
    """What the upstream asks a person to say is said."""
    if isinstance(case.body, ContribbotError):
        return person("not known before the text can be made")
    missing = [one for one in case.body.wants if not one.startswith(_ISSUE_WANT)]
    if missing:
        return failed(f"still to write: {'; '.join(missing)}", f"write it in {_TABLE}")
    return passed("all that the upstream asks for is said")


def body(case: Case) -> Finding:
    """The text can be made, and is not too long."""
    made = case.body
    if isinstance(made, ContribbotError):
        return refused(made)
    return passed(f"{made.characters:,} of {made.budget:,} characters, template {made.template}")


def template(case: Case) -> Finding:
    """The template is that of the upstream as it is now."""
    ours, live = template_of(case.queue, case.rules), case.rules.body.live
    where = case.patch.upstream.repository
    branch = case.repository.default_branch
    content = case.ask(lambda github: read_file(github, where, live, branch))
    if content is None:
        return person(f"{where} has no {live} any more", "see where its template is now")
    changed = compare_with_live(ours, content.decode("utf-8", "replace")).lines
    if changed:
        return person("; ".join(changed), "see whether the text still answers what it asks")
    return passed(f"{live} has the headings of {ours.version}")


def docs(case: Case) -> Finding:
    """What users see is documented."""
    said = case.patch.spec.contribution.docs.strip()
    if not said:
        return person(
            "nothing says whether users see a change",
            f"name the paths that document it, or `none needed: why`, as `docs` in {_TABLE}",
        )
    if _NONE_NEEDED.match(said):
        return person(said)
    brought = [touch.path for touch in case.touches if touch.path in said]
    if brought:
        return passed(", ".join(brought))
    return failed(
        f"`docs` names no file that the patch touches: {said}",
        f"bring it, or write `none needed: why`, in {_TABLE}",
    )


def labels(case: Case) -> Finding:
    """The pull request gets its labels."""
    wanted = [*case.rules.labels, *case.patch.spec.contribution.labels]
    told = [*wanted, *([case.rules.label_hint] if case.rules.label_hint else [])]
    if not told:
        return passed("not asked for")
    return person(
        "; ".join(dict.fromkeys(told)),
        "set them once it is open, or ask someone with write access; contribbot sets none",
    )


def lint(case: Case) -> Finding:
    """The upstream's own style check."""
    command = case.rules.lint
    return person(f"run {command} in a checkout") if command else passed("not asked for")


def ci(case: Case) -> Finding:
    """How CI is started."""
    return person(" ".join(case.rules.ci.start.split()))
