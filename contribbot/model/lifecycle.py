"""The state of a patch at a release: how it applies, and what its checks show without it."""

from __future__ import annotations

import enum
import operator

from pydantic import ConfigDict, Field, computed_field

from contribbot.model.base import Loose, Many, Model


class Says(enum.StrEnum):
    """The outcome of a fail-to-pass entry on a tree without the patch."""

    #: All tests of the entry passed, and some test ran.
    PASSES = "passes"
    #: The entry fails, in every case as the patch states.
    FAILS = "fails"
    #: The entry fails in another way, or needs what no release has: no answer.
    OTHER = "other"
    #: This machine lacks hardware or software that the entry needs.
    CANNOT = "cannot"


class Need(enum.StrEnum):
    """Whether a release still needs a patch, by the outcomes of the patch's checks."""

    #: Every entry passes without the patch.
    SUPERSEDED = "superseded"
    #: Some entries pass without the patch; others fail, or cannot run here.
    PARTLY = "partly superseded"
    #: At least one entry still fails as stated without the patch, and no entry passes.
    NEEDED = "needed"
    #: Neither a pass nor a failure was seen.
    UNCLEAR = "unclear"


class Entry(Model):
    """A fail-to-pass entry of a patch, run on a tree without the patch."""

    label: str
    target: str
    says: Loose[Says]
    reason: str
    cached: bool = False


class Behaviour(Model):
    """The outcomes of a patch's fail-to-pass checks on a release without the patch."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    patch: str
    pin: str
    commit: str = ""
    below: Many[str] = ()
    entries: Many[Entry] = ()
    moved: dict[str, str] = Field(default_factory=dict)
    trouble: str = ""

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def verdict(self) -> Need:
        """Whether the release still needs the patch."""
        answers = {entry.says for entry in self.entries}
        if Says.PASSES in answers:
            return Need.SUPERSEDED if answers == {Says.PASSES} else Need.PARTLY
        return Need.NEEDED if Says.FAILS in answers else Need.UNCLEAR

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def why(self) -> str:
        """The reason for the verdict, and the entries without an answer, in a line."""
        if self.trouble:
            return self.trouble
        if not self.entries:
            return "the patch states nothing that fails without it"
        fails, passes, other, cannot = (
            [entry for entry in self.entries if entry.says is says]
            for says in (Says.FAILS, Says.PASSES, Says.OTHER, Says.CANNOT)
        )
        parts = (
            f"{fails[0].label} still fails as stated: {fails[0].reason}" if fails else "",
            f"{len(passes)} of {len(self.entries)} pass without the patch" if passes else "",
            f"{len(other)} show nothing ({other[0].label}: {other[0].reason})" if other else "",
            f"{len(cannot)} cannot run here" if cannot else "",
        )
        return "; ".join(filter(None, parts))


class Text(enum.StrEnum):
    """How a patch applies to a release."""

    #: The patch applies exactly.
    CLEAN = "clean"
    #: The patch applies at other lines.
    OFFSET = "offset"
    #: The patch was merged without a conflict.
    MERGED = "merged"
    CONFLICT = "conflict"
    #: The release has all of the patch already.
    UPSTREAM = "upstream"
    #: A dependency of the patch does not apply.
    BLOCKED = "blocked"
    #: This machine cannot know whether the patch applies; `why` has the reason.
    UNKNOWN = "unknown"


class TargetState(Model):
    """A target, and the state of a patch's records for the target."""

    target: str
    evidence: str


class Due(Model):
    """A condition in `expires_when`, whether it is met (None: unknown), and why."""

    condition: str
    come: bool | None
    why: str


class PatchStatus(Model):
    """The state of a patch on its pin or at another release."""

    patch: str
    upstream: str
    pin: str
    against: str
    text: Loose[Text]
    text_why: str
    behaviour: Behaviour | None
    evidence: Many[TargetState]
    contribution: str
    due: Many[Due]
    versions: int
    #: Why the patch must not be proposed; empty: no reason is known.
    superseded: str = Field(default="", exclude_if=operator.not_)


class ConflictSide(Model):
    """A conflict at a hunk or file: the expected, the found and the wanted lines."""

    headline: str
    patch_file: str
    path: str
    hunk: int
    why: str
    line: int
    expected: Many[str]
    found: Many[str]
    wanted: Many[str]
