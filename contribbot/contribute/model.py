"""What `follow` and `reviews` say of contributions. All text in it is clean and bounded."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

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
)
from contribbot.model.patch import Reference

#: Where a contribution stands. `landed`: a bot put it on the default branch and closed the
#: pull request; `reverted`: it was merged, and taken back since; `not opened`: the branch is
#: there, and no pull request yet; `not known`: GitHub could not be asked.
State = Literal[
    "not opened", "draft", "open", "merged", "landed", "reverted", "closed", "not known"
]  # fmt: skip
#: How the jobs of CI for a target stand. `not run`: all of them were skipped.
CiState = Literal["passed", "failed", "running", "not run", "not started"]


class TargetCi(Model):
    """What CI says of a target.

    Attributes:
        target: The target; `other` for the jobs of none.
        state: How its jobs stand.
        jobs: How many there are.
        running: How many of them have not ended.
        failed: Those that failed, some of them, by name.
        failures: How many failed.
    """

    target: str
    state: CiState
    jobs: int = 0
    running: int = 0
    failed: Annotated[tuple[str, ...], Field(strict=False)] = ()
    failures: int = 0


class ThreadCount(Model):
    """How many review threads there are.

    Attributes:
        open: Not resolved, and the last word is not the author's.
        answered: Not resolved, and the last word is the author's.
        resolved: Resolved, where that is known.
        known: Whether GitHub says which are resolved.
    """

    open: int = 0
    answered: int = 0
    resolved: int = 0
    known: bool = True


class Remark(Model):
    """Something that somebody said.

    Attributes:
        kind: Where: below the pull request, in a review, or at a line.
        author: Who.
        at: When; of a comment that was changed, when that was.
        text: What.
        url: Where on the page.
        thread: The short id of the thread that it is part of, or empty.
        place: File and line, or empty.
        verdict: Of a review: `approved`, `changes requested` and so on; or empty.
        changed: Whether it was seen before, and has changed since.
    """

    kind: Literal["comment", "review", "thread"]
    author: str
    at: Time | None
    text: str
    url: str
    thread: str = ""
    place: str = ""
    verdict: str = ""
    changed: bool = False


class Step(Model):
    """What is next.

    Attributes:
        who: For whom: `you`, `reviewers`, `maintainers`, `CI` or `anyone entitled`.
        what: What.
    """

    who: str
    what: str


class Followed(Model):
    """Where one contribution stands.

    Attributes:
        patch: The patch.
        queued: Whether the patch is still in the queue.
        repository: The upstream's repository.
        reference: The pull request, as `owner/name#number`; or empty.
        url: Its page, or empty.
        title: Its title.
        state: Where it stands.
        change: What it was before, where that has changed since the last look; or empty.
        commit: The commit by which the default branch has it, or empty.
        reverted: The commit that took it back, or empty.
        why: What else is to be said of the state, or empty.
        base: The branch that it goes to.
        mergeable: Whether it merges without a conflict.
        behind: Commits of the base that the branch lacked when it was compared; none: not known.
        compared: When it was compared.
        ci: What CI says, a target each.
        other: What the jobs say that are for no target; none: there are none.
        start: How CI is started, for a person; empty where all of it has started.
        decision: What the reviewers say together.
        by: The reviewers who say so.
        threads: Its review threads.
        new: What others said or changed since the last look, newest last; the latest of it.
        more: How much more that is.
        next: What is next, for whom.
        looked: When GitHub was last asked for all of it.
        error: Why it could not be looked at now, or empty. The rest is then as it was.
    """

    patch: str
    queued: bool
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
    mergeable: Literal["yes", "no", "not known"] = "not known"
    behind: int | None = None
    compared: Time | None = None
    ci: Annotated[tuple[TargetCi, ...], Field(strict=False)] = ()
    other: TargetCi | None = None
    start: str = ""
    decision: Literal["approved", "changes requested", "none"] = "none"
    by: Annotated[tuple[str, ...], Field(strict=False)] = ()
    threads: ThreadCount = ThreadCount()
    new: Annotated[tuple[Remark, ...], Field(strict=False)] = ()
    more: int = 0
    next: Annotated[tuple[Step, ...], Field(strict=False)] = ()
    looked: Time | None = None
    error: str = ""


class FollowReport(Model):
    """What `follow --json` prints.

    Attributes:
        contributions: One each: the queue's in its order, then those that left it.
        without: Patches of the queue of which nothing is on GitHub yet.
    """

    contributions: tuple[Followed, ...]
    without: tuple[str, ...]


class Kept(Model):
    """What is remembered of the last look at a pull request. It can be deleted at any time.

    Attributes:
        form: The form of this file.
        reference: The pull request.
        rules: Digest of the rules by which CI was read.
        pull: Digest of what GitHub said of it, as far as all else hangs on that.
        base: The commit of its base.
        head: The commit that CI was asked about.
        events: Digest of what happened to it, where it has ended.
        until: The time up to which comments are known.
        seen: What was seen: its id, and when it was last changed.
        done: Whether nothing is open: CI has ended or, of one that has ended itself, GitHub
            had every commit that it names.
        followed: What was said then.
    """

    form: Literal[1] = 1
    reference: str
    rules: str
    pull: str
    base: str
    head: str
    events: str = ""
    until: Time | None = None
    seen: dict[str, str] = Field(default_factory=dict)
    done: bool = False
    followed: Followed


class ThreadView(Model):
    """A thread of review comments.

    Attributes:
        id: Its short id, which stays.
        file: The file.
        line: The line in the newest version; none where that is no longer part of it.
        was: The line in the version that it was written about.
        side: `base` or `change`: which of the two the line is one of.
        resolved: Whether it is resolved; none: GitHub does not say.
        outdated: Whether the lines have changed since; none: GitHub does not say.
        answered: Whether the last word is the author's.
        code: The lines around, as a hunk of a diff.
        comments: What was said, oldest first.
    """

    id: str
    file: str
    line: int | None
    was: int | None
    side: Literal["base", "change"]
    resolved: bool | None
    outdated: bool | None
    answered: bool
    code: tuple[str, ...]
    comments: tuple[Remark, ...]


class ReviewsReport(Model):
    """What `reviews --json` prints.

    Attributes:
        patch: The patch.
        reference: Its pull request.
        url: Its page.
        known: Whether GitHub says which threads are resolved.
        threads: The threads, by file and line; without `--all` those that are not resolved.
        hidden: How many threads are left out because they are resolved.
        comments: What was said besides, oldest first; without `--all` the latest of it.
        earlier: How much of that is left out.
    """

    patch: str
    reference: str
    url: str
    known: bool
    threads: tuple[ThreadView, ...]
    hidden: int
    comments: tuple[Remark, ...]
    earlier: int


class RowState(enum.StrEnum):
    """What a rule says."""

    PASSED = "passed"
    FAILED = "failed"
    #: No program can say; whoever attests looks at it.
    PERSON = "for a person"
    #: GitHub would have to be asked, and gave no usable answer.
    UNKNOWN = "not known"
    #: GitHub would have to be asked, and nobody wanted that (`--offline`).
    NOT_LOOKED_AT = "not looked at"


class Searched(Model):
    """A look for duplicates that found none, as far as a text tells of it.

    Attributes:
        time: When.
        days: How far back merged pull requests counted.
        seen: Pull requests that were listed or found by a search.
        looked_into: Those of them whose files were compared.
        limits: What was not looked at, a line each.
    """

    time: Annotated[datetime, Field(strict=False)]
    days: int
    seen: int
    looked_into: int
    limits: Annotated[tuple[Line, ...], Field(strict=False)] = ()


class Row(Model):
    """One rule.

    Attributes:
        rule: Its name.
        state: What it says.
        seen: What was seen, in a line.
        next: The next step; empty when there is none.
        github: Whether it is from GitHub, so that it ages.
        mended_by_opening: Whether `open-pr` does something about it by itself, so that it
            keeps nobody from running that.
        searched: Of the row about duplicates, the look, where that found none.
    """

    rule: Name
    state: Annotated[RowState, Field(strict=False)]
    seen: Line
    next: Line | Literal[""] = ""
    github: bool = False
    mended_by_opening: bool = False
    searched: Searched | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_there(
        self, dump: SerializerFunctionWrapHandler
    ) -> dict[str, JsonValue]:
        """Leave a look out where there is none: attestations are sealed with their rows."""
        fields: dict[str, JsonValue] = dump(self)
        if self.searched is None:
            fields.pop("searched", None)
        return fields

    @property
    def blocks(self) -> bool:
        """Whether it keeps a person from attesting: it failed, or nobody knows."""
        good = self.state in {RowState.PASSED, RowState.PERSON}
        return not good and not self.mended_by_opening


class Candidate(Model):
    """A pull request that may be the same work.

    Attributes:
        reference: The pull request.
        title: Its title, as GitHub has it: hostile text.
        author: Who opened it.
        state: `open`, `draft`, `merged`; `closed`: only where the patch itself names it.
        url: Its page.
        in_common: What it has in common with the patch, the weightiest first.
        weight: How much that is; the higher, the more alike.
        answer: Why the patch is different, as `[contribution].different` says; or empty.
    """

    reference: Reference
    title: str
    author: str
    state: Literal["open", "draft", "merged", "closed"]
    url: str
    in_common: Annotated[tuple[Line, ...], Field(strict=False, min_length=1)]
    weight: int
    answer: str = ""


class Look(Model):
    """One look for duplicates.

    Attributes:
        key: Digest of all that it depends on.
        time: When.
        days: How far back merged pull requests count.
        seen: Pull requests that were listed or found by a search.
        looked_into: Those of them whose files were compared.
        candidates: Those that have something in common, the most alike first.
        limits: What was not looked at, a line each.
    """

    key: Sha256
    time: Annotated[datetime, Field(strict=False)]
    days: int
    seen: int
    looked_into: int
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False)]
    limits: Annotated[tuple[Line, ...], Field(strict=False)] = ()

    @property
    def searched(self) -> Searched | None:
        """What may be told of it where it found nothing; else none."""
        if self.candidates:
            return None
        return Searched(
            time=self.time,
            days=self.days,
            seen=self.seen,
            looked_into=self.looked_into,
            limits=self.limits,
        )


def searched_in(rows: Iterable[Row]) -> Searched | None:
    """Return the look for duplicates that the rows of a gate tell of; None: it found some."""
    return next((row.searched for row in rows if row.searched is not None), None)


class Gate(Model):
    """All rows for one patch.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        repository: Its repository.
        rows: One a rule, in a fixed order.
        candidates: Who else is at it, the most alike first.
        limits: What the look for duplicates left out.
        looked: When GitHub was asked; of several looks the oldest. None: it was not.
    """

    patch: Name
    upstream: Name
    repository: Line
    rows: Annotated[tuple[Row, ...], Field(strict=False)]
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False)] = ()
    limits: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    looked: Annotated[datetime | None, Field(strict=False)] = None

    def of(self, *states: RowState) -> list[Row]:
        """Return the rows in some states."""
        return [row for row in self.rows if row.state in states]

    @property
    def blocking(self) -> list[Row]:
        """The rows that keep a person from attesting."""
        return [row for row in self.rows if row.blocks]


#: What GitHub takes as the text of a pull request or of a comment, in characters.
GITHUB_LIMIT: Final = 65_536
#: A target as `verify --require` names it: `cpu`, `gfx942`, `compile:gfx90a`.
Need = Annotated[
    str, StringConstraints(pattern=r"^(?:(?:compile|build):)?(?:cpu|cuda|gfx[0-9a-f]{3,5})$")
]
Needs = Annotated[tuple[Need, ...], Field(strict=False)]
#: The version of a template: the release or the short commit that it was read at.
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=40)]
#: What makes the content of a section; `contribute/text/sections.py` has one function each.
Block = Literal[
    "words", "problem", "cause", "solution", "related", "issue", "claims", "commands", "tests",
    "numerics", "compile", "witness", "speed", "grid", "evaluation", "duplicates", "breaking",
    "ai", "checklist", "records", "docs", "waits",
]  # fmt: skip
Blocks = Annotated[tuple[Block, ...], Field(strict=False)]
#: What ticks an item of a checklist. `person`: nobody but the one who opens the pull request.
Tick = Literal["ai", "tests", "benchmarks", "docs", "person"]


class Question(Model):
    """Something that a person must answer before a pull request is opened.

    Attributes:
        name: What the answer is kept under.
        text: The question.
        answer: `yes`: nothing but yes will do; `text`: in the person's own words.
    """

    name: Name
    text: Line
    answer: Literal["yes", "text"] = "yes"


class CiRules(Model):
    """How an upstream's CI is started and read.

    Attributes:
        start: What a person does to start it, in words.
        targets: For each target, what the names of its CI jobs look like.
        current: Whether the branch must not be behind its base.
    """

    start: Prose = "It starts by itself."
    targets: dict[Need, Pattern] = Field(default_factory=dict)
    current: bool = False


class AiRules(Model):
    """What must be said of machine-written work.

    Attributes:
        disclosed: Whether the text of the pull request must say that AI was used.
        contained: Whether machine-written text stands under a heading that says so, apart
            from the person's own words, which must be there.
        trailer: A regular expression; where AI was used, a trailer of each commit must match
            it. Empty: no such rule.
    """

    disclosed: bool = False
    contained: bool = False
    trailer: Pattern = ""


class BodyRules(Model):
    """How the text of a pull request is made.

    Attributes:
        template: The version of the template that is in force.
        live: Where the template lies in the upstream's repository.
        budget: Characters that the text should keep within. Long lists become counts
            until it does.
        duplicates: Whether the text says that no duplicate was found, where none was; why it
            is different from those that were is said in any case.
    """

    template: Version
    live: TreePath
    budget: Annotated[int, Field(ge=500, le=GITHUB_LIMIT)] = 10_000
    duplicates: bool = False

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked(
        self, dump: SerializerFunctionWrapHandler
    ) -> dict[str, JsonValue]:
        """Leave a later key out where it asks nothing: attestations are bound to the digest."""
        fields: dict[str, JsonValue] = dump(self)
        if not self.duplicates:
            fields.pop("duplicates", None)
        return fields


class Rules(Model):
    """What an upstream asks of a pull request.

    Attributes:
        upstream: The upstream.
        source: Where these rules were read, and when.
        title: A regular expression that the title must match, or empty.
        title_hint: How a title looks, for the message.
        sign_off: Whether each commit needs a `Signed-off-by` of its author.
        issue: Whether a pull request must name the issue that it fixes.
        issue_first: Whether the issue is opened and discussed before the pull request.
        tests: Folders of which one must hold a test that the pull request touches. None: no
            such rule.
        require: Targets that must be proved, beside those that the person asks for.
        targets: Hardware that the text always speaks of: what did not run there is said.
        open_prs: Open pull requests that an author without write access may have; 0: any number.
        labels: Labels that the pull request should have.
        label_hint: Labels that a person must choose, in words; or empty.
        lint: The command that checks style, for a person to run.
        questions: What the person is asked.
        ci: Its CI.
        ai: What is said of machine-written work.
        body: The text of the pull request.
    """

    upstream: Name
    source: Prose
    title: Pattern = ""
    title_hint: Line | Literal[""] = ""
    sign_off: bool = False
    issue: Literal["required", "optional"] = "optional"
    issue_first: bool = False
    tests: TreePaths = ()
    require: Needs = ()
    targets: Needs = ()
    open_prs: Annotated[int, Field(ge=0)] = 0
    labels: Lines = ()
    label_hint: Line | Literal[""] = ""
    lint: Line | Literal[""] = ""
    questions: Annotated[tuple[Question, ...], Field(strict=False, min_length=1)]
    ci: CiRules = CiRules()
    ai: AiRules = AiRules()
    body: BodyRules

    @model_validator(mode="after")
    def _questions_differ(self) -> Rules:
        names = [one.name for one in self.questions]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"questions: two have the name {twice[0]}")
        return self


class Item(Model):
    """An item of a checklist.

    Attributes:
        text: What it says (Markdown).
        tick: What ticks it. Only what is known is ticked.
    """

    text: Line
    tick: Tick = "person"


class Section(Model):
    """A section of a template.

    Attributes:
        heading: The upstream's heading, with its number signs; or empty.
        text: Fixed words at its start (Markdown).
        blocks: What follows, in this order.
        summary: The title of what is folded away.
        folded: What is folded away under it.
        items: Its checklist, for the block `checklist`.
    """

    heading: Annotated[str, StringConstraints(pattern=r"^(?:#{1,6} \S[^\x00-\x1f]*)?$")] = ""
    text: Prose | Literal[""] = ""
    blocks: Blocks = ()
    summary: Line | Literal[""] = ""
    folded: Blocks = ()
    items: Annotated[tuple[Item, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _has_its_title(self) -> Section:
        if bool(self.summary) != bool(self.folded):
            raise ValueError("summary and folded: give both or none")
        return self


class Template(Model):
    """The sections of an upstream's pull request template, of one version.

    Attributes:
        upstream: The upstream.
        version: The release or commit at which it was read.
        source: Where it was read.
        above: Headings that the upstream's file has and a pull request does not keep.
        machine: The heading above machine-written text, where the upstream wants it apart.
        sections: The sections, in order.
    """

    upstream: Name
    version: Version
    source: Prose
    above: Lines = ()
    machine: Line | Literal[""] = ""
    sections: Annotated[tuple[Section, ...], Field(strict=False, min_length=1)]

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the upstream's file, in order."""
        return (*self.above, *(one.heading for one in self.sections if one.heading))


KIND: Final = "contribbot/attestation/v1"


class FileDigest(Model):
    """A file as it was shown.

    Attributes:
        name: Its name, seen from the patch's folder or from the queue.
        sha256: Digest of its content; of a record of evidence, its seal.
    """

    name: str
    sha256: Sha256


class Answer(Model):
    """What a person answered.

    Attributes:
        question: The question.
        answer: The answer, as it was typed.
    """

    question: Question
    answer: Prose


class Attester(Model):
    """Who attests, as git knows them.

    Attributes:
        name: `user.name`.
        email: `user.email`.
    """

    name: Line
    email: Line


class Basis(Model):
    """All that a person stands for; an attestation is void when any of it is another.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        repository: Its repository.
        files: The patch files, in order.
        below: The digests of the patches that it stands on, lowest first.
        checks: Digest of the checks and what `patch.toml` states to be proved.
        title: The title that is posted.
        body: Digest of the body that is posted.
        records: The records that figures are from, each with its seal.
        contribution: Digest of `[contribution]` of `patch.toml`.
        rules: Digest of the upstream's rules.
        gate: The gate's rows.
        tool: contribbot's version.
    """

    patch: Name
    upstream: Name
    repository: Line
    files: Annotated[tuple[FileDigest, ...], Field(strict=False, min_length=1)]
    below: Annotated[tuple[FileDigest, ...], Field(strict=False)] = ()
    checks: Sha256
    title: Line
    body: Sha256
    records: Annotated[tuple[FileDigest, ...], Field(strict=False, min_length=1)]
    contribution: Sha256
    rules: Sha256
    gate: Annotated[tuple[Row, ...], Field(strict=False, min_length=1)]
    tool: Line


class Attestation(Model):
    """The content of `attestations/NAME.json`.

    Attributes:
        kind: What it is.
        basis: What it is bound to.
        looked: When the gate asked GitHub.
        person: Who attests.
        time: When.
        answers: What was asked and answered.
        seal: SHA-256 over all the rest. It shows an edit, not a forger.
    """

    kind: Literal["contribbot/attestation/v1"] = KIND
    basis: Basis
    looked: Annotated[datetime, Field(strict=False)]
    person: Attester
    time: Annotated[datetime, Field(strict=False)]
    answers: Annotated[tuple[Answer, ...], Field(strict=False, min_length=1)]
    seal: str = ""

    def sealed(self) -> Attestation:
        """Return it with its seal."""
        return self.model_copy(update={"seal": seal_of(self)})

    @property
    def intact(self) -> bool:
        """Whether it is as it was written."""
        return self.seal == seal_of(self)


def seal_of(attestation: Attestation) -> str:
    """Return the SHA-256 over an attestation without its seal, in hexadecimal."""
    return json_digest(attestation.model_dump(mode="json", exclude={"seal"}))


def json_digest(value: object) -> str:
    """Return the SHA-256 over canonical JSON: keys sorted, no white space, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
