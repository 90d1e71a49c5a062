"""Observations of the gate, each a code with facts; all sentences of the gate's rows."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from contribbot.contribute.model import RowState

Fact: TypeAlias = str | int | float | tuple[str, ...]
PASSED, FAILED, PERSON = RowState.PASSED, RowState.FAILED, RowState.PERSON
_LOOK: Final = "{found} found in {days} days, {looked_into} of them looked into"
_TABLE: Final = "[contribution] of patch.toml"
_NAME_IT: Final = f"name it as `issue` in {_TABLE}"
_RETIRE: Final = "contribbot queue retire {patch}"
_NOWHERE: Final = f"propose it nowhere: {_RETIRE}; or correct patch.toml"
_EDIT: Final = "contribbot edit {patch}"
_DIFFERENT: Final = 'contribbot gate {patch} --different {first}="why this one is different"'
_SIGN: Final = f"{_EDIT}; git rebase --signoff"
_VERIFY: Final = "contribbot verify {patch}"
_BEHIND: Final = "{head} is {behind} commits behind {base}"
_OPEN: Final = "contribbot open-pr {patch}"


@dataclass(frozen=True)
class Observation:
    """The finding of a check: a code with sentences, and the facts that fill the sentences."""

    code: RuleCode
    facts: Mapping[str, Fact]

    @property
    def seen(self) -> str:
        """The sentence on what the check saw."""
        return self.code.seen.format_map(self._words)

    @property
    def next(self) -> str:
        """The next step for a person; empty: no step."""
        return self.code.next.format_map(self._words)

    @property
    def _words(self) -> dict[str, str | float]:
        return {
            key: ", ".join(fact) if isinstance(fact, tuple) else fact
            for key, fact in self.facts.items()
        }


class RuleCode(enum.Enum):
    """The codes of all observations; each has the state, sentence and next step of a row."""

    state: RowState
    seen: str
    next: str

    def __new__(cls, state: RowState, seen: str, next_: str = "") -> Self:
        """Make a code; codes with equal words stay different."""
        code = object.__new__(cls)
        code._value_ = len(cls.__members__)
        code.state, code.seen, code.next = state, seen, next_
        return code

    def __call__(self, **facts: Fact) -> Observation:
        """Return an observation of this code, with the facts for its words."""
        return Observation(self, facts)

    NOT_ASKED_FOR = PASSED, "not asked for"
    OFFLINE = RowState.NOT_LOOKED_AT, "GitHub was not asked"
    NO_ANSWER = RowState.UNKNOWN, "{message}", "{hint}"
    REFUSED = FAILED, "{message}", "{hint}"
    NO_TEXT_YET = PERSON, "not known before the text can be made"

    SOMEBODY_ELSES = FAILED, "it is {pull}, somebody else's", "contribbot body {patch} --comment"
    NO_DUPLICATE = PASSED, f"none: {_LOOK}"
    ANSWERED = PASSED, f"each of {{count}} is answered in [contribution]: {_LOOK}"
    DUPLICATES = (FAILED, f"{{count}} without an answer: {{some}}: {_LOOK}", _DIFFERENT)

    NOT_TURNED_DOWN = PASSED, "none was closed without being merged, of any age"
    TURNED_DOWN_ANSWERED = PASSED, "each of {count} is answered in [contribution]"
    TURNED_DOWN = (
        FAILED,
        "{count} closed without being merged: {some}; a maintainer's last word on {first}: {word}",
        _DIFFERENT,
    )
    CLOSED_UNSAID = FAILED, "{count} closed without being merged: {some}", _DIFFERENT

    SUPERSEDED = FAILED, "{why}", _NOWHERE
    NO_EXPIRY = PASSED, "nothing says so, and no `expires_when` is stated"
    NOT_EXPIRED = PASSED, "{conditions}"
    MAYBE_EXPIRED = PERSON, "{conditions}", f"if that has come: {_NOWHERE}"

    TITLE = PASSED, "{title}"
    ANY_TITLE = PASSED, "{title} (the upstream has no pattern; usual: {usual})"
    OTHER_TITLE = FAILED, "{title}: not in the form {usual}", "change `title` in patch.toml"

    SIGNED_BY_NO_PERSON = FAILED, "signed off by nobody: {why}", f"{_SIGN} --reset-author"
    NOT_SIGNED = FAILED, "no Signed-off-by of the author {author} in {file}", _SIGN
    SIGNED = PASSED, "signed off by the author in {commits}"
    TRAILER_WAITS = PERSON, f"a trailer waits for how AI was used: `ai` in {_TABLE}"
    NO_TRAILER = (
        FAILED,
        "AI was used, and no trailer says so in {file}",
        f"add one such as `Assisted-by: NAME`: {_EDIT}",
    )
    TRAILERS = PASSED, "in {commits}: {trailers}"

    NO_ISSUE = (
        FAILED,
        "the upstream wants a linked issue, and none is named",
        f"open one (`contribbot body {{patch}}` has the text) or find one, and {_NAME_IT}",
    )
    ISSUE_ABSENT = FAILED, "there is no {issue}", f"correct `issue` in {_TABLE}"
    ISSUE_MOVED = FAILED, "{issue} is {place} now", f"correct `issue` in {_TABLE}"
    ISSUE_IS_PULL = (
        FAILED,
        "{issue} “{title}” is a pull request",
        f"correct `issue` in {_TABLE}, or name it in `related`",
    )
    ISSUE_CLOSED = (
        PERSON,
        "{issue} “{title}” is closed",
        "read there why, and say in the text what is still wrong",
    )
    ISSUE_OPEN = PASSED, "{issue} “{title}” is open"

    TESTS = PASSED, "{tests}"
    NO_TEST = (
        FAILED,
        "no file below {folders} is touched",
        f"bring a test that fails on the base: {_EDIT}",
    )
    UNWRITTEN = FAILED, "{keys} not written yet", "write it in patch.toml"
    OWN_WORDS = PERSON, "still to write: {wants}"
    WANTS = FAILED, "still to write: {wants}", f"write it in {_TABLE}"
    LONG = (
        FAILED,
        "{words} words {place}, and {most} may be",
        f"say less in problem, root_cause and solution, or in summary and claims of {_TABLE}",
    )
    TEXT = PASSED, "{words} words of {most}, {visible} seen at once, {template}"

    EVIDENCE = PASSED, "fresh: {files}"
    NOT_STATED = (
        FAILED,
        "required, and the patch states nothing for it: {targets}",
        "state a check for it in patch.toml",
    )
    REQUIRED_OPEN = (
        FAILED,
        "required, and not proved: {targets}",
        f"{_VERIFY}, on a machine that has it",
    )
    REQUIRED = PASSED, "required and proved: {targets}"
    OTHER_TRITON = (
        FAILED,
        "compiled with {others}, and {pin} ships triton {triton} ({source}, read {date})",
        _VERIFY,
    )
    SILENT = (
        FAILED,
        "the text does not say: not run on {targets}",
        "let the template have `not_run`; see docs/upstreams.md",
    )
    NOT_RUN = (
        PERSON,
        "not run: {targets}",
        f"the text says so; on such a machine: {_VERIFY}; or let the upstream's CI do it",
    )
    RUN = PASSED, "something ran on each target that the patch is for"

    TIMED = PASSED, "measured on {targets}"
    NOT_TIMED = (
        FAILED,
        "the title promises speed on {place}: measured on {targets}",
        f"a [[bench]] there (docs/bench.md): {_VERIFY}; or another title",
    )
    END_TO_END = PASSED, "{said}"
    NO_END_TO_END = (
        FAILED,
        "nothing says that it was run end to end, or why it was not",
        f"run it, or write `not run: why`, as `model_evaluation` in {_TABLE}",
    )
    SMALL = PASSED, "{lines} changed lines outside tests"
    LARGE = (
        PERSON,
        "{lines} changed lines outside tests; a reviewer reads {most} at once",
        "split it: contribbot queue split {patch} NEW PATH… (docs/queue.md)",
    )
    STYLE = FAILED, "a reviewer would mind {minded}", f"mend it: {_EDIT}"

    NO_TEMPLATE = PERSON, "{repository} has no {path} any more", "see where its template is now"
    TEMPLATE_CHANGED = PERSON, "{changes}", "see whether the text still answers what it asks"
    TEMPLATE = PASSED, "{path} has the headings of {version}"
    NO_DOCS = (
        PERSON,
        "nothing says whether users see a change",
        f"name the paths that document it, or `none needed: why`, as `docs` in {_TABLE}",
    )
    NO_DOCS_NEEDED = PERSON, "{docs}"
    DOCS = PASSED, "{paths}"
    DOCS_ABSENT = (
        FAILED,
        "`docs` names no file that the patch touches: {docs}",
        f"bring it, or write `none needed: why`, in {_TABLE}",
    )

    NOBODY = (
        FAILED,
        "nobody has read it and run it",
        "a person does it: contribbot attest {patch}",
    )
    NO_PERSON = FAILED, "{why}", f"name who stands for it, as `person` in {_TABLE}"
    PERSON_WAITS = PERSON, "{name}; whether {record} holds is not known before there is a text"
    PERSON_NOT_FRESH = FAILED, "{record} is no fresh record of {patch}", _VERIFY
    STANDS = PASSED, "{name} <{email}> ran {ran}: {record}"
    BY_HAND = PERSON, "{steps}"

    BELOW_FIRST = PERSON, "{message}", "{hint}"
    BELOW_WAITS = PASSED, "waits for {pulls}"
    BELOW_MERGED = PASSED, "all that it depends on is merged"
    NO_PULLS = FAILED, "{repository} {why}", "look on its page for where it takes changes"
    RENAMED = PERSON, "{stated} is called {repository} now", "correct upstreams/NAME.toml"
    UPSTREAM = PASSED, "{repository}, branch {branch}"
    WRITE_ACCESS = PASSED, "no limit for {login}, who has write access"
    TOO_MANY_OPEN = FAILED, "{login} has {count} open, {most} at most", "finish one of them first"
    SEARCH_CUT = (
        RowState.UNKNOWN,
        "{login} has {count} open, {most} at most, and GitHub did not finish the search",
        "run it again in some minutes",
    )
    FEW_OPEN = PASSED, "{login} has {count} open, {most} at most"

    NONE_OPENED = PASSED, "none was opened yet"
    LANDED = FAILED, "{pull}: {why}", _RETIRE
    REOPENED = PASSED, "{pull}: {why}; open-pr opens another from {branch}"
    CLOSED = (
        FAILED,
        "{pull}: {why}",
        f"read there why; reopen it, or name another `branch` in {_TABLE}",
    )
    NO_BRANCH = FAILED, "{fork} has no branch {branch}", _OPEN
    BEHIND = PERSON, _BEHIND, f"{_OPEN} --up-to-date"
    TOO_FAR_BEHIND = FAILED, _BEHIND, f"{_OPEN} --up-to-date"
    CURRENT = PASSED, "{pull} is open, and {head} has all of {base}"


#: Codes that a person must deal with before attesting; codes that `open-pr` mends.
FIRST: Final = frozenset({RuleCode.OWN_WORDS, RuleCode.BELOW_FIRST})
MENDED_BY_OPENING: Final = frozenset({RuleCode.NO_BRANCH, RuleCode.BEHIND, RuleCode.TOO_FAR_BEHIND})


class NoPerson(enum.Enum):
    """The reasons why a name and an address are not a person's."""

    NO_ADDRESS = "{email} is no address"
    PROGRAM = "{email} is a program's"
    AI = "{name} is an AI"

    def words(self, name: str, email: str) -> str:
        """Return the reason in words, about a name and an address."""
        return self.value.format(name=name, email=email)
