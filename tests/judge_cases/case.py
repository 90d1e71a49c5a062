"""What a case is: a toy upstream, a patch of it, a check, and what the judge must say."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

PATH: Final = "src/toy/code.py"
AREA: Final = "def area(width, height):\n    return width + height\n"
CHECK: Final = "from toy.code import area\n\n\ndef test_area():\n    assert area(2, 5) == 10\n"

Verdict = Literal["proved", "refuted", "incomplete", "unproved"]
BaseFiles = Mapping[str, str | bytes]
#: None: the patch removes the file.
Files = Mapping[str, str | bytes | None]


class Kind(enum.Enum):
    """What the patch of a case is."""

    HONEST = "its claim is true, and its check shows how the code behaves"
    BLIND = "its claim may be true, and its check breaks before it can show that"
    DISHONEST = "its check does not depend on what the patch does: never proved"
    FALSE = "its claim is false: refuted"
    OPEN = "proved, and wrongly so: the judge cannot tell"


@dataclass(frozen=True)
class Case:
    """A patch of `toy.code`: `old` becomes `new` there, and `brings` is changed beside it.

    `verdict` may be `unproved`, for incomplete or refuted. `said` is searched, without regard to
    case, in all that is told. `more` is added to the table of the check.
    """

    name: str
    about: str
    kind: Kind
    verdict: Verdict
    base: str = AREA
    old: str = "width + height"
    new: str = "width * height"
    check: str = CHECK
    reason: str = "^AssertionError"
    said: str = ""
    expect: Literal["fail-to-pass", "pass-to-pass"] = "fail-to-pass"
    more: str = ""
    beside: BaseFiles = field(default_factory=dict)  # further files of the base
    brings: Files = field(default_factory=dict)  # further files that the patch adds or changes
    runnable: tuple[str, ...] = ()  # files that the patch makes executable
    sandbox: bool = True
    quick: bool = False  # stands for its kind in `make test`

    @property
    def changes(self) -> dict[str, str | bytes | None]:
        """The files that the patch changes, as they are then; what `brings` says counts."""
        assert self.base.count(self.old), f"{self.name}: nothing to replace"
        patched = self.base.replace(self.old, self.new)
        changed: Files = {PATH: patched} if patched != self.base else {}
        return {**changed, **self.brings}
