"""The gate: judges a patch by each rule of its upstream, one row for each rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from contribbot import process
from contribbot.contribute import duplicates
from contribbot.contribute.body import (
    OVERVIEW_WORDS,
    VISIBLE_WORDS,
    WORDS,
    ai_used,
    changed_lines,
    compare_with_live,
    make_body,
    rules_of,
    template_of,
)
from contribbot.contribute.branch import branch_of, file_content, may_push, refuses_pulls
from contribbot.contribute.duplicates import is_pull, place_of
from contribbot.contribute.figures import gather, other_tritons
from contribbot.contribute.model import Body, Gate, Look, Row, RowState, Rules, Want
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
from contribbot.github.pull_state import Landing, ending_of
from contribbot.markdown import line_of
from contribbot.model.patch import Patch
from contribbot.queue import toml_edit
from contribbot.queue.history import Supersession, due, remember_superseded, superseded
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.verify.evidence import asked, target_states

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub

T = TypeVar("T")
_SIGNED: Final = re.compile(r"^Signed-off-by: (?P<name>.+) <(?P<email>[^<>\s]+)>\s*$", re.MULTILINE)
_GIVEN: Final = re.compile(r"(?P<reference>[\w.-]+/[\w.-]+#[1-9][0-9]*)=(?P<why>.*)", re.DOTALL)
#: Domains that do not exist, mailboxes of programs, and names of AIs.
_NOWHERE: Final = frozenset({"invalid", "test", "localhost", "local", "internal"})
_ROBOTS: Final = frozenset({"noreply", "donotreply", "bot"})
_AI: Final = re.compile(
    r"(?i)(?:claude(?: code|[\w. ]*\b(?:opus|sonnet|haiku)\b[\w. ]*)?|codex|chatgpt"
    r"|(?:github )?copilot|gemini(?: cli)?|cursor(?: agent)?|devin ai|(?:an )?ai)"
)
#: Changed lines that a reviewer reads at once: LLVM's AIToolPolicy asks newcomers for fewer.
_LINES: Final = 150
_FOR_AMD: Final = re.compile(r"(?i)\b(?:rocm|amd|hip|gfx\w+)\b")
_WORDS: Final = 4
#: The table of patch.toml whose keys most next steps name.
_TABLE: Final = "[contribution] of patch.toml"
_NOT_KNOWN: Final = "not known before the text can be made"


@dataclass(frozen=True)
class Observation:
    """The finding of a check: the state and words of a row, with a code for programs."""

    state: RowState
    code: str
    seen: str
    next: str = ""
    #: Whether a person must take the next step before attesting; whether `open-pr` mends the row.
    first: bool = False
    mended: bool = False


passed: Final = partial(Observation, RowState.PASSED)
failed: Final = partial(Observation, RowState.FAILED)
for_person: Final = partial(Observation, RowState.PERSON)

Check = Callable[["GateCase"], Observation | None]
#: A row takes the first of these states that one of its checks has.
_WORST: Final = (
    RowState.FAILED,
    RowState.UNKNOWN,
    RowState.NOT_LOOKED_AT,
    RowState.PERSON,
    RowState.PASSED,
)


class NotAskedError(Exception):
    """Raised if a check needs GitHub, and the user wanted no requests (`--offline`)."""


@dataclass
class GateCase:
    """A patch to judge, with its upstream's rules, its text, and GitHub."""

    queue: Queue
    patch: Patch
    rules: Rules
    #: GitHub's client, or why GitHub cannot be asked; None: the user wants no requests.
    github: GitHub | GitHubError | None
    now: datetime
    #: The text of the pull request, if the command has made the text already.
    text: Body | None = None
    asked: bool = False
    #: The time of the oldest answer of GitHub that a row uses.
    looked: datetime | None = None
    look: Look | None = None
    upstream: Repository | None = None
    #: The hint of the last GitHub error.
    hint: str = ""

    def ask(self, question: Callable[[GitHub], T]) -> T:
        """Return GitHub's answer to a question; after a GitHubError, raise without a request."""
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
            # After one wait in vain, do not wait for the other answers.
            self.github = error
            raise
        self.looked = min(self.looked or self.now, self.now)
        return answer

    def candidates(self) -> Look:
        """Return the search for possible duplicates, with the answers of `different`, once made."""
        self.asked = True
        if self.look is None:
            found = self.ask(
                lambda github: duplicates.recent_look(github, self.queue, self.name, self.now)
            )
            self.look = answered(found, self.patch.spec.contribution.different)
        self.looked = min(self.looked or self.look.time, self.look.time)
        return self.look

    @property
    def repository(self) -> Repository:
        """The upstream's repository; GitHub is asked once."""
        name, self.asked = self.patch.upstream.repository, True
        self.upstream = self.upstream or self.ask(lambda it: it.repository(name).complete())
        return self.upstream

    def ending(self, reference: str) -> Landing | None:
        """Return how a pull request ended; None: still open."""
        return self.ask(lambda github: ending_of(github, reference)[1])

    @cached_property
    def publication(self) -> Publication:
        """The patch's published state, as its journal tells."""
        journal = PublicationJournal(self.queue)
        return journal.publication(self.patch.name, digest=self.patch.digest)

    @cached_property
    def body(self) -> Body | ContribbotError:
        """The text of the pull request, or the error that prevents the text."""
        try:
            return self.text or make_body(self.queue, self.patch.name)
        except ContribbotError as error:
            return error

    def __post_init__(self) -> None:
        #: The commands for the patch that several next steps name.
        self.name = self.patch.name
        self.verify, self.edit = (f"contribbot {verb} {self.name}" for verb in ("verify", "edit"))
        self.retire = f"contribbot queue retire {self.name}"
        #: The files that the patch adds or changes; its commits; their number in words.
        touched = touched_files(self.patch.files)
        self.paths = tuple(dict.fromkeys(file.path for file in touched if not file.removed))
        self.mails = {file.name: read_mail(file) for file in self.patch.files}
        self.commits = "the commit" if len(self.mails) == 1 else f"all {len(self.mails)} commits"


def check_duplicates(case: GateCase) -> Observation:
    """Check that patch.toml's `different` answers each open or merged possible duplicate."""
    if pull := case.patch.spec.pull:
        then = f"contribbot body {case.name} --comment"
        return failed("somebody-elses", f"it is {pull}, somebody else's", then)
    look = case.candidates()
    found = f"{look.seen} found in {look.days} days, {look.looked_into} of them looked into"
    live = [candidate for candidate in look.candidates if candidate.state != "closed"]
    if not live:
        return passed("no-duplicate", f"none: {found}")
    if not (open_ := [candidate.reference for candidate in live if not candidate.answer]):
        return passed("answered", f"each of {len(live)} is answered in [contribution]: {found}")
    seen = f"{len(open_)} without an answer: {first_of(open_)}: {found}"
    return failed("duplicates", seen, _different(case, open_[0]))


def _different(case: GateCase, reference: str) -> str:
    return f'contribbot gate {case.name} --different {reference}="why this one is different"'


def check_turned_down(case: GateCase) -> Observation | None:
    """Check that patch.toml's `different` answers each closed, unmerged possible duplicate."""
    if case.patch.spec.pull:
        return None
    closed = [each for each in case.candidates().candidates if each.state == "closed"]
    if not closed:
        return passed("not-turned-down", "none was closed without being merged, of any age")
    if not (open_ := [candidate for candidate in closed if not candidate.answer]):
        seen = f"each of {len(closed)} is answered in [contribution]"
        return passed("turned-down-answered", seen)
    first, some = open_[0], first_of([candidate.reference for candidate in open_])
    seen = f"{len(open_)} closed without being merged: {some}"
    if first.last_word:
        seen += f"; a maintainer's last word on {first.reference}: {first.last_word}"
    code = "turned-down" if first.last_word else "closed-unsaid"
    return failed(code, seen, _different(case, first.reference))


def answered(look: Look, different: Mapping[str, str]) -> Look:
    """Return a search with the reasons in `different`, without too short reasons."""
    reasons = {name.lower(): why for name, why in different.items() if _is_reason(why)}
    found = (
        each.model_copy(update={"answer": reasons.get(each.reference.lower(), "")})
        for each in look.candidates
    )
    return look.model_copy(update={"candidates": tuple(found)})


def _is_reason(why: str) -> bool:
    return len({word.lower() for word in re.findall(r"[^\W\d_]{2,}", why)}) >= _WORDS


def read_option(text: str) -> tuple[str, str]:
    """Return the reference and the reason of an option's value `REF=WHY`."""
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
    with transaction(queue.folder, f"gate {name} --different") as changes:
        queue.require(name)
        changes.edit(path, lambda text: toml_edit.set_different(text, reasons))


def check_superseded(case: GateCase) -> Observation:
    """Check that the upstream lacks the change, as far as the queue and GitHub tell."""
    spec, then = case.patch.spec, f"propose it nowhere: {case.retire}; or correct patch.toml"
    if found := superseded(case.queue, case.name):
        return failed("superseded", found.words, then)
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
                remember_superseded(case.queue, {case.name: found})
                return failed("superseded", found.words, then)
        else:
            state = due(
                condition, case.patch.pin.tag, frozenset(), releases=case.patch.upstream.release
            )
            come, why = state.come, f"{state.condition}: {state.why}"
        unsure = unsure or come is None
        seen.append(why)
    if not seen:
        return passed("no-expiry", "nothing says so, and no `expires_when` is stated")
    if unsure:
        return for_person("maybe-expired", "; ".join(seen), f"if that has come: {then}")
    return passed("not-expired", "; ".join(seen))


def check_title(case: GateCase) -> Observation:
    """Check that the title matches the upstream's pattern."""
    title, pattern = case.patch.spec.title, case.rules.title
    usual = case.rules.title_hint
    if not pattern:
        seen = f"{title} (the upstream has no pattern; usual: {usual or 'any'})"
        return passed("any-title", seen)
    if re.search(pattern, title):
        return passed("title", title)
    seen = f"{title}: not in the form {usual or pattern}"
    return failed("other-title", seen, "change `title` in patch.toml")


def _no_person(name: str, email: str) -> str:
    """Return why a name or address is not a person's; empty: both may be a person's."""
    local, _, domain = email.casefold().rpartition("@")
    robot = local.replace("-", "") in _ROBOTS or "[bot]" in local
    if not local or "." not in domain or domain.rpartition(".")[2] in _NOWHERE:
        return f"{email} is no address"
    if robot or name.casefold().endswith("[bot]"):
        return f"{email} is a program's"
    return f"{name} is an AI" if _AI.fullmatch(name.strip()) else ""


def check_sign_off(case: GateCase) -> Observation | None:
    """Check that each commit is signed off by its author, and the author is a person."""
    if not (case.rules.sign_off or case.patch.upstream.commits.sign_off):
        return None

    def signed(mail: Mail) -> bool:
        names = {
            (name.casefold(), email.casefold()) for name, email in _SIGNED.findall(mail.message)
        }
        return (mail.name.casefold(), mail.email.casefold()) in names

    sign = f"{case.edit}; git rebase --signoff"
    for name, mail in case.mails.items():
        if why := _no_person(mail.name, mail.email):
            seen = f"signed off by nobody: {why}"
            return failed("signed-by-no-person", seen, f"{sign} --reset-author")
        if not signed(mail):
            seen = f"no Signed-off-by of the author {mail.name} <{mail.email}> in {name}"
            return failed("not-signed", seen, sign)
    return passed("signed", f"signed off by the author in {case.commits}")


def check_ai_trailer(case: GateCase) -> Observation | None:
    """Check that, if AI was used, each commit has the trailer that the upstream asks for."""
    pattern, contribution = case.rules.ai.trailer, case.patch.spec.contribution
    if not pattern or (contribution.ai and not ai_used(contribution)):
        return None
    if not contribution.ai:
        seen = f"a trailer waits for how AI was used: `ai` in {_TABLE}"
        return for_person("trailer-waits", seen)
    shown: list[str] = []
    env = git_environment({"GIT_CEILING_DIRECTORIES": "/"})
    for name, mail in case.mails.items():
        command = ["git", "interpret-trailers", "--parse", "--no-divider"]
        done = process.run(command, env=env, stdin=mail.message.encode())
        trailers = done.stdout.decode("utf-8", "replace").splitlines()
        matching = [trailer for trailer in trailers if re.search(pattern, trailer)]
        if not matching:
            then = f"add one such as `Assisted-by: NAME`: {case.edit}"
            return failed("no-trailer", f"AI was used, and no trailer says so in {name}", then)
        shown += matching
    # The reader of the row sees whether a trailer names an AI or a person.
    return passed("trailers", f"in {case.commits}: {'; '.join(dict.fromkeys(shown))}")


def check_issue_named(case: GateCase) -> Observation | None:
    """Check that patch.toml names an issue, if the upstream needs an issue."""
    if case.patch.spec.contribution.issue or case.rules.issue != "required":
        return None
    then = f"open one (`contribbot body {case.name}` has the text) or find one, and name it as"
    seen = "the upstream wants a linked issue, and none is named"
    return failed("no-issue", seen, f"{then} `issue` in {_TABLE}")


def check_issue(case: GateCase) -> Observation | None:
    """Check that the named issue is open, and is no pull request."""
    named, correct = case.patch.spec.contribution.issue, f"correct `issue` in {_TABLE}"
    if not named:
        return None
    try:
        issue = case.ask(lambda github: github.issue(named).complete())
    except (NotFoundError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.status != HTTPStatus.GONE:
            raise
        return failed("issue-absent", f"there is no {named}", correct)
    seen, now = f"{named} “{line_of(issue.title)}” is", f"{place_of(issue)}#{issue.number}"
    if now.lower() != named.lower():
        return failed("issue-moved", f"{named} is {line_of(now)} now", correct)
    if is_pull(issue):
        then = f"{correct}, or name it in `related`"
        return failed("issue-is-pull", f"{seen} a pull request", then)
    if issue.state == "closed":
        then = "read there why, and say in the text what is still wrong"
        return for_person("issue-closed", f"{seen} closed", then)
    return passed("issue-open", f"{seen} open")


def check_tests(case: GateCase) -> Observation | None:
    """Check that the patch adds or changes a file in the upstream's folders of tests."""
    if not case.rules.tests:
        return None
    below = tuple(f"{folder}/" for folder in case.rules.tests)
    if tests := [path for path in case.paths if path.startswith(below)]:
        return passed("tests", ", ".join(tests))
    seen = f"no file below {', '.join(case.rules.tests)} is touched"
    return failed("no-test", seen, f"bring a test that fails on the base: {case.edit}")


def check_text(case: GateCase) -> Observation | None:
    """Check that the text can be made, has all that the upstream wants, and is not too long."""
    body = case.body
    if unwritten := case.patch.spec.unwritten:
        seen = f"{', '.join(unwritten)} not written yet"
        return failed("unwritten", seen, "write it in patch.toml")
    if isinstance(body, NotProvedError):
        return None  # check_evidence says so
    if isinstance(body, ContribbotError):
        return failed("refused", body.message, body.hint)
    if wants := [want for want in body.wants if want is not Want.ISSUE]:
        seen = f"still to write: {'; '.join(want.words for want in wants)}"
        own = wants == [Want.WORDS]
        make = partial(for_person, first=True) if own else failed
        return make("own-words" if own else "wants", seen, "" if own else f"write it in {_TABLE}")
    for words, most, place in (
        (body.overview_words, OVERVIEW_WORDS, "in the overview"),
        (body.visible_words, VISIBLE_WORDS, "seen at once"),
        (body.words, WORDS, "in all, folds included"),
    ):
        if words > most:
            then = "say less in problem, root_cause and solution, or in summary and claims of"
            return failed("long", f"{words} words {place}, and {most} may be", f"{then} {_TABLE}")
    seen = f"{body.words} words of {WORDS}, {body.visible_words} seen at once"
    return passed("text", f"{seen}, template {body.template}")


def check_evidence(case: GateCase) -> Observation | None:
    """Check that fresh evidence proves the patch."""
    body = case.body
    if isinstance(body, Body):
        files = ", ".join(record.file for record in body.records)
        return passed("evidence", f"fresh: {files}")
    if isinstance(body, NotProvedError) and not isinstance(body, UnwrittenError):
        return failed("refused", body.message, body.hint)
    return None


def check_targets(case: GateCase) -> Observation | None:
    """Check that fresh evidence proves each target that the upstream requires."""
    required = case.rules.require
    if not required:
        return None
    stated = asked(case.patch.spec)
    if missing := [target for target in required if target not in stated]:
        seen = f"required, and the patch states nothing for it: {', '.join(missing)}"
        return failed("not-stated", seen, "state a check for it in patch.toml")
    known = {row.target: row.evidence for row in target_states(case.queue, case.name)}
    if unproved := [f"{it} ({known[it]})" for it in required if known[it] != "fresh"]:
        seen, then = ", ".join(unproved), f"{case.verify}, on a machine that has it"
        return failed("required-open", f"required, and not proved: {seen}", then)
    return passed("required", f"required and proved: {', '.join(required)}")


def check_toolchain(case: GateCase) -> Observation | None:
    """Check that kernels were compiled with the release of Triton that the pin states."""
    pin = case.patch.pin
    if not pin.toolchains or isinstance(case.body, ContribbotError):
        return None
    if not (others := other_tritons(gather(case.queue, case.name))):
        return None
    stated = pin.toolchains[0]
    seen = f"compiled with {', '.join(others)}, and {pin.title} ships triton {stated.triton}"
    read = f"{stated.source}, read {stated.date}"
    return failed("other-triton", f"{seen} ({read})", case.verify)


def check_not_run(case: GateCase) -> Observation:
    """Check that a check ran on each target, or that the text names the targets without a run."""
    body = case.body
    if isinstance(body, ContribbotError):
        return for_person("no-text-yet", _NOT_KNOWN)
    if silent := [target for target in body.not_run if target not in body.text]:
        then = "let the template have `not_run`; see docs/upstreams.md"
        return failed("silent", f"the text does not say: not run on {', '.join(silent)}", then)
    if not body.not_run:
        return passed("run", "something ran on each target that the patch is for")
    then = f"the text says so; on such a machine: {case.verify}; or let the upstream's CI do it"
    return for_person("not-run", f"not run: {', '.join(body.not_run)}", then)


def check_speed(case: GateCase) -> Observation | None:
    """Check that a promised speed was measured on the hardware that the title names."""
    title = case.patch.spec.title
    if not (case.rules.speed and re.search(case.rules.speed, title)):
        return None
    if isinstance(case.body, ContribbotError):
        return for_person("no-text-yet", _NOT_KNOWN)
    amd = bool(_FOR_AMD.search(title))
    timed = case.body.timed
    if matching := [target for target in timed if target.startswith("gfx") or not amd]:
        return passed("timed", f"measured on {', '.join(matching)}")
    place = "an AMD GPU" if amd else "a GPU"
    seen = f"the title promises speed on {place}: measured on {', '.join(timed) or 'no GPU'}"
    then = f"a [[bench]] there (docs/bench.md): {case.verify}; or another title"
    return failed("not-timed", seen, then)


def check_end_to_end(case: GateCase) -> Observation | None:
    """Check that `model_evaluation` describes a model's run, if the upstream asks for a run."""
    title = case.patch.spec.title
    if not (case.rules.end_to_end and re.search(case.rules.end_to_end, title)):
        return None
    if said := case.patch.spec.contribution.model_evaluation:
        return passed("end-to-end", said)
    seen = "nothing says that it was run end to end, or why it was not"
    then = f"run it, or write `not run: why`, as `model_evaluation` in {_TABLE}"
    return failed("no-end-to-end", seen, then)


def check_size(case: GateCase) -> Observation:
    """Check that the change is small enough to be read at once."""
    lines = changed_lines(case.patch, case.rules)
    seen = f"{lines} changed lines outside tests"
    if lines <= _LINES:
        return passed("small", seen)
    then = f"split it: contribbot queue split {case.name} NEW PATH… (docs/queue.md)"
    return for_person("large", f"{seen}; a reviewer reads {_LINES} at once", then)


def check_style(case: GateCase) -> Observation | None:
    """Check that the style stage found nothing that a reviewer would mind."""
    if isinstance(case.body, ContribbotError) or not case.body.minded:
        return None
    seen = f"a reviewer would mind {first_of(case.body.minded)}"
    return failed("style", seen, f"mend it: {case.edit}")


def check_template(case: GateCase) -> Observation:
    """Check that the stored template has the headings of the upstream's live template."""
    ours, live = template_of(case.queue, case.rules), case.rules.body.live
    where, branch = case.patch.upstream.repository, case.repository.default_branch
    try:
        file = case.ask(lambda github: github.repository(where).get_contents(live, branch))
    except NotFoundError:
        seen = f"{where} has no {live} any more"
        return for_person("no-template", seen, "see where its template is now")
    text = "" if isinstance(file, list) else file_content(file).decode("utf-8", "replace")
    if changed := compare_with_live(ours, text):
        then = "see whether the text still answers what it asks"
        return for_person("template-changed", "; ".join(changed), then)
    return passed("template", f"{live} has the headings of {ours.version}")


def check_docs(case: GateCase) -> Observation:
    """Check that `docs` names a documented path or says that no documentation is needed."""
    docs = case.patch.spec.contribution.docs.strip()
    if not docs:
        then = f"name the paths that document it, or `none needed: why`, as `docs` in {_TABLE}"
        return for_person("no-docs", "nothing says whether users see a change", then)
    if not case.patch.spec.contribution.documents:
        return for_person("no-docs-needed", docs)
    if paths := [path for path in case.paths if path in docs]:
        return passed("docs", ", ".join(paths))
    seen = f"`docs` names no file that the patch touches: {docs}"
    return failed("docs-absent", seen, f"bring it, or write `none needed: why`, in {_TABLE}")


def check_person(case: GateCase) -> Observation:
    """Check that patch.toml names a person, and a fresh record of that person's run."""
    who = case.patch.spec.contribution.person
    if who is None:
        then = f"a person does it: contribbot attest {case.name}"
        return failed("nobody", "nobody has read it and run it", then)
    if why := _no_person(who.name, who.email):
        return failed("no-person", why, f"name who stands for it, as `person` in {_TABLE}")
    if isinstance(case.body, ContribbotError):
        seen = f"{who.name}; whether {who.record} holds is not known before there is a text"
        return for_person("person-waits", seen)
    if all(record.file != who.record for record in case.body.records):
        seen = f"{who.record} is no fresh record of {case.name}"
        return failed("person-not-fresh", seen, case.verify)
    return passed("stands", f"{who.name} <{who.email}> ran {who.ran}: {who.record}")


def check_by_hand(case: GateCase) -> Observation:
    """Return an observation that lists a person's steps: before the push, for CI, and labels."""
    rules = case.rules
    labels = dict.fromkeys((*rules.labels, *case.patch.spec.contribution.labels, rules.label_hint))
    named = "; ".join(filter(None, labels))
    steps = (
        *rules.by_hand,
        *([f"run {rules.lint} in a checkout"] if rules.lint else ()),
        f"CI: {' '.join(rules.ci.start.split())}",
        *([f"labels, once it is open: {named}"] if named else ()),
    )
    return for_person("by-hand", "; ".join(steps))


def check_stack(case: GateCase) -> Observation | None:
    """Check that each patch on which this patch depends has a pull request."""
    if not case.patch.spec.depends_on:
        return None
    try:
        waits = check_below(case.queue, PublicationJournal(case.queue), case.name)
    except MissingBelowError as error:
        return for_person("below-first", error.message, error.hint, first=True)
    except OpeningError as error:
        return failed("refused", error.message, error.hint)
    if pulls := ", ".join(f"{below} ({pull})" for below, pull in waits.items()):
        return passed("below-waits", f"waits for {pulls}")
    return passed("below-merged", "all that it depends on is merged")


def check_upstream(case: GateCase) -> Observation:
    """Check that the upstream takes pull requests and still has the stated name."""
    upstream, stated = case.repository, case.patch.upstream.repository
    name = upstream.full_name
    if why := refuses_pulls(upstream):
        return failed("no-pulls", f"{name} {why}", "look on its page for where it takes changes")
    if name.lower() != stated.lower():
        then = "correct upstreams/NAME.toml"
        return for_person("renamed", f"{stated} is called {name} now", then)
    return passed("upstream", f"{name}, branch {upstream.default_branch}")


def check_open_prs(case: GateCase) -> Observation | None:
    """Check that the author has no more open pull requests than the upstream allows."""
    cap, repository = case.rules.open_prs, case.patch.upstream.repository
    if not cap:
        return None
    login = case.ask(lambda github: github.me)
    if may_push(case.repository):
        return passed("write-access", f"no limit for {login}, who has write access")
    query = f"repo:{repository} is:pr is:open author:{login}"
    found, known = case.ask(lambda github: github.search(query, 1)), case.publication
    # The count includes this patch's pull request if it is open already.
    room = cap if known.reference and not known.ended else cap - 1
    seen = f"{login} has {found.total} open, {cap} at most"
    if found.total > room:
        return failed("too-many-open", seen, "finish one of them first")
    if not found.incomplete:
        return passed("few-open", seen)
    seen, then = f"{seen}, and GitHub did not finish the search", "run it again in some minutes"
    return Observation(RowState.UNKNOWN, "search-cut", seen, then)


def check_own_pr(case: GateCase) -> Observation:
    """Check that the patch's pull request is open and not behind, or that open-pr can open it."""
    known, pull = case.publication, case.publication.reference
    if not pull:
        return passed("none-opened", "none was opened yet")
    # The journal's state of the pull request came from GitHub, too.
    case.asked = True
    try:
        landing = case.ending(pull)
    except NotAskedError:
        if known.state != "merged":
            raise
        return failed("landed", f"{pull}: merged", case.retire)
    if landing is None:
        return _behind(case)
    branch, seen = branch_of(case.patch), f"{pull}: {landing.words}"
    if landing.upstream:
        return failed("landed", seen, case.retire)
    if branch != known.branch:
        return passed("reopened", f"{seen}; open-pr opens another from {branch}")
    then = f"read there why; reopen it, or name another `branch` in {_TABLE}"
    return failed("closed", seen, then)


def _behind(case: GateCase) -> Observation:
    """Return an observation on how far the pull request's branch is behind its base."""
    known, repository = case.publication, case.patch.upstream.repository
    base, then = case.repository.default_branch, f"contribbot open-pr {case.name}"
    head = f"{known.fork.partition('/')[0]}:{known.branch}"
    try:
        comparison = case.ask(lambda github: github.compare(repository, base, head))
    except NotFoundError:
        seen = f"{known.fork} has no branch {known.branch}"
        return failed("no-branch", seen, then, mended=True)
    if not comparison.behind_by:
        return passed("current", f"{known.reference} is open, and {head} has all of {base}")
    seen, then = f"{head} is {comparison.behind_by} commits behind {base}", f"{then} --up-to-date"
    if case.rules.ci.current:
        return failed("too-far-behind", seen, then, mended=True)
    return for_person("behind", seen, then, mended=True)


#: The rules in the order of judging: duplicates first, because the text tells of that search.
RULES: Final[Mapping[str, tuple[Check, ...]]] = {
    "duplicates": (check_duplicates,),
    "turned-down": (check_turned_down,),
    "superseded": (check_superseded,),
    "title": (check_title,),
    "commits": (check_sign_off, check_ai_trailer),
    "issue": (check_issue_named, check_issue),
    "tests": (check_tests,),
    "text": (check_text,),
    "evidence": (check_evidence, check_targets, check_toolchain),
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
    queue: Queue,
    name: str,
    github: GitHub | GitHubError | None,
    *,
    now: datetime | None = None,
    body: Body | None = None,
) -> Gate:
    """Return the gate of a patch: the result of every rule of its upstream."""
    patch = queue.patch(name)
    if not patch.files:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
    moment = now or datetime.now(UTC).replace(microsecond=0)
    rules = rules_of(queue, patch.spec.upstream)
    case = GateCase(queue, patch, rules, github, moment, text=body)
    rows = tuple(judge_rule(rule, case) for rule in RULES)
    return Gate(
        patch=name,
        upstream=patch.upstream.name,
        repository=patch.upstream.repository,
        rows=rows,
        candidates=case.look.candidates if case.look else (),
        limits=case.look.limits if case.look else (),
        looked=case.looked,
        body=case.body if isinstance(case.body, Body) else None,
    )


def judge_rule(rule: str, case: GateCase) -> Row:
    """Return a rule's row, made from the worst observations of the rule's checks."""
    case.asked = False
    found = [each for check in RULES[rule] if (each := _observe(check, case)) is not None]
    found = found or [passed("not-asked-for", "not asked for")]
    worst = next(state for state in _WORST if any(each.state is state for each in found))
    told = [each for each in found if each.state is worst]
    return Row(
        rule=rule,
        state=worst,
        codes=tuple(dict.fromkeys(each.code for each in told)),
        github=case.asked,
        seen=line_of("; ".join(dict.fromkeys(each.seen for each in told))) or "nothing",
        next=line_of("; ".join(each.next for each in told if each.next)),
        first=any(each.first for each in told),
        mended_by_opening=all(each.mended for each in told),
    )


def _observe(check: Check, case: GateCase) -> Observation | None:
    """Return a check's observation, or the observation that GitHub gave no answer."""
    guard: AbstractContextManager[None] = nullcontext()
    if case.github is not None and not isinstance(case.github, GitHubError):
        from contribbot.github.client import shaped  # noqa: PLC0415  start-up time

        guard = shaped()
    try:
        with guard:
            return check(case)
    except NotAskedError:
        return Observation(RowState.NOT_LOOKED_AT, "offline", "GitHub was not asked")
    except GitHubError as error:
        # Do not repeat the previous error's hint.
        hint = "" if case.hint == error.hint else error.hint
        case.hint = error.hint
        return Observation(RowState.UNKNOWN, "no-answer", error.message, hint)
