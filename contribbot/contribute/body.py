"""The text of a pull request: its upstream's template, filled from prose and fresh evidence."""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from contribbot.contribute import duplicates
from contribbot.contribute.figures import (
    Evidence,
    Figure,
    closed_files,
    comment_rows,
    factor,
    facts_of,
    gather,
    hardware_of,
    not_run,
    pace,
)
from contribbot.contribute.model import GITHUB_LIMIT, Body, Comment, Look, Rules, Want
from contribbot.errors import OpeningError, QueueError, UsageError, install
from contribbot.git.patch_format import commit_of, parse, path_of, touched_files
from contribbot.markdown import JOINER, cell, clean, code, fence, plain, prose, seconds, times
from contribbot.model.patch import Contribution, Patch, PatchFile
from contribbot.queue import history
from contribbot.queue.history import VersionEvent, superseded, superseded_words
from contribbot.queue.load import UPSTREAMS, Queue, read_model, upstream_files

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

    from contribbot.github.client import GitHub


_LONGEST_TITLE: Final = 256
#: For how long an answer of GitHub counts as recent, in a text and in an attestation.
GITHUB_HOLDS: Final = timedelta(hours=24)
#: Values of `ai` that say that no AI was used: "None.", "no AI was used", "none: and why"; but
#: not "None of it by hand".
_NO_AI: Final = re.compile(
    r"(?i)\s*(?:none|no ai|not used)(?:\s+(?:was\s+)?used)?(?:\s+at\s+all)?\s*(?:[.:;,(]|$)"
)
_BLOCK: Final = re.compile(r"```|~~~|[-+*>|]|[0-9]+[.)]|\\#|\t")
#: The most words of an overview, visible at once, and in all; most lines of a reproducer.
OVERVIEW_WORDS: Final = 30
VISIBLE_WORDS: Final = 250
WORDS: Final = 400
REPRODUCER: Final = 15
_TYPED: Final = re.compile(r"(?<![\w.#-])\d[\d,.]*(?:x\b| times\b| ?%| ?[mµn]s\b)")
_PYTHON: Final = re.compile(r"\s*(?:import|from) ")
_UNCOUNTED: Final = re.compile(r"\s*(?:\||#|- \[[ x]\]|  )|- Select one|- CI waits")


def make_body(queue: Queue, name: str) -> Body:
    """Return the title and text of a patch's pull request, filled from fresh evidence."""
    evidence = gather(queue, name)
    patch = evidence.patch
    rules = rules_of(queue, patch.spec.upstream)
    template = template_of(queue, rules)
    title = clean(patch.spec.title)
    if not 0 < len(title) <= _LONGEST_TITLE:
        why = f"{len(title)} characters that print; GitHub takes 1 to {_LONGEST_TITLE}"
        hint = "write a title that a list of pull requests can show"
        raise QueueError(f"{patch.folder / 'patch.toml'}: title: {why}", hint=hint)
    gone = superseded_words(queue, name)
    text, overview = _render(queue, evidence, rules, template)
    # Count the words before a superseded patch gets a notice above its text.
    words = len(text.split())
    if gone:
        text = f"**{prose(gone[0].upper() + gone[1:])}** Do not propose it.\n\n{text}"
    return Body(
        patch=patch.name,
        upstream=patch.upstream.name,
        repository=patch.upstream.repository,
        title=title,
        template=template.version,
        text=text,
        characters=len(text),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        overview_words=len(overview.split()),
        visible_words=visible_words(text),
        words=words,
        closed=closed_files(evidence),
        superseded=gone,
        timed=tuple(dict.fromkeys(figure.target for figure in evidence.of("bench"))),
        records=evidence.records,
        not_run=not_run(evidence, rules),
        minded=evidence.minded,
        wants=tuple(_wants(patch.spec.contribution, rules, template)),
    )


def _searched(queue: Queue, patch: Patch, rules: Rules) -> Look | None:
    """Return the last 24 hours' search without duplicates, if the upstream's text tells of it."""
    if not rules.body.duplicates or patch.spec.contribution.different:
        return None
    look = duplicates.remembered(queue, patch.name, datetime.now(UTC), within=GITHUB_HOLDS)
    return None if look is None or look.candidates else look


def _render(queue: Queue, evidence: Evidence, rules: Rules, template: Template) -> tuple[str, str]:
    """Return the pull request's text and its summary; raise QueueError for a too long text."""
    patch, environment = evidence.patch, template_environment(queue.folder / "templates")
    spec, contribution = patch.spec, patch.spec.contribution
    tests = test_files(patch, rules)
    where = patch.folder / "patch.toml"

    def figure(stage: str, name: str, target: str = "") -> Figure:
        for known in evidence.of(stage, target=target):
            if known.name == name:
                return known
        why = f"claims: no fresh record has {stage} {name} {target}".rstrip()
        hint = f"correct the claim, or run `contribbot verify {patch.name}`"
        raise QueueError(f"{where}: {why}", hint=hint)

    person = contribution.person
    stands = next((s for s in evidence.sources if person and s.file == person.record), None)
    names: dict[str, object] = {
        "machine": (stands.gpus or stands.details.machine.cpu)
        if stands
        else "a machine of which there is no fresh record",
        "language": "python" if _PYTHON.match(contribution.reproducer) else "sh",
        "spec": spec,
        "changed": patch.paths,
        "contribution": contribution,
        "upstream": patch.upstream,
        "tag": patch.pin.tag,
        "rules": rules,
        "evidence": evidence,
        "figure": figure,
        "not_run": not_run(evidence, rules),
        "on_amd": any(target.startswith("gfx") for target in hardware_of(evidence)),
        "tests": _commands(contribution, tests),
        "tests_touched": bool(tests),
        "ai_used": ai_used(contribution),
        "searched": _searched(queue, patch, rules),
        "facts": facts_of(evidence),
    }
    _refuse_typed(where, contribution)
    claims = (prose(_fill(environment, claim, where, names)) for claim in contribution.claims)
    names["claims"] = [" ".join(claim.split()) for claim in claims]
    summary = _fill(environment, contribution.summary, where, names)
    summary = summary or spec.problem.strip().partition("\n\n")[0]
    names["summary"] = summary
    filled = _fill(environment, template.text, template.path, names)
    text = re.sub(r"\n{3,}", "\n\n", filled).strip() + "\n"
    if len(text) <= GITHUB_LIMIT:
        return text, summary
    why = f"the text has {len(text):,} characters, and GitHub takes {GITHUB_LIMIT:,}"
    raise QueueError(f"{where}: {why}", hint="shorten summary, root_cause or solution")


def _fill(
    environment: SandboxedEnvironment, text: str, place: Path, names: dict[str, object]
) -> str:
    """Return a template's text with the names filled in; raise QueueError for a faulty template."""
    from jinja2 import TemplateError  # noqa: PLC0415  start-up time

    try:
        return environment.from_string(text).render(names)
    except (TemplateError, TypeError, AttributeError) as error:
        line = getattr(error, "lineno", "")
        what = f"{f'line {line}: ' if line else ''}not a template that can be filled"
        hint = "docs/upstreams.md names what a template can use"
        raise QueueError(f"{place}: {what}: {clean(str(error))}", hint=hint) from error


@functools.cache
def template_environment(own: Path) -> SandboxedEnvironment:
    """Return a Jinja sandbox for the templates of contribbot and of a folder in the queue."""
    # A stranger may have written a queue's templates. Compiling templates is the slowest part of a
    # text: many patches share an environment.
    from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415  start-up time
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415  start-up time

    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader([own, UPSTREAMS / "templates"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., object]] = {
        **{filter_.__name__: filter_ for filter_ in (prose, plain, code, fence, times)},
        "count": "{:,}".format,
        "sh": shlex.quote,
        "cell": lambda text, limit=0: cell(text, limit=limit),
        "one_line": lambda text: " ".join(text.split()),
        "quoted": lambda text: "\n".join(f"> {row}".rstrip() for row in text.splitlines()),
        "begins_block": lambda text: bool(_BLOCK.match(prose(text))),
        "factor": factor,
        "seconds": seconds,
        "pace": pace,
    }
    environment.filters |= filters
    return environment


def _refuse_typed(where: Path, contribution: Contribution) -> None:
    """Raise QueueError for typed numbers in `summary` or `claims`, or a too long `reproducer`."""
    for key, texts in (("summary", [contribution.summary]), ("claims", contribution.claims)):
        for text in texts:
            if typed := _TYPED.search(re.sub(r"\{[%{#].*?[#%}]\}", "", text, flags=re.DOTALL)):
                why = f"{key}: {typed[0].strip()} is typed, and comes from no record"
                hint = "take it from a figure (docs/contribute.md), or say it in `problem`"
                raise QueueError(f"{where}: {why}", hint=hint)
    if (count_ := len(contribution.reproducer.strip().splitlines())) > REPRODUCER:
        why = f"reproducer: {count_} lines, and a maintainer pastes {REPRODUCER} at most"
        raise QueueError(f"{where}: {why}", hint="shorten it")


def visible_words(text: str) -> int:
    """Return the number of words outside `<details>`, tables, code, headings and checklists."""
    shown = re.sub(r"<details>.*?</details>|^(```).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    rows = (row for row in shown.splitlines() if not _UNCOUNTED.match(row))
    return sum(len(row.split()) for row in rows)


def changed_lines(patch: Patch, rules: Rules) -> int:
    """Return the number of lines that a patch adds or removes outside tests."""
    parts = (part for file in patch.files for part in parse(file.name, file.content))
    changed = (part for part in parts if not path_of(part).startswith(test_folders(patch, rules)))
    return sum(part.added + part.removed for part in changed)


def test_folders(patch: Patch, rules: Rules) -> tuple[str, ...]:
    """Return the folders of the upstream's tests, each with a slash at the end."""
    return tuple(f"{folder}/" for folder in (*rules.tests, *patch.upstream.tests))


def ai_used(contribution: Contribution) -> bool:
    """Return whether a contribution states that AI was used."""
    return bool(contribution.ai) and not _NO_AI.match(contribution.ai)


def _commands(contribution: Contribution, files: list[str]) -> list[str]:
    """Return pytest arguments: the tests that patch.toml names, and the other Python files."""
    named = dict.fromkeys(contribution.tests.values())
    covered = {test.partition("::")[0] for test in named}
    others = [path for path in files if path.endswith(".py") and path not in covered]
    return [shlex.quote(test) for test in (*named, *others)]


def test_files(patch: Patch, rules: Rules) -> list[str]:
    """Return the test files in the upstream's tree that a patch adds or changes."""
    gone: dict[str, bool] = {}
    for file in touched_files(patch.files):
        gone |= {file.before: True, file.path: file.removed}
    return [
        path
        for path in patch.paths
        if not gone.get(path)
        and path.startswith(test_folders(patch, rules))
        and PurePosixPath(path).name.startswith("test_")
    ]


def _wants(contribution: Contribution, rules: Rules, template: Template) -> Iterator[Want]:
    """Yield the keys that the upstream asks for and patch.toml does not have."""
    if rules.issue == "required" and contribution.issue is None:
        yield Want.ISSUE
    if rules.ai.disclosed and not contribution.ai:
        yield Want.AI
    if rules.ai.contained and not contribution.words:
        yield Want.WORDS
    if "contribution.breaking" in template.text and not contribution.breaking:
        yield Want.BREAKING


def rules_of(queue: Queue, upstream: str) -> Rules:
    """Return the rules of an upstream for contributions."""
    known = upstream_files(queue.folder, "contributing")
    wanted = queue.folder / "upstreams" / "contributing" / f"{upstream}.toml"
    if upstream not in known:
        hint = f"write them in {wanted}; those of vllm show every key"
        raise QueueError(f"{upstream}: no rules for contributions are known", hint=hint)
    rules = read_model(known[upstream], Rules)
    if rules.upstream != upstream:
        why = f"upstream is {rules.upstream}, and the file's is {upstream}"
        raise QueueError(f"{known[upstream]}: {why}", hint="make them the same")
    return rules


_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_ITEM: Final = re.compile(r"^[-*] \[(?:[ xX]|\{\{.*?\}\})\] (.*?)(?:\{\{.*?\}\})?\s*$")
_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)|\{#.*?#\}", re.DOTALL)


@dataclass(frozen=True)
class Template:
    """One version of an upstream's pull request template, in Jinja."""

    version: str
    path: Path

    @cached_property
    def text(self) -> str:
        """The Jinja source of the template."""
        try:
            return self.path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QueueError(f"{self.path}: {error}", hint="write it as UTF-8 text") from error


def template_of(queue: Queue, rules: Rules) -> Template:
    """Return an upstream's template: the queue's file if it exists, else contribbot's."""
    version, own = rules.body.template, queue.folder / "templates" / f"{rules.upstream}.md.j2"
    ours = UPSTREAMS / "templates" / rules.upstream / f"{version}.md.j2"
    if not own.is_file() and not ours.is_file():
        why = f"its rules name the template {version}, which is not there"
        raise QueueError(f"{rules.upstream}: {why}", hint=f"write {own}")
    return Template(version, own if own.is_file() else ours)


def compare_with_live(template: Template, live: str) -> tuple[str, ...]:
    """Return lines on differences of headings and checklist between stored and live template."""
    ours, theirs = outline(template.text), outline(live)
    kept = [item for item in ours if item in theirs]
    moved = list(dict.fromkeys(kept)) != list(dict.fromkeys(i for i in theirs if i in ours))
    return (
        *(f"the live template has no `{item}` any more" for item in ours if item not in theirs),
        *(f"the live template has `{item}`, which is new" for item in theirs if item not in ours),
        *(("the live template has its headings in another order",) if moved else ()),
    )


def outline(text: str) -> list[str]:
    """Return the `##` headings and checklist items of Markdown, outside comments and fences."""
    items = []
    fenced = ""
    for row in _COMMENT.sub("", text).splitlines():
        if mark := _FENCE.match(row):
            fenced = "" if fenced == mark[1] else fenced or mark[1]
        if fenced:
            continue
        heading, item = _HEADING.match(row), _ITEM.match(row)
        if heading and heading[1] == "##":
            items.append(f"## {heading[2].strip()}")
        elif item:
            items.append(item[1])
    return items


_LINES: Final = 60
_COMMENT_WORDS: Final = 90


def make_comment(queue: Queue, name: str, github: GitHub | None = None) -> Comment:
    """Return a comment on a pull request or issue; raise OpeningError if GitHub shows a change."""
    patch = queue.patch(name)
    if not patch.spec.theirs:
        raise UsageError(
            f"{name}: nothing says of which pull request of somebody else's it is",
            hint=f'write `pull = "OWNER/REPO#N"` below `title` in {patch.folder / "patch.toml"}',
        )
    if found := superseded(queue, name):
        hint = f"nothing is to be said there; take it out: contribbot queue retire {name}"
        raise OpeningError(f"{name}: {found.words}", hint=hint)
    evidence = gather(queue, name, prose=False)
    commit = _commit(queue, patch)
    if github:
        _require_same(github, patch, commit)
    names: dict[str, object] = {
        "evidence": evidence,
        "rows": comment_rows(evidence),
        "upstream": patch.upstream,
        "tag": patch.pin.tag,
        "patch": patch.name,
        "theirs": patch.spec.theirs,
        "verdicts": [str(source.details.verdict) for source in evidence.sources],
        "reproduces": patch.spec.reproduces,
        "count": len(patch.files),
        "commit": commit,
        "records": patch.spec.contribution.records,
        "checks": [(file.name, _code(file)) for file in patch.support],
        "install": install("compile,emulate" if patch.spec.emulated else "compile"),
        "emulated": bool(evidence.of("emulate")),
    }
    where = patch.folder / "patch.toml"
    environment = template_environment(queue.folder / "templates")
    _refuse_typed(where, patch.spec.contribution)
    names["summary"] = _fill(environment, patch.spec.contribution.summary, where, names)
    text = environment.get_template("comment.md.j2").render(names).strip() + "\n"
    words = visible_words(text)
    for number, most, what in (
        (words, _COMMENT_WORDS, "words in sight"),
        (len(text), GITHUB_LIMIT, "characters"),
    ):
        if number > most:
            why = f"{name}: the comment has {number:,} {what}, and {most:,} is the most"
            raise QueueError(why, hint="state fewer patches below it, or shorter checks")
    return Comment(
        patch=patch.name,
        repository=patch.upstream.repository,
        head=commit,
        text=text,
        words=words,
        records=evidence.records,
    )


def _require_same(github: GitHub, patch: Patch, commit: str) -> None:
    """Raise OpeningError if a pull request or issue was closed or moved, or has a new head."""
    theirs = patch.spec.theirs
    repository, _, number = theirs.partition("#")
    pull = github.pull(theirs).complete() if patch.spec.pull else None
    found = pull or github.issue(theirs).complete()
    place = duplicates.place_of(found)
    if place.lower() != repository.lower():
        hint = f"write {place}#{number} in {patch.folder / 'patch.toml'}"
        raise OpeningError(f"{patch.name}: {repository} has moved to {place}", hint=hint)
    if found.state != "open":
        hint = f"nothing is to be said there; take it out: contribbot queue retire {patch.name}"
        raise OpeningError(f"{patch.name}: {theirs} is {found.state}", hint=hint)
    if pull and commit not in {"", pull.head.sha}:
        why = f"{theirs} is at {pull.head.sha[:12]} now, and tried was {commit[:12]}"
        hint = f"take its commits under another name: contribbot new NAME {theirs}"
        raise OpeningError(f"{patch.name}: {why}", hint=hint)


def _commit(queue: Queue, patch: Patch) -> str:
    """Return the last commit of an imported pull request; empty if the patch has changed since."""
    taken = {
        event.digest
        for event in history.read(queue.folder, patch.name)
        if isinstance(event, VersionEvent) and event.why == "import"
    }
    commits = [commit_of(file.content) for file in patch.files]
    return commits[-1] if patch.digest in taken and all(commits) else ""


def _code(file: PatchFile) -> str:
    if (lines := file.content.count(b"\n")) > _LINES:
        return f"(not shown: it has {lines} lines)"
    # Without JOINER, readers can copy the code; a comment never becomes a commit's message.
    text = file.content.decode("utf-8", "replace")
    language = "python" if file.name.endswith(".py") else ""
    return fence(text, language=language).replace(JOINER, "")
