"""Data models of contributions: an upstream's rules, gate, text, attestation, follow-up."""

from __future__ import annotations

import enum
import hashlib
import json
import operator
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from contribbot.model.base import (
    Line,
    Lines,
    Loose,
    Many,
    Model,
    Name,
    Pattern,
    Prose,
    Sha256,
    Some,
    Time,
    TreePath,
    TreePaths,
    form,
    refuse_twins,
)
from contribbot.model.patch import Reference

#: The state of a contribution. `landed`: a bot put the change on the default branch and closed
#: the pull request; `reverted`: the change was merged, and later reverted; `not opened`: the
#: branch has no pull request yet; `not known`: GitHub could not be asked.
State = Literal[
    "not opened", "draft", "open", "merged", "landed", "reverted", "closed", "not known"
]
#: The state of a target's CI jobs. `waiting`: for a maintainer's approval; `not run`: all were
#: skipped; `not known`: all listed jobs passed, and GitHub does not say which jobs must pass.
CiState = Literal["passed", "failed", "running", "waiting", "not run", "not started", "not known"]
#: Whether GitHub would merge the pull request; `removed`: a merge queue took it out again.
MergeState = Literal["ready", "queued", "removed", "behind", "blocked", "not known"]
Decision = Literal["approved", "changes requested", "none"]


class TargetCi(Model):
    """The state and the numbers of one target's CI jobs."""

    target: str
    state: CiState
    jobs: int = 0
    running: int = 0
    failed: Many[str] = ()
    failures: int = 0
    missing: Many[str] = ()


class ThreadCount(Model):
    """The numbers of review threads: open, answered by the author, and resolved."""

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
    """The next step for a contribution, and who takes this step."""

    who: str
    what: str


class Followed(Model):
    """The state of one contribution, as `follow` found it on GitHub."""

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
    #: The branch that has the change, if the default branch does not have the change.
    into: str = ""
    archived: bool = False
    mergeable: Literal["yes", "no", "not known"] = "not known"
    merge: MergeState = "not known"
    removed: str = ""
    behind: int | None = None
    ci: Many[TargetCi] = ()
    other: TargetCi | None = None
    start: str = ""
    decision: Decision = "none"
    by: Many[str] = ()
    threads: ThreadCount = ThreadCount()
    new: Many[Remark] = ()
    more: int = 0
    next: Many[NextStep] = ()
    #: Why GitHub gave only the pull request's state, and which parts are left out; or empty.
    unread: str = ""
    error: str = ""

    @property
    def jobs(self) -> tuple[TargetCi, ...]:
        """The CI state of every target, then of jobs that belong to no target."""
        return (*self.ci, *([self.other] if self.other else []))


class FollowReport(Model):
    """The document of `follow --json`."""

    contributions: tuple[Followed, ...]
    without: tuple[str, ...]


class RowState(enum.StrEnum):
    """The state of a row of the gate."""

    PASSED = "passed"
    FAILED = "failed"
    #: No program can tell; the person who attests must look.
    PERSON = "for a person"
    #: The answer is on GitHub, and GitHub gave no usable answer.
    UNKNOWN = "not known"
    #: The answer is on GitHub, and the user wanted no requests (`--offline`).
    NOT_LOOKED_AT = "not looked at"


class Row(Model):
    """The row of one rule in the gate."""

    rule: Name
    state: Loose[RowState]
    #: The codes of the observations behind the sentences, for programs.
    codes: Many[str]
    seen: Line
    next: Line | Literal[""] = ""
    github: bool = False
    mended_by_opening: bool = False
    #: Whether a person must take the next step before anything can be attested.
    first: bool = Field(default=False, exclude_if=operator.not_)

    @property
    def blocks(self) -> bool:
        """Whether the row prevents attesting; a row that `open-pr` mends does not."""
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
    #: The patch's issue, if it links this pull request; whether the patch names this pull request.
    issue: str = ""
    related: bool = False
    #: Files that both changes touch, and words that both titles have.
    files: Many[str] = ()
    words: Many[str] = ()
    #: Functions that both change; for a closed pull request, a maintainer's last comment.
    functions: Many[str] = ()
    last_word: str = ""
    answer: str = ""


class Look(Model):
    """A search for duplicates: the numbers of found and compared pull requests; candidates."""

    key: Sha256
    time: Time
    days: int
    seen: int
    looked_into: int
    candidates: Many[Candidate]
    limits: Lines = ()


class Want(enum.StrEnum):
    """A key of patch.toml that an upstream asks for and a patch does not have yet."""

    ISSUE = "issue"
    AI = "ai"
    WORDS = "words"
    BREAKING = "breaking"

    @property
    def words(self) -> str:
        """The missing content in words, with its key of patch.toml."""
        return f"{_WANTED[self]}: `{self}` in [contribution] of patch.toml"


_WANTED: Final = {
    Want.ISSUE: "the issue that it fixes",
    Want.AI: "how AI was used",
    Want.WORDS: "your own words on it, beside what a machine wrote",
    Want.BREAKING: "whether something stops working for users",
}


class RecordRef(Model):
    """A reference to an evidence record: the label in the text, the file, and the seal."""

    label: str
    file: str
    seal: str


class Body(Model):
    """The text of a pull request, the records behind its figures, and the missing parts."""

    patch: str
    upstream: str
    repository: str
    title: str
    template: str
    text: str
    sha256: str
    characters: int
    records: tuple[RecordRef, ...]
    #: Numbers of words: in the overview; visible at once; in all, with folds and tables.
    overview_words: int
    visible_words: int
    words: int
    #: Files of checks without a row in the text, because no reader can open these files.
    closed: tuple[str, ...]
    timed: tuple[str, ...]
    not_run: tuple[str, ...]
    minded: tuple[str, ...]
    wants: Many[Want]
    #: Why nobody should propose the patch: what has the same change already; or empty.
    superseded: str = ""

    @property
    def digest(self) -> str:
        """The digest of title and text, to recognize both on GitHub."""
        return text_digest(self.title, self.text)


class Comment(Model):
    """A comment on somebody else's pull request or issue, which contribbot never posts."""

    patch: str
    repository: str
    #: The last commit of the imported pull request; empty: none, or the patch has changed since.
    head: str
    text: str
    words: int
    records: tuple[RecordRef, ...]


def text_digest(title: str, text: str) -> str:
    """Return a digest of title and text that ignores how GitHub changes line ends and spaces."""
    # GitHub changes line ends and trims white space.
    rows = (row.rstrip() for row in text.replace("\r\n", "\n").strip().split("\n"))
    plain = "\0".join((title.strip(), "\n".join(rows)))
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()


class Gate(Model):
    """The rows of the gate for one patch."""

    patch: Name
    upstream: Name
    repository: Line
    rows: Many[Row]
    candidates: Many[Candidate] = ()
    limits: Lines = ()
    looked: Time | None = None
    #: The judged text, left out of the JSON; None: no text can be made.
    body: Annotated[Body | None, Field(exclude=True)] = None

    def of(self, *states: RowState) -> list[Row]:
        """Return the rows whose state is one of the given states."""
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
RequiredTargets = Many[RequiredTarget]
#: The version of a template: the upstream's release or short commit that has this template.
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
    """An upstream's rules for machine-written work."""

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
    tests: TreePaths = ()
    require: RequiredTargets = ()
    targets: RequiredTargets = ()
    open_prs: Annotated[int, Field(ge=0)] = 0
    labels: Lines = ()
    label_hint: Line | Literal[""] = ""
    #: Patterns of titles of changes to run end to end, and to time; steps for a person alone.
    end_to_end: Pattern = ""
    speed: Pattern = ""
    by_hand: Lines = ()
    lint: Line | Literal[""] = ""
    questions: Some[Question]
    ci: CiRules = CiRules()
    ai: AiRules = AiRules()
    body: BodyRules

    @model_validator(mode="after")
    def _questions_differ(self) -> Rules:
        refuse_twins("questions", [question.name for question in self.questions])
        return self


class Answer(Model):
    """A person's answer to a question."""

    question: Question
    answer: Prose


class Attester(Model):
    """The person who attests, by git's configuration."""

    name: Line
    email: Line


class Attestation(Model):
    """The content of `attestations/NAME.json`: a person vouches for a text and a patch."""

    kind: Literal["contribbot/attestation/v2"] = "contribbot/attestation/v2"
    patch: Name
    #: When the gate asked GitHub, and when the person answered.
    looked: Time
    time: Time
    person: Attester
    answers: Some[Answer]
    #: The SHA-256 over the text, the patch, the questions, and all other fields.
    digest: Sha256


def json_digest(value: object) -> str:
    """Return the SHA-256 of a value's canonical JSON: keys sorted, no white space, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
