"""The models of contributions: rules, gate, text, attestation, follow-up."""

from __future__ import annotations

import enum
import hashlib
import json
import operator
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from contribbot.model.base import (
    Line,
    Lines,
    Model,
    Name,
    Pattern,
    Prose,
    Sha256,
    Time,
    TreePath,
    TreePaths,
    form,
    refuse_twins,
)
from contribbot.model.patch import Reference

#: TOML and JSON have lists only; models hold tuples.
Texts = Annotated[tuple[str, ...], Field(strict=False)]
LineList = Annotated[tuple[Line, ...], Field(strict=False)]
#: Where a contribution stands. `landed`: a bot put it on the default branch and closed the
#: pull request; `reverted`: it was merged, and taken back since; `not opened`: the branch is
#: there, and no pull request yet; `not known`: GitHub could not be asked.
State = Literal[
    "not opened", "draft", "open", "merged", "landed", "reverted", "closed", "not known"
]
#: How the jobs of CI for a target stand. `waiting`: for a maintainer's approval; `not run`: all
#: were skipped; `not known`: all that were seen passed, and GitHub does not say which must.
CiState = Literal["passed", "failed", "running", "waiting", "not run", "not started", "not known"]
#: Whether GitHub would merge; `removed`: by a merge queue.
MergeState = Literal["ready", "queued", "removed", "behind", "blocked", "not known"]
Decision = Literal["approved", "changes requested", "none"]


class TargetCi(Model):
    """The jobs of CI for a target."""

    target: str
    state: CiState
    jobs: int = 0
    running: int = 0
    failed: Texts = ()
    failures: int = 0
    missing: Texts = ()


class ThreadCount(Model):
    """The numbers of review threads."""

    open: int = 0
    answered: int = 0
    resolved: int = 0


class Remark(Model):
    """A comment, review or thread remark on a pull request."""

    kind: Literal["comment", "review", "thread"]
    author: str
    at: Time
    text: str
    url: str
    place: str = ""
    verdict: str = ""
    changed: bool = False


class NextStep(Model):
    """The next step, and for whom."""

    who: str
    what: str


class Followed(Model):
    """The state of one contribution."""

    patch: str
    repository: str
    reference: str = ""
    url: str = ""
    title: str = ""
    state: State = "not known"
    change: str = ""
    commit: str = ""
    reverted: str = ""
    why: str = ""
    base: str = ""
    #: The branch that has it, where the default branch does not.
    into: str = ""
    archived: bool = False
    mergeable: Literal["yes", "no", "not known"] = "not known"
    merge: MergeState = "not known"
    removed: str = ""
    behind: int | None = None
    ci: Annotated[tuple[TargetCi, ...], Field(strict=False)] = ()
    other: TargetCi | None = None
    start: str = ""
    decision: Decision = "none"
    by: Texts = ()
    threads: ThreadCount = ThreadCount()
    new: Annotated[tuple[Remark, ...], Field(strict=False)] = ()
    more: int = 0
    next: Annotated[tuple[NextStep, ...], Field(strict=False)] = ()
    #: Why GitHub gave no more than the state, and what is left out; or empty.
    unread: str = ""
    error: str = ""

    @property
    def jobs(self) -> tuple[TargetCi, ...]:
        """CI of every target, and the jobs that are for none."""
        return (*self.ci, *([self.other] if self.other else []))


class FollowReport(Model):
    """The document of `follow --json`."""

    contributions: tuple[Followed, ...]
    without: tuple[str, ...]


class RowState(enum.StrEnum):
    """The state of a row."""

    PASSED = "passed"
    FAILED = "failed"
    #: No program can tell; the person who attests looks.
    PERSON = "for a person"
    #: GitHub would have to be asked, and gave no usable answer.
    UNKNOWN = "not known"
    #: GitHub would have to be asked, and nobody wanted that (`--offline`).
    NOT_LOOKED_AT = "not looked at"


class Row(Model):
    """The row of one rule in the gate."""

    rule: Name
    state: Annotated[RowState, Field(strict=False)]
    #: A `RuleCode` for each sentence.
    codes: Texts
    seen: Line
    next: Line | Literal[""] = ""
    github: bool = False
    mended_by_opening: bool = False
    #: Whether nothing can be attested before a person has done it.
    first: bool = Field(default=False, exclude_if=operator.not_)

    @property
    def blocks(self) -> bool:
        """Whether attesting must wait: the rule failed, is unknown, or a step comes first."""
        good = self.state in {RowState.PASSED, RowState.PERSON} and not self.first
        return not good and not self.mended_by_opening


PullState = Literal["open", "draft", "merged", "closed"]


class Candidate(Model):
    """A pull request that may be the same work, and its likeness to the patch."""

    reference: Reference
    title: str
    author: str
    state: PullState
    url: str
    #: The patch's issue, where the pull request names it; whether the patch names the pull request.
    issue: str = ""
    related: bool = False
    #: Files that both touch, and words that both titles have.
    files: Texts = ()
    words: Texts = ()
    #: Functions that both change; of a closed one, the last comment of a maintainer.
    functions: Texts = ()
    last_word: str = ""
    answer: str = ""


class Look(Model):
    """A look for duplicates: how many pull requests were found, and whose files were read."""

    key: Sha256
    time: Annotated[datetime, Field(strict=False)]
    days: int
    seen: int
    looked_into: int
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False)]
    limits: LineList = ()


class Want(enum.StrEnum):
    """A key that an upstream asks for and a patch does not have yet."""

    ISSUE = "issue"
    AI = "ai"
    WORDS = "words"
    BREAKING = "breaking"

    @property
    def words(self) -> str:
        """The want in words, with the key of patch.toml."""
        return f"{_WANTED[self]}: `{self}` in [contribution] of patch.toml"


_WANTED: Final = {
    Want.ISSUE: "the issue that it fixes",
    Want.AI: "how AI was used",
    Want.WORDS: "your own words on it, beside what a machine wrote",
    Want.BREAKING: "whether something stops working for users",
}


class RecordRef(Model):
    """A record of figures: label in the text, file, and seal."""

    label: str
    file: str
    seal: str


class Body(Model):
    """The text of a pull request, with its figures' records and what is missing."""

    patch: str
    upstream: str
    repository: str
    title: str
    template: str
    text: str
    sha256: str
    characters: int
    records: tuple[RecordRef, ...]
    #: Words of the overview, seen at once, and in all with folds, tables and checklists.
    overview_words: int
    visible_words: int
    words: int
    #: Files of rows that are left out: no reader can open these files.
    closed: tuple[str, ...]
    timed: tuple[str, ...]
    not_run: tuple[str, ...]
    minded: tuple[str, ...]
    wants: Annotated[tuple[Want, ...], Field(strict=False)]
    #: Why nobody is to propose it, and what has its change; or empty.
    superseded: str = ""

    @property
    def digest(self) -> str:
        """The digest by which title and text are known again on GitHub."""
        return text_digest(self.title, self.text)


class Comment(Model):
    """The comment for somebody else's pull request or issue; posted by nobody."""

    patch: str
    repository: str
    #: The last commit that was tried; empty: the change was written anew, or there is none.
    head: str
    text: str
    words: int
    records: tuple[RecordRef, ...]


def text_digest(title: str, text: str) -> str:
    """Return a digest of a pull request's text that survives the way to GitHub and back."""
    # Other line ends, trimmed.
    rows = (row.rstrip() for row in text.replace("\r\n", "\n").strip().split("\n"))
    plain = "\0".join((title.strip(), "\n".join(rows)))
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()


class Gate(Model):
    """The rows of the gate for one patch."""

    patch: Name
    upstream: Name
    repository: Line
    rows: Annotated[tuple[Row, ...], Field(strict=False)]
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False)] = ()
    limits: LineList = ()
    looked: Annotated[datetime | None, Field(strict=False)] = None
    #: The judged text; None where none can be made. It is not written to JSON.
    body: Annotated[Body | None, Field(exclude=True)] = None

    def of(self, *states: RowState) -> list[Row]:
        """Return the rows in some states."""
        return [row for row in self.rows if row.state in states]

    @property
    def blocking(self) -> list[Row]:
        """The rows that keep a person from attesting."""
        return [row for row in self.rows if row.blocks]


#: The most characters of a pull request's text or a comment on GitHub.
GITHUB_LIMIT: Final = 65_536
RequiredTarget = Annotated[
    str,
    form(
        r"^(?:(?:compile|build|emulated):)?(?:cpu|cuda|gfx[0-9a-f]{3,5})$",
        "a target such as cpu, gfx942, compile:gfx90a, emulated:gfx942",
    ),
]
RequiredTargets = Annotated[tuple[RequiredTarget, ...], Field(strict=False)]
#: The version of a template: the release or the short commit that it was read at.
Version = Annotated[
    str, form(r"^[A-Za-z0-9][A-Za-z0-9._-]*$", "a release or a short commit", max_length=40)
]


class Question(Model):
    """Something that a person must answer before a pull request is opened."""

    name: Name
    text: Line
    answer: Literal["yes", "text"] = "yes"


class CiRules(Model):
    """How an upstream's CI is started and read."""

    start: Prose = "It starts by itself."
    targets: dict[RequiredTarget, Pattern] = Field(default_factory=dict)
    current: bool = False


class AiRules(Model):
    """The rules for machine-written work."""

    disclosed: bool = False
    contained: bool = False
    trailer: Pattern = ""


class BodyRules(Model):
    """How the text of a pull request is made."""

    template: Version
    live: TreePath
    duplicates: bool = Field(default=False, exclude_if=operator.not_)


class Rules(Model):
    """The rules of an upstream for a pull request."""

    upstream: Name
    source: Prose
    title: Pattern = ""
    title_hint: Line | Literal[""] = ""
    sign_off: bool = False
    issue: Literal["required", "optional"] = "optional"
    issue_first: bool = False
    tests: TreePaths = ()
    require: RequiredTargets = ()
    targets: RequiredTargets = ()
    open_prs: Annotated[int, Field(ge=0)] = 0
    labels: Lines = ()
    label_hint: Line | Literal[""] = ""
    #: Titles of what is run end to end, and of what is to be faster; what a person alone can do.
    end_to_end: Pattern = ""
    speed: Pattern = ""
    by_hand: Lines = ()
    lint: Line | Literal[""] = ""
    questions: Annotated[tuple[Question, ...], Field(strict=False, min_length=1)]
    ci: CiRules = CiRules()
    ai: AiRules = AiRules()
    body: BodyRules

    @model_validator(mode="after")
    def _questions_differ(self) -> Rules:
        refuse_twins("questions", [question.name for question in self.questions])
        return self


class Answer(Model):
    """The answer of a person."""

    question: Question
    answer: Prose


class Attester(Model):
    """The person who attests, by git's configuration."""

    name: Line
    email: Line


class Attestation(Model):
    """The content of `attestations/NAME.json`: the person who stands for a text and a patch."""

    kind: Literal["contribbot/attestation/v2"] = "contribbot/attestation/v2"
    patch: Name
    #: When the gate asked GitHub, and when the person answered.
    looked: Annotated[datetime, Field(strict=False)]
    time: Annotated[datetime, Field(strict=False)]
    person: Attester
    answers: Annotated[tuple[Answer, ...], Field(strict=False, min_length=1)]
    #: The SHA-256 over the text, the patch, what is asked, and all of the above.
    digest: Sha256


def json_digest(value: object) -> str:
    """Return the SHA-256 over canonical JSON: keys sorted, no white space, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
