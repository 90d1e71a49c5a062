"""What the rules of the gate look at: a patch, its upstream's rules, its text, GitHub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from contribbot import process
from contribbot.contribute import duplicates
from contribbot.contribute.body import (
    OWN_WORDS,
    ai_used,
    compare_with_live,
    make_body,
    rules_of,
    template_of,
)
from contribbot.contribute.branch import branch_of, refuses_pulls
from contribbot.contribute.duplicates import Touch, read_files
from contribbot.contribute.landing import Landing, ending_of
from contribbot.contribute.markdown import clean, shortened
from contribbot.contribute.model import Body, Candidate, Gate, Look, Row, RowState, Rules, Searched
from contribbot.contribute.publication import (
    Contribution,
    MissingBelowError,
    PublicationJournal,
    check_below,
    state,
)
from contribbot.errors import (
    ContribbotError,
    GitHubError,
    NotFoundError,
    NotProvedError,
    OpeningError,
    RefusedError,
    UsageError,
)
from contribbot.git.patch_format import Mail, read_mail
from contribbot.git.repository import git_environment
from contribbot.github.auth import find_server
from contribbot.github.fields import may_push
from contribbot.github.git_data import read_file
from contribbot.lifecycle.status import asked, due, target_states
from contribbot.model.patch import Patch
from contribbot.queue import history, toml_edit
from contribbot.queue.load import Queue, no_such_patch
from contribbot.queue.stack import own_pin
from contribbot.queue.transaction import transaction

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub


T = TypeVar("T")
_LONGEST: Final = 300


@dataclass(frozen=True)
class Finding:
    """What a rule says."""

    #: Whether it is kept.
    state: RowState
    seen: str
    #: The next step, or empty.
    next: str = ""
    #: Whether nothing can be attested before the person has done it.
    first: bool = False
    #: The look for duplicates, where it found none.
    searched: Searched | None = None


def passed(seen: str) -> Finding:
    """Say that a rule is kept."""
    return Finding(RowState.PASSED, seen)


def failed(seen: str, then: str) -> Finding:
    """Say that a rule is broken, and the next step."""
    return Finding(RowState.FAILED, seen, then)


def person(seen: str, then: str = "") -> Finding:
    """Say that a person must look."""
    return Finding(RowState.PERSON, seen, then)


def refused(error: ContribbotError) -> Finding:
    """Say that a rule is broken in the words of an error."""
    return failed(error.message, error.hint)


def line(text: str) -> str:
    """Return text of any origin as one line that a row can hold."""
    return shortened(clean(text), _LONGEST)


class NotAskedError(Exception):
    """GitHub would have to be asked, and nobody wants that."""


@dataclass
class Case:
    """A patch before the gate."""

    queue: Queue
    patch: Patch
    rules: Rules
    #: Reads from GitHub; None: it is not asked.
    github: GitHub | None
    broken: GitHubError | None
    server: str
    now: datetime
    #: The text, where the command has made it before.
    given: Body | None = None
    #: Whether the rule at hand asked GitHub.
    asked: bool = False
    #: When GitHub was asked; the oldest that matters.
    looked: datetime | None = None
    look: Look | None = None
    _repository: Repository | None = field(default=None, repr=False)

    def ask(self, question: Callable[[GitHub], T]) -> T:
        """Ask GitHub something."""
        self.asked = True
        if self.broken is not None:
            raise self.broken
        if self.github is None:
            raise NotAskedError
        try:
            answer = question(self.github)
        except (NotFoundError, RefusedError):
            raise
        except GitHubError as error:
            # Whoever waited for one answer in vain need not wait for the others.
            self.broken = error
            raise
        self.looked = min(self.looked or self.now, self.now)
        return answer

    @property
    def repository(self) -> Repository:
        """The upstream's repository; asked for once."""
        self.asked = True
        if self._repository is None:
            name = self.patch.upstream.repository
            self._repository = self.ask(lambda github: github.repository(name).complete())
        return self._repository

    @property
    def me(self) -> str:
        """Whose token it is."""
        return self.ask(lambda github: github.me)

    @cached_property
    def contribution(self) -> Contribution:
        """How far the patch is on GitHub, as its journal says."""
        return state(history.read(self.queue.folder, self.patch.name)) or Contribution()

    @cached_property
    def body(self) -> Body | ContribbotError:
        """The text of the pull request, or why there is none."""
        if self.given is not None:
            return self.given
        try:
            searched = self.look.searched if self.look is not None else None
            return make_body(self.queue, self.patch.name, searched=searched)
        except ContribbotError as error:
            return error

    @cached_property
    def touches(self) -> list[Touch]:
        """What the patch files touch."""
        return read_files(self.patch.files)

    @cached_property
    def mails(self) -> list[tuple[str, Mail]]:
        """The patch files' names, and what they say."""
        return [(file.name, read_mail(file)) for file in self.patch.files]


@dataclass(frozen=True)
class Rule:
    """A rule."""

    name: str
    judge: Callable[[Case], Finding]
    #: Whether `open-pr` does something about it by itself.
    mended_by_opening: bool = False


_SIGNED: Final = re.compile(r"^Signed-off-by: (?P<name>.+) <(?P<email>[^<>\s]+)>\s*$", re.MULTILINE)


def check_title(case: Case) -> Finding:
    """The title matches the upstream's pattern."""
    said, pattern = case.patch.spec.title, case.rules.title
    if not pattern:
        return passed(f"{said} (the upstream has no pattern)")
    if re.search(pattern, said):
        return passed(said)
    form = case.rules.title_hint or pattern
    return failed(f"{said}: not in the form {form}", "change `title` in patch.toml")


def check_sign_off(case: Case) -> Finding:
    """Each commit is signed off by its author."""
    if not (case.rules.sign_off or case.patch.upstream.commits.sign_off):
        return passed("not asked for")
    unsigned = [name for name, mail in case.mails if not _signed(mail)]
    if unsigned:
        mail = dict(case.mails)[unsigned[0]]
        return failed(
            f"no Signed-off-by of the author {mail.name} <{mail.email}> in {', '.join(unsigned)}",
            f"contribbot edit {case.patch.name}; git rebase --signoff; contribbot refresh",
        )
    return passed(f"by the author in {_commits(len(case.mails))}")


def check_ai_trailer(case: Case) -> Finding:
    """Where AI was used, each commit has the trailer that the upstream asks for."""
    pattern = case.rules.ai.trailer
    if not pattern:
        return passed("not asked for")
    if not ai_used(case.patch.spec.contribution):
        return passed("[contribution] does not say that AI was used")
    said = {
        name: [one for one in trailers(mail.message) if re.search(pattern, one)]
        for name, mail in case.mails
    }
    lacking = [name for name, found in said.items() if not found]
    if lacking:
        return failed(
            f"AI was used, and no trailer says so in {', '.join(lacking)}",
            f"add one such as `Assisted-by: NAME` to the message: contribbot edit "
            f"{case.patch.name}",
        )
    # Whether it names an AI or another person is for whoever reads this to see.
    shown = dict.fromkeys(one for found in said.values() for one in found)
    return passed(f"in {_commits(len(case.mails))}: {'; '.join(shown)}")


def trailers(message: str) -> list[str]:
    """Return the trailers of a commit's message, as git finds them."""
    done = process.run(
        ["git", "interpret-trailers", "--parse", "--no-divider"],
        env=git_environment({"GIT_CEILING_DIRECTORIES": "/"}),
        stdin=message.encode(),
    )
    return done.stdout.decode("utf-8", "replace").splitlines()


def _signed(mail: Mail) -> bool:
    """Say whether its author signed a commit; case does not matter."""
    author = (mail.name.casefold(), mail.email.casefold())
    return any(
        (found["name"].casefold(), found["email"].casefold()) == author
        for found in _SIGNED.finditer(mail.message)
    )


def _commits(number: int) -> str:
    return "the commit" if number == 1 else f"all {number} commits"


_TABLE: Final = "[contribution] of patch.toml"
_NONE_NEEDED: Final = re.compile(r"(?i)none needed\b")
#: How a want starts that has a row of its own.
_ISSUE_WANT: Final = "the issue"


def check_issue(case: Case) -> Finding:
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


def check_issue_open(case: Case) -> Finding:
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


def check_tests(case: Case) -> Finding:
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


def check_prose(case: Case) -> Finding:
    """The prose is written, and something is stated to be proved."""
    spec = case.patch.spec
    if spec.unwritten:
        return failed(f"{', '.join(spec.unwritten)} not written yet", "write it in patch.toml")
    if spec.unproved:
        return failed("nothing is stated that proves it", "state checks in patch.toml")
    return passed("problem, root_cause and solution")


def check_words(case: Case) -> Finding:
    """What the upstream asks a person to say is said."""
    if isinstance(case.body, ContribbotError):
        return person("not known before the text can be made")
    missing = [one for one in case.body.wants if not one.startswith(_ISSUE_WANT)]
    if missing == [OWN_WORDS]:
        return Finding(RowState.PERSON, f"still to write: {OWN_WORDS}", first=True)
    if missing:
        return failed(f"still to write: {'; '.join(missing)}", f"write it in {_TABLE}")
    return passed("all that the upstream asks for is said")


def check_body(case: Case) -> Finding:
    """The text can be made, and is not too long."""
    made = case.body
    if isinstance(made, ContribbotError):
        return refused(made)
    return passed(f"{made.characters:,} of {made.budget:,} characters, template {made.template}")


def check_template(case: Case) -> Finding:
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


def check_docs(case: Case) -> Finding:
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


def check_labels(case: Case) -> Finding:
    """The pull request gets its labels."""
    wanted = [*case.rules.labels, *case.patch.spec.contribution.labels]
    told = [*wanted, *([case.rules.label_hint] if case.rules.label_hint else [])]
    if not told:
        return passed("not asked for")
    return person(
        "; ".join(dict.fromkeys(told)),
        "set them once it is open, or ask someone with write access; contribbot sets none",
    )


def check_lint(case: Case) -> Finding:
    """The upstream's own style check."""
    command = case.rules.lint
    return person(f"run {command} in a checkout") if command else passed("not asked for")


def check_ci(case: Case) -> Finding:
    """How CI is started."""
    return person(" ".join(case.rules.ci.start.split()))


def check_evidence(case: Case) -> Finding:
    """Fresh evidence proves the patch."""
    if isinstance(case.body, NotProvedError):
        return refused(case.body)
    if isinstance(case.body, ContribbotError):
        return passed("fresh")
    return passed(f"fresh: {', '.join(record.file for record in case.body.records)}")


def check_targets(case: Case) -> Finding:
    """The targets that the upstream requires are proved."""
    name, required = case.patch.name, case.rules.require
    if not required:
        return passed("the upstream requires none")
    stated = asked(case.patch.spec)
    known = {one.target: one.evidence for one in target_states(case.queue, name)}
    missing = [one for one in required if one not in stated]
    if missing:
        return failed(
            f"required, and the patch states nothing for it: {', '.join(missing)}",
            "state a check for it in patch.toml",
        )
    opened = [f"{one} ({known[one]})" for one in required if known[one] != "fresh"]
    if opened:
        return failed(
            f"required, and not proved: {', '.join(opened)}",
            f"contribbot verify {name}, on a machine that has it",
        )
    return passed(", ".join(required))


def check_not_run(case: Case) -> Finding:
    """Targets on which nothing ran: the text says so, and a person decides."""
    made: Body | ContribbotError = case.body
    if isinstance(made, ContribbotError):
        return person("not known before there is fresh evidence")
    silent = [target for target in made.not_run if target not in made.text]
    if silent:
        return failed(f"the text does not say: not run on {', '.join(silent)}", _TEMPLATE_HINT)
    if made.not_run:
        return person(
            f"not run: {', '.join(made.not_run)}",
            "the text says so; run it on such a machine, or let the upstream's CI do it",
        )
    return passed("something ran on each target that the patch or the upstream names")


_TEMPLATE_HINT: Final = "let the template have `not_run`; see docs/contribute.md"


def check_expiry(case: Case) -> Finding:
    """No condition has come of which the patch says that it makes it unnecessary."""
    conditions, pin = case.patch.spec.expires_when, own_pin(case.queue, case.patch.name)
    if not conditions:
        return passed("no `expires_when` is stated")
    then = f"contribbot retire {case.patch.name} --why …; or correct `expires_when` in patch.toml"
    told: list[str] = []
    unsure = False
    # What GitHub is asked comes last: it need not be, where another condition has come.
    for one in sorted(conditions, key=lambda one: one.pull_request is not None):
        if one.pull_request is not None:
            come, said = _is_merged(case, one.pull_request)
        else:
            found = due(one, pin, frozenset(), releases=case.patch.upstream.release)
            # What is installed here says little of what the upstream's users have.
            come = None if one.dependency is not None else found.come
            said = f"{found.condition}: {found.why}"
        if come:
            return failed(f"it has expired: {said}", then)
        unsure = unsure or come is None
        told.append(said)
    seen = "; ".join(told)
    return person(seen, f"if that has come: {then}") if unsure else passed(seen)


def _is_merged(case: Case, reference: str) -> tuple[bool | None, str]:
    """Say whether a pull request is on its default branch; None: nobody knows."""
    try:
        found = _landing(case, reference)
    except NotFoundError:
        return None, f"there is no {reference}"
    if found is None:
        return False, f"{reference} is open"
    return found.upstream, f"{reference}: {found.words}"


def check_own_pr(case: Case) -> Finding:
    """The patch's own pull request is open, or another can be opened."""
    name = case.patch.name
    events = history.read(case.queue.folder, name)
    known = state(events, digest=case.patch.digest) or Contribution()
    if not known.reference:
        return passed("none was opened yet")
    # What the journal says of it is GitHub's word too.
    case.asked = True
    try:
        found = _landing(case, known.reference)
    except NotAskedError:
        if known.state != "merged":
            raise
        return failed(f"{known.reference} was merged", f"contribbot retire {name}")
    if found is None:
        return passed(f"{known.reference} is open")
    seen = f"{known.reference}: {found.words}"
    if found.upstream:
        return failed(seen, f"contribbot retire {name}")
    branch = branch_of(case.patch)
    if branch != known.branch:
        return passed(f"{seen}; open-pr opens another from {branch}")
    return failed(
        seen, "read there why; reopen it, or name another `branch` in [contribution] of patch.toml"
    )


def _landing(case: Case, reference: str) -> Landing | None:
    """Ask what became of a pull request; None: it is open."""
    repository, _, number = reference.partition("#")

    return case.ask(lambda github: ending_of(github, repository, int(number))[1])


_SHOWN: Final = 5


def check_stack(case: Case) -> Finding:
    """What the patch depends on has its pull request."""
    name = case.patch.name
    if not case.patch.spec.depends_on:
        return passed("it depends on no other patch")
    try:
        waits = check_below(case.queue, PublicationJournal(case.queue, dry=True), name)
    except MissingBelowError as error:
        return Finding(RowState.PERSON, error.message, error.hint, first=True)
    except OpeningError as error:
        return refused(error)
    if waits:
        said = ", ".join(f"{lower} ({pull})" for lower, pull in waits.items())
        return passed(f"waits for {said}")
    return passed("all that it depends on is merged")


def check_upstream(case: Case) -> Finding:
    """The upstream takes pull requests."""
    found = case.repository
    why = refuses_pulls(found)
    if why:
        return failed(f"{found.full_name} {why}", "look on its page for where it takes changes")
    wanted = case.patch.upstream.repository
    if found.full_name.lower() != wanted.lower():
        return person(f"{wanted} is called {found.full_name} now", "correct upstreams/NAME.toml")
    return passed(f"{found.full_name}, branch {found.default_branch}")


def check_branch(case: Case) -> Finding:
    """The branch is not behind its base."""
    known, repository = case.contribution, case.patch.upstream.repository
    if not known.reference:
        return passed("no pull request is open; open-pr starts from the newest commit")
    if known.ended:
        return passed(f"{known.reference} has ended")
    base = case.repository.default_branch
    owner = known.fork.partition("/")[0]
    try:
        said = case.ask(
            lambda github: github.repository(repository).compare(
                base, f"{owner}:{known.branch}", comparison_commits_per_page=1
            )
        )
    except NotFoundError:
        return failed(
            f"{known.fork} has no branch {known.branch}", f"contribbot open-pr {case.patch.name}"
        )
    if not said.behind_by:
        return passed(f"{owner}:{known.branch} has all of {base}")
    seen = f"{owner}:{known.branch} is {said.behind_by} commits behind {base}"
    then = f"contribbot open-pr {case.patch.name} --up-to-date"
    return failed(seen, then) if case.rules.ci.current else person(seen, then)


def check_open_prs(case: Case) -> Finding:
    """The author has no more open pull requests than the upstream lets them have."""
    cap, repository = case.rules.open_prs, case.patch.upstream.repository
    if not cap:
        return passed("the upstream has no limit")
    login = case.me
    if may_push(case.repository):
        return passed(f"no limit for {login}, who has write access")
    query = f"repo:{repository} is:pr is:open author:{login}"
    count = case.ask(lambda github: github.search(query, 1)).total
    known = case.contribution
    # One that is open already is among them, and does not become one more.
    room = cap if known.reference and not known.ended else cap - 1
    if count > room:
        return failed(f"{login} has {count} open, {cap} at most", "finish one of them first")
    return passed(f"{login} has {count} open, {cap} at most")


def check_duplicates(case: Case) -> Finding:
    """Nobody else is at the same work, or it is said why this is different."""
    name = case.patch.name
    look = case.ask(
        lambda github: duplicates.recent_look(
            github, case.queue, name, server=case.server, now=case.now
        )
    )
    case.look = look
    case.looked = min(case.looked or look.time, look.time)
    looked = f"of {look.looked_into} looked into, {look.seen} found, {look.days} days back"
    stray = unasked(
        case.patch.spec.contribution.different, [one.reference for one in look.candidates]
    )
    if stray:
        looked += f"; {', '.join(stray)} in `different` answers nothing now"
    if not look.candidates:
        return replace(passed(f"none {looked}"), searched=look.searched)
    opened = [one.reference for one in answered(case) if not one.answer]
    if not opened:
        return passed(f"{len(look.candidates)} {looked}: each is answered in [contribution]")
    more = f" and {len(opened) - _SHOWN} more" if len(opened) > _SHOWN else ""
    return failed(
        f"{len(opened)} without an answer: {', '.join(opened[:_SHOWN])}{more} ({looked})",
        f'contribbot gate {name} --different {opened[0]}="why this one is different"',
    )


def answered(case: Case) -> tuple[Candidate, ...]:
    """Return the candidates of the last look with their answers; a word or two is none."""
    if case.look is None:
        return ()
    said = {
        reference.lower(): why
        for reference, why in case.patch.spec.contribution.different.items()
        if is_reason(why)
    }
    return tuple(
        one.model_copy(update={"answer": said.get(one.reference.lower(), "")})
        for one in case.look.candidates
    )


_GIVEN: Final = re.compile(r"(?P<reference>[\w.-]+/[\w.-]+#[1-9][0-9]*)=(?P<why>.*)", re.DOTALL)
#: A reason says something.
_WORDS: Final = 4
#: Candidates that a message names.
_NAMED: Final = 5
_HINT: Final = 'write --different owner/name#123="why this one is different"'


def read_option(text: str) -> tuple[str, str]:
    """Take `REF=WHY` apart."""
    found = _GIVEN.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--different {text}: no pull request and a reason", hint=_HINT)
    why = found["why"].strip()
    if not why.isprintable():
        raise UsageError("--different: the reason is to be one line of plain text", hint=_HINT)
    if not is_reason(why):
        raise UsageError(
            f"--different {found['reference']}: the reason {why!r} is too short to be one",
            hint="say in a sentence what the other one does and this one does not, or the reverse",
        )
    return found["reference"], why


def is_reason(why: str) -> bool:
    """Say whether a text is long enough to be a reason: a few words that differ."""
    return len({word.lower() for word in re.findall(r"[^\W\d_]{2,}", why)}) >= _WORDS


def set_different(
    queue: Queue,
    name: str,
    reasons: Mapping[str, str],
    github: GitHub | None,
    *,
    broken: GitHubError | None = None,
) -> str:
    """Write why a patch is different from other pull requests; comments and layout stay.

    What a look does not find is refused, before anything is written.
    """
    path = f"patches/{name}/patch.toml"
    if name not in queue.specs:
        raise no_such_patch(name, queue.specs)
    look, unchecked = _look(queue, name, github, broken)
    if look is not None:
        _refuse_strangers(name, reasons, [one.reference for one in look.candidates])
    with transaction(queue.folder) as changes:
        content = changes.read(path)
        if name not in queue.specs or content is None:
            raise no_such_patch(name, queue.specs)
        changes.write(path, toml_edit.set_different(content, reasons))
        changes.commit()
    return unchecked


def _look(
    queue: Queue, name: str, github: GitHub | None, broken: GitHubError | None
) -> tuple[Look | None, str]:
    """Return a look of the last hour, or why there is none."""
    server, now = find_server().api, datetime.now(UTC).replace(microsecond=0)
    if github is None:
        known = duplicates.remembered(queue, name, server=server, now=now)
        why = broken.message if broken else "GitHub was not asked (--offline)"
        return known, "" if known else why
    try:
        return duplicates.recent_look(github, queue, name, server=server, now=now), ""
    except GitHubError as error:
        return None, error.message


def _refuse_strangers(name: str, reasons: Iterable[str], candidates: Iterable[str]) -> None:
    """Refuse an answer to what nobody asks about: most likely a slip in its number."""
    known = list(candidates)
    for reference in unasked(reasons, known):
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        there = f"these are: {', '.join(known[:_NAMED])}{more}" if known else "there is none"
        raise UsageError(
            f"--different {reference}: it is no candidate of {name}; {there}",
            hint="one that you found yourself goes into `related` of patch.toml first",
        )


def unasked(answered: Iterable[str], candidates: Iterable[str]) -> list[str]:
    """Return the pull requests that are answered for and no candidates."""
    known = {one.lower() for one in candidates}
    return [one for one in answered if one.lower() not in known]


RULES: Final = (
    Rule("title", check_title),
    Rule("sign-off", check_sign_off),
    Rule("ai-trailer", check_ai_trailer),
    Rule("issue", check_issue),
    Rule("issue-open", check_issue_open),
    Rule("tests", check_tests),
    Rule("prose", check_prose),
    Rule("words", check_words),
    Rule("evidence", check_evidence),
    Rule("targets", check_targets),
    Rule("not-run", check_not_run),
    Rule("body", check_body),
    Rule("template", check_template),
    Rule("docs", check_docs),
    Rule("labels", check_labels),
    Rule("lint", check_lint),
    Rule("ci", check_ci),
    Rule("stack", check_stack),
    Rule("upstream", check_upstream),
    Rule("expiry", check_expiry),
    Rule("own-pr", check_own_pr),
    Rule("branch", check_branch, mended_by_opening=True),
    Rule("open-prs", check_open_prs),
    Rule("duplicates", check_duplicates),
)


def judge(
    queue: Queue,
    name: str,
    github: GitHub | None,
    *,
    broken: GitHubError | None = None,
    server: str = "",
    now: datetime | None = None,
    body: Body | None = None,
) -> Gate:
    """Judge a patch by every rule of its upstream."""
    patch = queue.patch(name)
    if not patch.files:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
    case = Case(
        queue=queue,
        patch=patch,
        rules=rules_of(queue, patch.spec.upstream),
        github=github,
        broken=broken,
        server=server,
        now=now or datetime.now(UTC).replace(microsecond=0),
        given=body,
    )
    # What the look for duplicates found is in the text, which others judge.
    rows = {rule.name: _row(rule, case) for rule in reversed(RULES)}
    return Gate(
        patch=name,
        upstream=patch.upstream.name,
        repository=patch.upstream.repository,
        rows=tuple(rows[rule.name] for rule in RULES),
        candidates=answered(case),
        limits=case.look.limits if case.look else (),
        looked=case.looked,
        body=case.body if isinstance(case.body, Body) else None,
    )


def _row(rule: Rule, case: Case) -> Row:
    case.asked = False
    try:
        finding = rule.judge(case)
    except NotAskedError:
        finding = Finding(RowState.NOT_LOOKED_AT, "GitHub was not asked (--offline)")
    except GitHubError as error:
        finding = Finding(RowState.UNKNOWN, error.message, error.hint)
    return Row(
        rule=rule.name,
        state=finding.state,
        seen=line(finding.seen) or "nothing",
        next=line(finding.next),
        github=case.asked,
        mended_by_opening=rule.mended_by_opening,
        first=finding.first,
        searched=finding.searched,
    )
