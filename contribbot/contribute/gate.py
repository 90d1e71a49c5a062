"""The gate: what an upstream asks of a pull request, one rule a row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeVar

from contribbot import process
from contribbot.contribute import duplicates
from contribbot.contribute.body import (
    ai_used,
    changed_files,
    changed_lines,
    compare_with_live,
    make_body,
    rules_of,
    template_of,
    test_folders,
)
from contribbot.contribute.branch import branch_of, refuses_pulls
from contribbot.contribute.landing import Landing, ending_of
from contribbot.contribute.model import Body, Candidate, Gate, Look, Row, RowState, Rules, Want
from contribbot.contribute.publication import (
    MissingBelowError,
    Publication,
    PublicationJournal,
    check_below,
)
from contribbot.errors import (
    ContribbotError,
    GitHubError,
    NotFoundError,
    NotProvedError,
    OpeningError,
    RefusedError,
    UnwrittenError,
    UsageError,
    first_of,
)
from contribbot.git.patch_format import Mail, read_mail, touched_files
from contribbot.git.repository import git_environment
from contribbot.github.fields import may_push
from contribbot.github.git_data import read_file
from contribbot.markdown import line_of
from contribbot.model.patch import Patch
from contribbot.queue import toml_edit
from contribbot.queue.load import Queue, no_such_patch
from contribbot.queue.superseded import Supersession, due, note, superseded
from contribbot.queue.transaction import transaction
from contribbot.verify.evidence import asked, target_states

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub

T = TypeVar("T")
_SIGNED: Final = re.compile(r"^Signed-off-by: (?P<name>.+) <(?P<email>[^<>\s]+)>\s*$", re.MULTILINE)
_TABLE: Final = "[contribution] of patch.toml"
_GIVEN: Final = re.compile(r"(?P<reference>[\w.-]+/[\w.-]+#[1-9][0-9]*)=(?P<why>.*)", re.DOTALL)
_AGAIN: Final = "run it again in some minutes"
#: Domains that are nowhere, mailboxes of programs, and names of AIs.
_NOWHERE: Final = frozenset({"invalid", "test", "localhost", "local", "internal"})
_ROBOTS: Final = frozenset({"noreply", "donotreply", "bot"})
_AI: Final = re.compile(
    r"(?i)(?:claude(?: code|[\w. ]*\b(?:opus|sonnet|haiku)\b[\w. ]*)?|codex|chatgpt"
    r"|(?:github )?copilot|gemini(?: cli)?|cursor(?: agent)?|devin ai|(?:an )?ai)"
)
#: Changed lines that a reviewer reads at once: LLVM's AIToolPolicy asks newcomers for fewer.
_LINES: Final = 150
_TOLERANCE: Final = re.compile(
    r"(?i)\b(?:[ar]tol|\w*tolerance)\b(?:,\s*[ar]tol)?[\"']?\s*[=:]\s*"
    r"(\d[\d.]*(?:e[-+]?\d+)?)(?:,\s*(\d[\d.]*(?:e[-+]?\d+)?)\s*$)?"
)
_SKIPS: Final = re.compile(r"\b(?:skip|skipif|xfail|flaky|rerun\w*)\b")
_FOR_AMD: Final = re.compile(r"(?i)\b(?:rocm|amd|hip|gfx\w+)\b")
_WORDS: Final = 4


@dataclass(frozen=True)
class Observation:
    """What one check of a rule finds."""

    state: RowState
    seen: str
    next: str = ""
    #: Whether a person does it before anything can be attested; whether `open-pr` mends it.
    first: bool = False
    mended_by_opening: bool = False


Check = Callable[["GateCase"], Observation | None]
passed, failed = partial(Observation, RowState.PASSED), partial(Observation, RowState.FAILED)
person, unknown = partial(Observation, RowState.PERSON), partial(Observation, RowState.UNKNOWN)
#: The states that a row of several checks takes, the first that one of them has.
_WORST: Final = (
    RowState.FAILED, RowState.UNKNOWN, RowState.NOT_LOOKED_AT, RowState.PERSON, RowState.PASSED,
)  # fmt: skip


class NotAskedError(Exception):
    """GitHub would have to be asked, and nobody wants that."""


@dataclass
class GateCase:
    """A patch before the gate: its upstream's rules, its text, GitHub."""

    queue: Queue
    patch: Patch
    rules: Rules
    #: Reads from GitHub, or why it cannot be asked; None: nobody wants that.
    github: GitHub | GitHubError | None
    now: datetime
    #: The text of the pull request, where the command has made it.
    text: Body | None = None
    asked: bool = False
    #: When GitHub was asked; the oldest that matters.
    looked: datetime | None = None
    look: Look | None = None
    #: What was advised last where GitHub gave no answer.
    hint: str = ""

    def ask(self, question: Callable[[GitHub], T]) -> T:
        """Ask GitHub something."""
        self.asked = True
        if self.github is None:
            raise NotAskedError
        if isinstance(self.github, GitHubError):
            raise self.github
        try:
            answer = question(self.github)
        except (NotFoundError, RefusedError):
            raise
        except GitHubError as error:
            # Whoever waited for one answer in vain need not wait for the others.
            self.github = error
            raise
        self.looked = min(self.looked or self.now, self.now)
        return answer

    @property
    def repository(self) -> Repository:
        """The upstream's repository; asked for once."""
        self.asked = True
        return self._repository

    @cached_property
    def _repository(self) -> Repository:
        name = self.patch.upstream.repository
        return self.ask(lambda github: github.repository(name).complete())

    def ending(self, reference: str) -> Landing | None:
        """Ask what became of a pull request; None: it is open."""
        repository, _, number = reference.partition("#")
        return self.ask(lambda github: ending_of(github, repository, int(number))[1])

    @cached_property
    def publication(self) -> Publication:
        """How far the patch is on GitHub, as its journal says."""
        return PublicationJournal(self.queue).publication(self.patch.name)

    @cached_property
    def body(self) -> Body | ContribbotError:
        """The text of the pull request, or why there is none."""
        try:
            return self.text or make_body(self.queue, self.patch.name)
        except ContribbotError as error:
            return error

    def __post_init__(self) -> None:
        #: The files that the patch leaves changed; its commits, and how a text calls them.
        touched = touched_files(self.patch.files)
        self.paths = tuple(dict.fromkeys(file.path for file in touched if not file.removed))
        self.mails = {file.name: read_mail(file) for file in self.patch.files}
        self.commits = "the commit" if len(self.mails) == 1 else f"all {len(self.mails)} commits"


def check_duplicates(case: GateCase) -> Observation:
    """Nobody else is at the same work, or it is said why this is different."""
    name = case.patch.name
    if pull := case.patch.spec.pull:
        return failed(f"it is {pull}, somebody else's", f"contribbot body {name} --comment")
    look = case.look = case.ask(
        lambda github: duplicates.recent_look(github, case.queue, name, case.now)
    )
    case.looked = min(case.looked or look.time, look.time)
    looked = f"{look.seen} found in {look.days} days, {look.looked_into} of them looked into"
    known = {candidate.reference.lower() for candidate in look.candidates}
    different = case.patch.spec.contribution.different
    if strays := [reference for reference in different if reference.lower() not in known]:
        looked += f"; {', '.join(strays)} in `different` answers nothing now"
    if not look.candidates:
        return passed(f"none: {looked}")
    if not (open_ := [known.reference for known in answered(case) if not known.answer]):
        return passed(f"each of {len(known)} is answered in [contribution]: {looked}")
    way = f'contribbot gate {name} --different {open_[0]}="why this one is different"'
    return failed(f"{len(open_)} without an answer: {first_of(open_)}: {looked}", way)


def answered(case: GateCase) -> tuple[Candidate, ...]:
    """Return the candidates of the last look with their answers; a word or two is none."""
    different = case.patch.spec.contribution.different
    reasons = {name.lower(): why for name, why in different.items() if _is_reason(why)}
    return tuple(
        candidate.model_copy(update={"answer": reasons.get(candidate.reference.lower(), "")})
        for candidate in (case.look.candidates if case.look else ())
    )


def _is_reason(why: str) -> bool:
    return len({word.lower() for word in re.findall(r"[^\W\d_]{2,}", why)}) >= _WORDS


def read_option(text: str) -> tuple[str, str]:
    """Take `REF=WHY` apart."""
    match = _GIVEN.fullmatch(text.strip())
    why = match["why"].strip() if match else ""
    if match is None or not why.isprintable():
        problem = f"{text!a}: no pull request and a reason in one line of plain text"
        hint = 'write --different owner/name#123="why this one is different"'
        raise UsageError(f"--different {problem}", hint=hint)
    if not _is_reason(why):
        problem = f"{match['reference']}: the reason {why!r} is too short to be one"
        hint = "say in a sentence what the other one does and this one does not, or the reverse"
        raise UsageError(f"--different {problem}", hint=hint)
    return match["reference"], why


def set_different(queue: Queue, name: str, reasons: Mapping[str, str]) -> None:
    """Write into patch.toml why a patch is different from other pull requests."""
    path = f"patches/{name}/patch.toml"
    with transaction(queue.folder) as changes:
        content = changes.read(path)
        if content is None:
            raise no_such_patch(name, queue.specs)
        changes.write(path, toml_edit.set_different(content, reasons))
        changes.commit()


def check_superseded(case: GateCase) -> Observation:
    """The upstream does not have it, as far as this queue, its records and GitHub know."""
    name, spec = case.patch.name, case.patch.spec
    then = f"propose it nowhere: contribbot queue retire {name}; or correct patch.toml"
    if found := superseded(case.queue, name):
        return failed(found.words, then)
    seen: list[str] = []
    unsure = False
    for condition in spec.expires_when:
        come: bool | None = None
        if reference := condition.pull_request:
            try:
                landing = case.ending(reference)
                come = landing is not None and landing.upstream
                why = f"{reference}: {landing.words}" if landing else f"{reference} is open"
            except NotFoundError:
                why = f"there is no {reference}"
            if come and landing is not None:
                found = Supersession(why=landing.words, by=reference)
                note(case.queue, {name: found})
                return failed(found.words, then)
        else:
            state = due(condition, case.patch.pin.tag, frozenset(),
                        releases=case.patch.upstream.release)  # fmt: skip
            # What is installed here says little of what the upstream's users have.
            come = None if condition.dependency is not None else state.come
            why = f"{state.condition}: {state.why}"
        unsure = unsure or come is None
        seen.append(why)
    text = "; ".join(seen) or "nothing says so, and no `expires_when` is stated"
    return person(text, f"if that has come: {then}") if unsure else passed(text)


def check_title(case: GateCase) -> Observation:
    """The title matches the upstream's pattern."""
    title, pattern = case.patch.spec.title, case.rules.title
    if not pattern:
        usual = f"; usual: {case.rules.title_hint}" if case.rules.title_hint else ""
        return passed(f"{title} (the upstream has no pattern{usual})")
    if re.search(pattern, title):
        return passed(title)
    form = case.rules.title_hint or pattern
    return failed(f"{title}: not in the form {form}", "change `title` in patch.toml")


def _no_person(name: str, email: str) -> str:
    """Say why a name and an address are no person's; nothing: they may be one's."""
    local, _, domain = email.casefold().rpartition("@")
    if not local or "." not in domain or domain.rpartition(".")[2] in _NOWHERE:
        return f"{email} is no address"
    if local.replace("-", "") in _ROBOTS or "[bot]" in local or name.casefold().endswith("[bot]"):
        return f"{email} is a program's"
    return f"{name} is an AI" if _AI.fullmatch(name.strip()) else ""


def check_sign_off(case: GateCase) -> Observation | None:
    """Each commit is signed off by its author, a person."""
    if not (case.rules.sign_off or case.patch.upstream.commits.sign_off):
        return None

    def signed(mail: Mail) -> bool:
        names = {
            (name.casefold(), email.casefold()) for name, email in _SIGNED.findall(mail.message)
        }
        return (mail.name.casefold(), mail.email.casefold()) in names

    way = f"contribbot edit {case.patch.name}; git rebase --signoff"
    for name, mail in case.mails.items():
        if why := _no_person(mail.name, mail.email):
            return failed(f"signed off by nobody: {why}", f"{way} --reset-author")
        if not signed(mail):
            author = f"{mail.name} <{mail.email}>"
            return failed(f"no Signed-off-by of the author {author} in {name}", way)
    return passed(f"signed off by the author in {case.commits}")


def check_ai_trailer(case: GateCase) -> Observation | None:
    """Where AI was used, each commit has the trailer that the upstream asks for."""
    pattern, contribution = case.rules.ai.trailer, case.patch.spec.contribution
    if not pattern or (contribution.ai and not ai_used(contribution)):
        return None
    if not contribution.ai:
        return person(f"a trailer waits for how AI was used: `ai` in {_TABLE}")
    shown: list[str] = []
    env = git_environment({"GIT_CEILING_DIRECTORIES": "/"})
    for name, mail in case.mails.items():
        command = ["git", "interpret-trailers", "--parse", "--no-divider"]
        done = process.run(command, env=env, stdin=mail.message.encode())
        trailers = done.stdout.decode("utf-8", "replace").splitlines()
        matching = [trailer for trailer in trailers if re.search(pattern, trailer)]
        if not matching:
            way = f"add one such as `Assisted-by: NAME`: contribbot edit {case.patch.name}"
            return failed(f"AI was used, and no trailer says so in {name}", way)
        shown += matching
    # Whether it names an AI or another person is for whoever reads this to see.
    return passed(f"in {case.commits}: {'; '.join(dict.fromkeys(shown))}")


def check_issue(case: GateCase) -> Observation | None:
    """An open issue is linked where the upstream needs one."""
    named, then = case.patch.spec.contribution.issue, f"name it as `issue` in {_TABLE}"
    if not named:
        if case.rules.issue != "required":
            return None
        if case.rules.issue_first:
            write = f"contribbot reproducer {case.patch.name}"
            then = f"open one (`{write}` writes its text), and {then}"
        return failed("the upstream wants a linked issue, and none is named", then)
    repository, _, number = named.partition("#")
    then = f"correct `issue` in {_TABLE}"
    try:
        issue = case.ask(lambda github: github.issue(repository, int(number)).complete())
    except NotFoundError:
        return failed(f"there is no {named}", then)
    seen = f"{named} “{line_of(issue.title)}”"
    if issue.raw_data.get("pull_request") is not None:
        return failed(f"{seen} is a pull request", f"{then}, or name it in `related`")
    if issue.state == "closed":
        hint = "read there why, and say in the text what is still wrong"
        return person(f"{seen} is closed", hint)
    return passed(f"{seen} is open")


def check_tests(case: GateCase) -> Observation | None:
    """The patch brings a test, where the upstream keeps its tests."""
    if not case.rules.tests:
        return None
    below = tuple(f"{folder}/" for folder in case.rules.tests)
    if tests := [path for path in case.paths if path.startswith(below)]:
        return passed(", ".join(tests))
    then = f"bring a test that fails on the base: contribbot edit {case.patch.name}"
    return failed(f"no file below {', '.join(case.rules.tests)} is touched", then)


def check_tolerances(case: GateCase) -> Observation | None:
    """The tests keep their tolerances, and skip no more than before."""
    if not case.rules.tolerances:
        return None
    below = test_folders(case.patch, case.rules)
    skips: list[str] = []
    for path, file in changed_files(case.patch):
        for hunk in file if path.startswith(below) else ():
            gone, new = (
                Counter(number for line in lines for number in _tolerances(line.value))
                for lines in (hunk.source_lines(), hunk.target_lines())
            )
            lost = gone - new
            if lost and new and min(lost) < max(new):
                seen = f"{path}: {min(lost):g} was a tolerance, and {max(new):g} is one now"
                return failed(seen, "keep it as tight as it was, and mend what needs more")
            added, removed = (
                sum(bool(_SKIPS.search(line.value)) for line in lines)
                for lines in (hunk.target_lines(), hunk.source_lines())
            )
            skips += [path] if added > removed else []
    if skips:
        seen = f"a skip, xfail or retry is new in {', '.join(dict.fromkeys(skips))}"
        return person(seen, "see that it hides no failure")
    return passed("no tolerance is wider, and no skip is new")


def _tolerances(line: str) -> Iterator[float]:
    """Yield the tolerances that a line gives."""
    for found in _TOLERANCE.finditer(line.partition("#")[0]):
        yield from map(float, filter(None, found.groups()))


def check_prose(case: GateCase) -> Observation | None:
    """The prose is written."""
    if unwritten := case.patch.spec.unwritten:
        return failed(f"{', '.join(unwritten)} not written yet", "write it in patch.toml")
    return None


def check_text(case: GateCase) -> Observation | None:
    """The text can be made, says what the upstream asks for, and is not too long."""
    body = case.body
    if isinstance(body, NotProvedError):
        return None  # said by `evidence`, or of the prose
    if isinstance(body, ContribbotError):
        return failed(body.message, body.hint)
    wants = [want for want in body.wants if want is not Want.ISSUE]
    if wants:
        seen = f"still to write: {'; '.join(want.words for want in wants)}"
        if wants == [Want.WORDS]:
            return person(seen, first=True)
        return failed(seen, f"write it in {_TABLE}")
    if body.words > body.most_words:
        seen = f"{body.words} words are seen at once, and {body.most_words} may be"
        return failed(seen, "say less in summary and claims; all else is folded away")
    return passed(
        f"{body.words} words of {body.most_words} seen at once, {body.characters:,} characters of"
        f" {body.budget:,}, template {body.template}"
    )


def check_evidence(case: GateCase) -> Observation | None:
    """Fresh evidence proves the patch."""
    if isinstance(case.body, Body):
        return passed(f"fresh: {', '.join(record.file for record in case.body.records)}")
    unproved = isinstance(case.body, NotProvedError) and not isinstance(case.body, UnwrittenError)
    return failed(case.body.message, case.body.hint) if unproved else None


def check_targets(case: GateCase) -> Observation | None:
    """The targets that the upstream requires are proved."""
    name, required = case.patch.name, case.rules.require
    if not required:
        return None
    stated = asked(case.patch.spec)
    if missing := [target for target in required if target not in stated]:
        seen = f"required, and the patch states nothing for it: {', '.join(missing)}"
        return failed(seen, "state a check for it in patch.toml")
    known = {row.target: row.evidence for row in target_states(case.queue, name)}
    if unproved := [f"{it} ({known[it]})" for it in required if known[it] != "fresh"]:
        seen = f"required, and not proved: {', '.join(unproved)}"
        return failed(seen, f"contribbot verify {name}, on a machine that has it")
    return passed(f"required and proved: {', '.join(required)}")


def check_not_run(case: GateCase) -> Observation:
    """Targets on which nothing ran: the text says so, and a person decides."""
    body = case.body
    if isinstance(body, ContribbotError):
        return person("not known before the text can be made")
    silent = [target for target in body.not_run if target not in body.text]
    if silent:
        seen = f"the text does not say: not run on {', '.join(silent)}"
        return failed(seen, "let the template have `not_run`; see docs/upstreams.md")
    if body.not_run:
        way = f"on such a machine: contribbot verify {case.patch.name}"
        then = f"the text says so; {way}; or let the upstream's CI do it"
        return person(f"not run: {', '.join(body.not_run)}", then)
    return passed("something ran on each target that the patch is for")


def check_speed(case: GateCase) -> Observation | None:
    """What is to be faster was measured on the hardware that it is for."""
    title = case.patch.spec.title
    if not (case.rules.speed and re.search(case.rules.speed, title)):
        return None
    if isinstance(case.body, ContribbotError):
        return person("not known before the text can be made")
    amd = bool(_FOR_AMD.search(title))
    timed = [target for target in case.body.timed if target.startswith("gfx") or not amd]
    if timed:
        return passed(f"measured on {', '.join(timed)}")
    where = "an AMD GPU" if amd else "a GPU"
    what = f"measured on {', '.join(case.body.timed)} alone" if case.body.timed else "not measured"
    way = f"a [[bench]] there (docs/bench.md): contribbot verify {case.patch.name}"
    return failed(f"the title promises speed on {where}: {what}", f"{way}; or another title")


def check_end_to_end(case: GateCase) -> Observation | None:
    """What the upstream wants run end to end was run so, or it is said why not."""
    title = case.patch.spec.title
    if not (case.rules.end_to_end and re.search(case.rules.end_to_end, title)):
        return None
    if said := case.patch.spec.contribution.model_evaluation:
        return passed(said)
    way = f"run it, or write `not run: why`, as `model_evaluation` in {_TABLE}"
    return failed("nothing says that it was run end to end, or why it was not", way)


def check_size(case: GateCase) -> Observation:
    """It is small enough to be read at once."""
    lines = changed_lines(case.patch, case.rules)
    seen = f"{lines} changed lines outside tests"
    if lines <= _LINES:
        return passed(seen)
    way = f"split it: contribbot queue split {case.patch.name} NEW PATH… (docs/queue.md)"
    return person(f"{seen}; a reviewer reads {_LINES} at once", way)


def check_style(case: GateCase) -> Observation | None:
    """What reviewers mind of style is mended."""
    if isinstance(case.body, ContribbotError) or not case.body.minded:
        return None
    seen = f"a reviewer would mind {first_of(case.body.minded)}"
    return failed(seen, f"mend it: contribbot edit {case.patch.name}")


def check_template(case: GateCase) -> Observation:
    """The template is that of the upstream as it is now."""
    ours, live = template_of(case.queue, case.rules), case.rules.body.live
    where, branch = case.patch.upstream.repository, case.repository.default_branch
    content = case.ask(lambda github: read_file(github.repository(where), live, branch))
    if content is None:
        return person(f"{where} has no {live} any more", "see where its template is now")
    changed = compare_with_live(ours, content.decode("utf-8", "replace"))
    if changed:
        return person("; ".join(changed), "see whether the text still answers what it asks")
    return passed(f"{live} has the headings of {ours.version}")


def check_docs(case: GateCase) -> Observation:
    """What users see is documented."""
    docs = case.patch.spec.contribution.docs.strip()
    if not docs:
        then = f"name the paths that document it, or `none needed: why`, as `docs` in {_TABLE}"
        return person("nothing says whether users see a change", then)
    if not case.patch.spec.contribution.documents:
        return person(docs)
    if brought := [path for path in case.paths if path in docs]:
        return passed(", ".join(brought))
    seen = f"`docs` names no file that the patch touches: {docs}"
    return failed(seen, f"bring it, or write `none needed: why`, in {_TABLE}")


def check_person(case: GateCase) -> Observation:
    """A person stands behind it: they read the diff, and a record shows what they ran."""
    name, way = case.patch.name, f"a person does it: contribbot attest {case.patch.name}"
    who = case.patch.spec.contribution.person
    if who is None:
        return failed("nobody has read it and run it", way)
    if why := _no_person(who.name, who.email):
        return failed(why, f"name who stands for it, as `person` in {_TABLE}")
    if isinstance(case.body, ContribbotError):
        return person(f"{who.name}; whether {who.record} holds is not known before there is a text")
    if all(record.file != who.record for record in case.body.records):
        return failed(f"{who.record} is no fresh record of {name}", f"contribbot verify {name}")
    return passed(f"{who.name} <{who.email}> ran {who.ran}: {who.record}")


def check_by_hand(case: GateCase) -> Observation:
    """What nobody but a person does: before it is pushed, then for CI and with labels."""
    rules = case.rules
    labels = dict.fromkeys((*rules.labels, *case.patch.spec.contribution.labels, rules.label_hint))
    named = "; ".join(filter(None, labels))
    return person("; ".join((
        *rules.by_hand,
        *([f"run {rules.lint} in a checkout"] if rules.lint else ()),
        f"CI: {' '.join(rules.ci.start.split())}",
        *([f"labels, once it is open: {named}"] if named else ()),
    )))  # fmt: skip


def check_stack(case: GateCase) -> Observation | None:
    """What the patch depends on has its pull request."""
    if not case.patch.spec.depends_on:
        return None
    try:
        journal = PublicationJournal(case.queue, dry=True)
        waits = check_below(case.queue, journal, case.patch.name)
    except MissingBelowError as error:
        return person(error.message, error.hint, first=True)
    except OpeningError as error:
        return failed(error.message, error.hint)
    names = ", ".join(f"{below} ({pull})" for below, pull in waits.items())
    return passed(f"waits for {names}" if waits else "all that it depends on is merged")


def check_upstream(case: GateCase) -> Observation:
    """The upstream takes pull requests."""
    upstream, stated = case.repository, case.patch.upstream.repository
    why = refuses_pulls(upstream)
    if why:
        return failed(f"{upstream.full_name} {why}", "look on its page for where it takes changes")
    if upstream.full_name.lower() != stated.lower():
        return person(f"{stated} is called {upstream.full_name} now", "correct upstreams/NAME.toml")
    return passed(f"{upstream.full_name}, branch {upstream.default_branch}")


def check_open_prs(case: GateCase) -> Observation | None:
    """The author has no more open pull requests than the upstream lets them have."""
    cap, repository = case.rules.open_prs, case.patch.upstream.repository
    if not cap:
        return None
    login = case.ask(lambda github: github.me)
    if may_push(case.repository):
        return passed(f"no limit for {login}, who has write access")
    query = f"repo:{repository} is:pr is:open author:{login}"
    found, known = case.ask(lambda github: github.search(query, 1)), case.publication
    # One that is open already is among them, and does not become one more.
    room = cap if known.reference and not known.ended else cap - 1
    seen = f"{login} has {found.total} open, {cap} at most"
    if found.total > room:
        return failed(seen, "finish one of them first")
    if found.incomplete:
        return unknown(f"{seen}, and GitHub did not finish the search", _AGAIN)
    return passed(seen)


def check_own_pr(case: GateCase) -> Observation:
    """The patch's own pull request is open and not behind, or another can be opened."""
    name = case.patch.name
    known = PublicationJournal(case.queue).publication(name, digest=case.patch.digest)
    if not known.reference:
        return passed("none was opened yet")
    # What the journal says of it is GitHub's word too.
    case.asked = True
    try:
        landing = case.ending(known.reference)
    except NotAskedError:
        if known.state != "merged":
            raise
        return failed(f"{known.reference} was merged", f"contribbot queue retire {name}")
    if landing is None:
        return _behind(case)
    seen = f"{known.reference}: {landing.words}"
    if landing.upstream:
        return failed(seen, f"contribbot queue retire {name}")
    branch = branch_of(case.patch)
    if branch != known.branch:
        return passed(f"{seen}; open-pr opens another from {branch}")
    return failed(seen, f"read there why; reopen it, or name another `branch` in {_TABLE}")


def _behind(case: GateCase) -> Observation:
    """Say whether the branch is behind its base; `open-pr` brings it up to date."""
    known, repository = case.publication, case.patch.upstream.repository
    base = case.repository.default_branch
    head = f"{known.fork.partition('/')[0]}:{known.branch}"
    then = f"contribbot open-pr {case.patch.name}"
    state = RowState.FAILED if case.rules.ci.current else RowState.PERSON
    try:
        comparison = case.ask(
            lambda github: github.repository(repository).compare(
                base, head, comparison_commits_per_page=1
            )
        )
    except NotFoundError:
        state, seen = RowState.FAILED, f"{known.fork} has no branch {known.branch}"
    else:
        if not comparison.behind_by:
            return passed(f"{known.reference} is open, and {head} has all of {base}")
        seen, then = (
            f"{head} is {comparison.behind_by} commits behind {base}",
            f"{then} --up-to-date",
        )
    return Observation(state, seen, then, mended_by_opening=True)


#: The rules in the order in which they are judged: the text tells of the look for duplicates.
RULES: Final[Mapping[str, tuple[Check, ...]]] = {
    "duplicates": (check_duplicates,),
    "superseded": (check_superseded,),
    "title": (check_title,),
    "commits": (check_sign_off, check_ai_trailer),
    "issue": (check_issue,),
    "tests": (check_tests, check_tolerances),
    "text": (check_prose, check_text),
    "evidence": (check_evidence, check_targets),
    "not-run": (check_not_run,),
    "speed": (check_speed,),
    "end-to-end": (check_end_to_end,),
    "size": (check_size,),
    "style": (check_style,),
    "template": (check_template,),
    "docs": (check_docs,),
    "person": (check_person,),
    "by-hand": (check_by_hand,),
    "stack": (check_stack,),
    "upstream": (check_upstream, check_open_prs),
    "own-pr": (check_own_pr,),
}


def judge(
    queue: Queue, name: str, github: GitHub | GitHubError | None, *,
    now: datetime | None = None, body: Body | None = None,
) -> Gate:  # fmt: skip
    """Judge a patch by every rule of its upstream."""
    patch = queue.patch(name)
    if not patch.files:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
    moment, rules = (
        now or datetime.now(UTC).replace(microsecond=0),
        rules_of(queue, patch.spec.upstream),
    )
    case = GateCase(queue, patch, rules, github, moment, text=body)
    rows = tuple(judge_rule(rule, case) for rule in RULES)
    return Gate(
        patch=name, upstream=patch.upstream.name, repository=patch.upstream.repository, rows=rows,
        candidates=answered(case), limits=case.look.limits if case.look else (),
        looked=case.looked, body=case.body if isinstance(case.body, Body) else None,
    )  # fmt: skip


def judge_rule(rule: str, case: GateCase) -> Row:
    """Judge a patch by one rule: the row says what is worst of what its checks find."""
    case.asked = False
    found = [finding for check in RULES[rule] if (finding := _find(check, case)) is not None]
    found = found or [passed("not asked for")]
    worst = next(state for state in _WORST if any(finding.state is state for finding in found))
    told = [finding for finding in found if finding.state is worst]
    return Row(
        rule=rule, state=worst, github=case.asked,
        seen=line_of("; ".join(dict.fromkeys(finding.seen for finding in told))) or "nothing",
        next=line_of("; ".join(finding.next for finding in told if finding.next)),
        first=any(finding.first for finding in told),
        mended_by_opening=all(finding.mended_by_opening for finding in told),
    )  # fmt: skip


def _find(check: Check, case: GateCase) -> Observation | None:
    """Return what a check finds; where GitHub gives no answer, that."""
    try:
        return check(case)
    except NotAskedError:
        return Observation(RowState.NOT_LOOKED_AT, "GitHub was not asked")
    except GitHubError as error:
        # The same hint once is enough.
        hint = "" if case.hint == error.hint else error.hint
        case.hint = error.hint
        return unknown(error.message, hint)
