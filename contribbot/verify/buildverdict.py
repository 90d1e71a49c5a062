"""Judging a build by its two sides."""

from __future__ import annotations

import re

from contribbot.model.outcome import Outcome
from contribbot.model.proofs import Build
from contribbot.verify.buildside import Side


def judge_build(build: Build, base: Side, patched: Side) -> tuple[Outcome, str]:
    """Return the outcome of a build and one line that says why."""
    sides = (("base", base), ("patched tree", patched))
    for name, side in sides:
        if side.lacking:
            # This machine could not do it: that says nothing of the patch.
            return Outcome.UNAVAILABLE, f"on the {name}: {side.lacking}"
    crashed = next((f"on the {name}: {side.crash}" for name, side in sides if side.crash), "")
    wrong = crashed or _wrong_on_patched(base, patched) or _wrong_on_base(build, base)
    if wrong:
        return Outcome.FAILED, wrong
    if build.expect == "pass-to-pass":
        return Outcome.PASSED, "the base and the patched tree build"
    return (
        Outcome.PASSED,
        f"the base does not build, as stated, the patched tree does: {base.error}",
    )


def _wrong_on_patched(base: Side, patched: Side) -> str:
    if not patched.wrong:
        return ""
    also = ", nor does the base" if base.wrong else ""
    return f"the patched tree does not build{also}: {patched.wrong}"


def _wrong_on_base(build: Build, base: Side) -> str:
    if build.expect == "pass-to-pass":
        return f"the base does not build: {base.wrong}" if base.wrong else ""
    if base.absent:
        return f"the base is broken there, not wrong: {base.wrong}"
    if not base.error:
        return "the base builds, so it shows nothing"
    if not re.search(build.reason, base.error):
        return f"the base does not build for another reason than stated: {base.error}"
    return ""
