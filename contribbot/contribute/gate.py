"""The gate: judges a patch by each rule of its upstream, one row for each rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
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
from contribbot.contribute.model import Body, Candidate, Gate, Look, Row, RowState, Rules, Want
from contribbot.contribute.observations import (
    FIRST,
    MENDED_BY_OPENING,
    Fact,
    NoPerson,
    Observation,
    RuleCode,
)
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
    #: The hint of the last GitHub error.
    hint: str = ""

    def ask(self, question: Callable[[GitHub], T]) -> T:
        """Ask GitHub; after the first failure no more requests are sent."""
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
        """Return the search for pull requests that may be the same work; search only once."""
        self.asked = True
        self.look = self.look or self.ask(
            lambda github: duplicates.recent_look(github, self.queue, self.patch.name, self.now)
        )
        self.looked = min(self.looked or self.look.time, self.look.time)
        return self.look

    @property
    def repository(self) -> Repository:
        """The upstream's repository; GitHub is asked once."""
        self.asked = True
        return self._repository

    @cached_property
    def _repository(self) -> Repository:
        name = self.patch.upstream.repository
        return self.ask(lambda github: github.repository(name).complete())

    def ending(self, reference: str) -> Landing | None:
        """Return how a pull request ended; None: still open."""
        repository, _, number = reference.partition("#")
        return self.ask(lambda github: ending_of(github, repository, int(number))[1])

    @cached_property
    def publication(self) -> Publication:
        """The patch's published state, as its journal tells."""
        return PublicationJournal(self.queue).publication(self.patch.name)

    @cached_property
    def body(self) -> Body | ContribbotError:
        """The text of the pull request, or the error that prevents the text."""
        try:
            return self.text or make_body(self.queue, self.patch.name)
        except ContribbotError as error:
            return error

    def __post_init__(self) -> None:
        #: The files that the patch adds or changes; its commits; their number in words.
        touched = touched_files(self.patch.files)
        self.paths = tuple(dict.fromkeys(file.path for file in touched if not file.removed))
        self.mails = {file.name: read_mail(file) for file in self.patch.files}
        self.commits = "the commit" if len(self.mails) == 1 else f"all {len(self.mails)} commits"


def check_duplicates(case: GateCase) -> Observation:
    """Check that no open or merged pull request is the same work, or `different` says why."""
    if pull := case.patch.spec.pull:
        return RuleCode.SOMEBODY_ELSES(pull=pull)
    look = case.candidates()
    looked: dict[str, Fact] = {
        "found": look.seen,
        "days": look.days,
        "looked_into": look.looked_into,
    }
    live = [candidate for candidate in answered(case) if candidate.state != "closed"]
    if not live:
        return RuleCode.NO_DUPLICATE(**looked)
    if not (open_ := [candidate.reference for candidate in live if not candidate.answer]):
        return RuleCode.ANSWERED(count=len(live), **looked)
    return RuleCode.DUPLICATES(count=len(open_), some=first_of(open_), first=open_[0], **looked)


def check_turned_down(case: GateCase) -> Observation | None:
    """Check that no closed pull request made the same change, or `different` says why."""
    if case.patch.spec.pull:
        return None
    case.candidates()
    closed = [candidate for candidate in answered(case) if candidate.state == "closed"]
    if not closed:
        return RuleCode.NOT_TURNED_DOWN()
    if not (open_ := [candidate for candidate in closed if not candidate.answer]):
        return RuleCode.TURNED_DOWN_ANSWERED(count=len(closed))
    first, some = open_[0], first_of([candidate.reference for candidate in open_])
    code = RuleCode.TURNED_DOWN if first.last_word else RuleCode.CLOSED_UNSAID
    return code(count=len(open_), some=some, first=first.reference, word=first.last_word)


def answered(case: GateCase) -> tuple[Candidate, ...]:
    """Return the candidates with the reasons in `different`; too short a reason is left out."""
    different = case.patch.spec.contribution.different
    reasons = {name.lower(): why for name, why in different.items() if _is_reason(why)}
    return tuple(
        candidate.model_copy(update={"answer": reasons.get(candidate.reference.lower(), "")})
        for candidate in (case.look.candidates if case.look else ())
    )


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
        changes.commit()


def check_superseded(case: GateCase) -> Observation:
    """Check that the upstream lacks the change, as far as the queue and GitHub tell."""
    spec = case.patch.spec
    if found := superseded(case.queue, case.patch.name):
        return RuleCode.SUPERSEDED(why=found.words)
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
                remember_superseded(case.queue, {case.patch.name: found})
                return RuleCode.SUPERSEDED(why=found.words)
        else:
            state = due(
                condition, case.patch.pin.tag, frozenset(), releases=case.patch.upstream.release
            )
            come, why = state.come, f"{state.condition}: {state.why}"
        unsure = unsure or come is None
        seen.append(why)
    if not seen:
        return RuleCode.NO_EXPIRY()
    code = RuleCode.MAYBE_EXPIRED if unsure else RuleCode.NOT_EXPIRED
    return code(conditions="; ".join(seen))


def check_title(case: GateCase) -> Observation:
    """Check that the title matches the upstream's pattern."""
    title, pattern = case.patch.spec.title, case.rules.title
    usual = case.rules.title_hint
    if not pattern:
        return RuleCode.ANY_TITLE(title=title, usual=usual or "any")
    code = RuleCode.TITLE if re.search(pattern, title) else RuleCode.OTHER_TITLE
    return code(title=title, usual=usual or pattern)


def _no_person(name: str, email: str) -> NoPerson | None:
    """Return why a name or address is not a person's; None: both may be a person's."""
    local, _, domain = email.casefold().rpartition("@")
    if not local or "." not in domain or domain.rpartition(".")[2] in _NOWHERE:
        return NoPerson.NO_ADDRESS
    if local.replace("-", "") in _ROBOTS or "[bot]" in local or name.casefold().endswith("[bot]"):
        return NoPerson.PROGRAM
    return NoPerson.AI if _AI.fullmatch(name.strip()) else None


def check_sign_off(case: GateCase) -> Observation | None:
    """Check that each commit is signed off by its author, and the author is a person."""
    if not (case.rules.sign_off or case.patch.upstream.commits.sign_off):
        return None

    def signed(mail: Mail) -> bool:
        names = {
            (name.casefold(), email.casefold()) for name, email in _SIGNED.findall(mail.message)
        }
        return (mail.name.casefold(), mail.email.casefold()) in names

    for name, mail in case.mails.items():
        if why := _no_person(mail.name, mail.email):
            return RuleCode.SIGNED_BY_NO_PERSON(why=why.words(mail.name, mail.email))
        if not signed(mail):
            return RuleCode.NOT_SIGNED(author=f"{mail.name} <{mail.email}>", file=name)
    return RuleCode.SIGNED(commits=case.commits)


def check_ai_trailer(case: GateCase) -> Observation | None:
    """Check that, if AI was used, each commit has the trailer that the upstream asks for."""
    pattern, contribution = case.rules.ai.trailer, case.patch.spec.contribution
    if not pattern or (contribution.ai and not ai_used(contribution)):
        return None
    if not contribution.ai:
        return RuleCode.TRAILER_WAITS()
    shown: list[str] = []
    env = git_environment({"GIT_CEILING_DIRECTORIES": "/"})
    for name, mail in case.mails.items():
        command = ["git", "interpret-trailers", "--parse", "--no-divider"]
        done = process.run(command, env=env, stdin=mail.message.encode())
        trailers = done.stdout.decode("utf-8", "replace").splitlines()
        matching = [trailer for trailer in trailers if re.search(pattern, trailer)]
        if not matching:
            return RuleCode.NO_TRAILER(file=name)
        shown += matching
    # The reader of the row sees whether a trailer names an AI or a person.
    return RuleCode.TRAILERS(commits=case.commits, trailers="; ".join(dict.fromkeys(shown)))


def check_issue(case: GateCase) -> Observation | None:
    """Check that an open issue is linked, if the upstream needs an issue."""
    named = case.patch.spec.contribution.issue
    if not named:
        return RuleCode.NO_ISSUE() if case.rules.issue == "required" else None
    repository, _, number = named.partition("#")
    try:
        issue = case.ask(lambda github: github.issue(repository, int(number)).complete())
    except (NotFoundError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.status != HTTPStatus.GONE:
            raise
        return RuleCode.ISSUE_ABSENT(issue=named)
    title, place = line_of(issue.title), place_of(issue)
    if place.lower() != repository.lower() or issue.number != int(number):
        return RuleCode.ISSUE_MOVED(issue=named, place=line_of(f"{place}#{issue.number}"))
    if is_pull(issue):
        return RuleCode.ISSUE_IS_PULL(issue=named, title=title)
    code = RuleCode.ISSUE_CLOSED if issue.state == "closed" else RuleCode.ISSUE_OPEN
    return code(issue=named, title=title)


def check_tests(case: GateCase) -> Observation | None:
    """Check that the patch adds or changes a file in the upstream's folders of tests."""
    if not case.rules.tests:
        return None
    below = tuple(f"{folder}/" for folder in case.rules.tests)
    if tests := tuple(path for path in case.paths if path.startswith(below)):
        return RuleCode.TESTS(tests=tests)
    return RuleCode.NO_TEST(folders=case.rules.tests)


def check_text(case: GateCase) -> Observation | None:
    """Check that the text can be made, has all that the upstream wants, and is not too long."""
    body = case.body
    if unwritten := case.patch.spec.unwritten:
        return RuleCode.UNWRITTEN(keys=tuple(unwritten))
    if isinstance(body, NotProvedError):
        return None  # check_evidence says so
    if isinstance(body, ContribbotError):
        return RuleCode.REFUSED(message=body.message, hint=body.hint)
    wants = [want for want in body.wants if want is not Want.ISSUE]
    if wants:
        code = RuleCode.OWN_WORDS if wants == [Want.WORDS] else RuleCode.WANTS
        return code(wants="; ".join(want.words for want in wants))
    for words, most, place in (
        (body.overview_words, OVERVIEW_WORDS, "in the overview"),
        (body.visible_words, VISIBLE_WORDS, "seen at once"),
        (body.words, WORDS, "in all, folds included"),
    ):
        if words > most:
            return RuleCode.LONG(words=words, most=most, place=place)
    return RuleCode.TEXT(
        words=body.words,
        most=WORDS,
        visible=body.visible_words,
        template=f"template {body.template}",
    )


def check_evidence(case: GateCase) -> Observation | None:
    """Check that fresh evidence proves the patch."""
    body = case.body
    if isinstance(body, Body):
        return RuleCode.EVIDENCE(files=tuple(record.file for record in body.records))
    if isinstance(body, NotProvedError) and not isinstance(body, UnwrittenError):
        return RuleCode.REFUSED(message=body.message, hint=body.hint)
    return None


def check_targets(case: GateCase) -> Observation | None:
    """Check that fresh evidence proves each target that the upstream requires."""
    name, required = case.patch.name, case.rules.require
    if not required:
        return None
    stated = asked(case.patch.spec)
    if missing := tuple(target for target in required if target not in stated):
        return RuleCode.NOT_STATED(targets=missing)
    known = {row.target: row.evidence for row in target_states(case.queue, name)}
    if unproved := tuple(f"{it} ({known[it]})" for it in required if known[it] != "fresh"):
        return RuleCode.REQUIRED_OPEN(targets=unproved)
    return RuleCode.REQUIRED(targets=required)


def check_toolchain(case: GateCase) -> Observation | None:
    """Check that kernels were compiled with the release of Triton that the pin states."""
    pin = case.patch.pin
    if not pin.toolchains or isinstance(case.body, ContribbotError):
        return None
    if not (others := other_tritons(gather(case.queue, case.patch.name))):
        return None
    stated = pin.toolchains[0]
    return RuleCode.OTHER_TRITON(
        others=others, pin=pin.title, triton=stated.triton, source=stated.source, date=stated.date
    )


def check_not_run(case: GateCase) -> Observation:
    """Check that the text names each target on which nothing ran; a person judges the rest."""
    body = case.body
    if isinstance(body, ContribbotError):
        return RuleCode.NO_TEXT_YET()
    if silent := tuple(target for target in body.not_run if target not in body.text):
        return RuleCode.SILENT(targets=silent)
    return RuleCode.NOT_RUN(targets=body.not_run) if body.not_run else RuleCode.RUN()


def check_speed(case: GateCase) -> Observation | None:
    """Check that a promised speed was measured on the hardware that the title names."""
    title = case.patch.spec.title
    if not (case.rules.speed and re.search(case.rules.speed, title)):
        return None
    if isinstance(case.body, ContribbotError):
        return RuleCode.NO_TEXT_YET()
    amd = bool(_FOR_AMD.search(title))
    timed = case.body.timed
    if matching := tuple(target for target in timed if target.startswith("gfx") or not amd):
        return RuleCode.TIMED(targets=matching)
    place = "an AMD GPU" if amd else "a GPU"
    return RuleCode.NOT_TIMED(place=place, targets=timed or "no GPU")


def check_end_to_end(case: GateCase) -> Observation | None:
    """Check that `model_evaluation` describes a run of a model, if the upstream asks for one."""
    title = case.patch.spec.title
    if not (case.rules.end_to_end and re.search(case.rules.end_to_end, title)):
        return None
    if said := case.patch.spec.contribution.model_evaluation:
        return RuleCode.END_TO_END(said=said)
    return RuleCode.NO_END_TO_END()


def check_size(case: GateCase) -> Observation:
    """Check that the change is small enough to be read at once."""
    lines = changed_lines(case.patch, case.rules)
    code = RuleCode.SMALL if lines <= _LINES else RuleCode.LARGE
    return code(lines=lines, most=_LINES)


def check_style(case: GateCase) -> Observation | None:
    """Check that the style stage found nothing that a reviewer would mind."""
    if isinstance(case.body, ContribbotError) or not case.body.minded:
        return None
    return RuleCode.STYLE(minded=first_of(case.body.minded))


def check_template(case: GateCase) -> Observation:
    """Check that our template has the headings of the upstream's live template."""
    ours, live = template_of(case.queue, case.rules), case.rules.body.live
    where, branch = case.patch.upstream.repository, case.repository.default_branch
    try:
        file = case.ask(lambda github: github.repository(where).get_contents(live, branch))
    except NotFoundError:
        return RuleCode.NO_TEMPLATE(repository=where, path=live)
    text = "" if isinstance(file, list) else file_content(file).decode("utf-8", "replace")
    changed = compare_with_live(ours, text)
    if changed:
        return RuleCode.TEMPLATE_CHANGED(changes="; ".join(changed))
    return RuleCode.TEMPLATE(path=live, version=ours.version)


def check_docs(case: GateCase) -> Observation:
    """Check that `docs` names a documented path or says that no documentation is needed."""
    docs = case.patch.spec.contribution.docs.strip()
    if not docs:
        return RuleCode.NO_DOCS()
    if not case.patch.spec.contribution.documents:
        return RuleCode.NO_DOCS_NEEDED(docs=docs)
    if paths := tuple(path for path in case.paths if path in docs):
        return RuleCode.DOCS(paths=paths)
    return RuleCode.DOCS_ABSENT(docs=docs)


def check_person(case: GateCase) -> Observation:
    """Check that patch.toml names a person, and a fresh record of that person's run."""
    who = case.patch.spec.contribution.person
    if who is None:
        return RuleCode.NOBODY()
    if why := _no_person(who.name, who.email):
        return RuleCode.NO_PERSON(why=why.words(who.name, who.email))
    if isinstance(case.body, ContribbotError):
        return RuleCode.PERSON_WAITS(name=who.name, record=who.record)
    if all(record.file != who.record for record in case.body.records):
        return RuleCode.PERSON_NOT_FRESH(record=who.record)
    return RuleCode.STANDS(name=who.name, email=who.email, ran=who.ran, record=who.record)


def check_by_hand(case: GateCase) -> Observation:
    """Return the steps for a person alone: before the push, for CI, and labels."""
    rules = case.rules
    labels = dict.fromkeys((*rules.labels, *case.patch.spec.contribution.labels, rules.label_hint))
    named = "; ".join(filter(None, labels))
    steps = (
        *rules.by_hand,
        *([f"run {rules.lint} in a checkout"] if rules.lint else ()),
        f"CI: {' '.join(rules.ci.start.split())}",
        *([f"labels, once it is open: {named}"] if named else ()),
    )
    return RuleCode.BY_HAND(steps="; ".join(steps))


def check_stack(case: GateCase) -> Observation | None:
    """Check that each patch on which this patch depends has a pull request."""
    if not case.patch.spec.depends_on:
        return None
    try:
        journal = PublicationJournal(case.queue)
        waits = check_below(case.queue, journal, case.patch.name)
    except MissingBelowError as error:
        return RuleCode.BELOW_FIRST(message=error.message, hint=error.hint)
    except OpeningError as error:
        return RuleCode.REFUSED(message=error.message, hint=error.hint)
    pulls = tuple(f"{below} ({pull})" for below, pull in waits.items())
    return RuleCode.BELOW_WAITS(pulls=pulls) if pulls else RuleCode.BELOW_MERGED()


def check_upstream(case: GateCase) -> Observation:
    """Check that the upstream takes pull requests and still has the stated name."""
    upstream, stated = case.repository, case.patch.upstream.repository
    why = refuses_pulls(upstream)
    if why:
        return RuleCode.NO_PULLS(repository=upstream.full_name, why=why)
    if upstream.full_name.lower() != stated.lower():
        return RuleCode.RENAMED(stated=stated, repository=upstream.full_name)
    return RuleCode.UPSTREAM(repository=upstream.full_name, branch=upstream.default_branch)


def check_open_prs(case: GateCase) -> Observation | None:
    """Check that the author has no more open pull requests than the upstream allows."""
    cap, repository = case.rules.open_prs, case.patch.upstream.repository
    if not cap:
        return None
    login = case.ask(lambda github: github.me)
    if may_push(case.repository):
        return RuleCode.WRITE_ACCESS(login=login)
    query = f"repo:{repository} is:pr is:open author:{login}"
    found, known = case.ask(lambda github: github.search(query, 1)), case.publication
    # The count includes this patch's pull request if it is open already.
    room = cap if known.reference and not known.ended else cap - 1
    many = RuleCode.SEARCH_CUT if found.incomplete else RuleCode.FEW_OPEN
    code = RuleCode.TOO_MANY_OPEN if found.total > room else many
    return code(login=login, count=found.total, most=cap)


def check_own_pr(case: GateCase) -> Observation:
    """Check that the patch's pull request is open and not behind, or that open-pr can open it."""
    name = case.patch.name
    known = PublicationJournal(case.queue).publication(name, digest=case.patch.digest)
    if not known.reference:
        return RuleCode.NONE_OPENED()
    # The journal's state of the pull request came from GitHub, too.
    case.asked = True
    try:
        landing = case.ending(known.reference)
    except NotAskedError:
        if known.state != "merged":
            raise
        return RuleCode.LANDED(pull=known.reference, why="merged")
    if landing is None:
        return _behind(case)
    branch, pull, why = branch_of(case.patch), known.reference, landing.words
    if landing.upstream:
        return RuleCode.LANDED(pull=pull, why=why)
    if branch != known.branch:
        return RuleCode.REOPENED(pull=pull, why=why, branch=branch)
    return RuleCode.CLOSED(pull=pull, why=why)


def _behind(case: GateCase) -> Observation:
    """Return an observation on how far the pull request's branch is behind its base."""
    known, repository = case.publication, case.patch.upstream.repository
    base = case.repository.default_branch
    head = f"{known.fork.partition('/')[0]}:{known.branch}"
    try:
        comparison = case.ask(lambda github: github.compare(repository, base, head))
    except NotFoundError:
        return RuleCode.NO_BRANCH(fork=known.fork, branch=known.branch)
    if not comparison.behind_by:
        return RuleCode.CURRENT(pull=known.reference, head=head, base=base)
    code = RuleCode.TOO_FAR_BEHIND if case.rules.ci.current else RuleCode.BEHIND
    return code(head=head, behind=comparison.behind_by, base=base)


#: The rules in the order of judging: duplicates first, because the text tells of that search.
RULES: Final[Mapping[str, tuple[Check, ...]]] = {
    "duplicates": (check_duplicates,),
    "turned-down": (check_turned_down,),
    "superseded": (check_superseded,),
    "title": (check_title,),
    "commits": (check_sign_off, check_ai_trailer),
    "issue": (check_issue,),
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
    """Judge a patch by every rule of its upstream."""
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
        candidates=answered(case),
        limits=case.look.limits if case.look else (),
        looked=case.looked,
        body=case.body if isinstance(case.body, Body) else None,
    )


def judge_rule(rule: str, case: GateCase) -> Row:
    """Return a rule's row, made from the worst observations of the rule's checks."""
    case.asked = False
    found = [each for check in RULES[rule] if (each := _observe(check, case)) is not None]
    found = found or [RuleCode.NOT_ASKED_FOR()]
    worst = next(state for state in _WORST if any(each.code.state is state for each in found))
    told = [
        replace(each, facts={"patch": case.patch.name, **each.facts})
        for each in found
        if each.code.state is worst
    ]
    codes = tuple(dict.fromkeys(each.code for each in told))
    return Row(
        rule=rule,
        state=worst,
        codes=tuple(code.name.lower().replace("_", "-") for code in codes),
        github=case.asked,
        seen=line_of("; ".join(dict.fromkeys(each.seen for each in told))) or "nothing",
        next=line_of("; ".join(each.next for each in told if each.next)),
        first=not FIRST.isdisjoint(codes),
        mended_by_opening=MENDED_BY_OPENING.issuperset(codes),
    )


def _observe(check: Check, case: GateCase) -> Observation | None:
    """Return a check's observation, or one that says that GitHub gave no answer."""
    guard: AbstractContextManager[None] = nullcontext()
    if case.github is not None and not isinstance(case.github, GitHubError):
        from contribbot.github.client import shaped  # noqa: PLC0415  start-up time

        guard = shaped()
    try:
        with guard:
            return check(case)
    except NotAskedError:
        return RuleCode.OFFLINE()
    except GitHubError as error:
        # Do not repeat the previous error's hint.
        hint = "" if case.hint == error.hint else error.hint
        case.hint = error.hint
        return RuleCode.NO_ANSWER(message=error.message, hint=hint)
