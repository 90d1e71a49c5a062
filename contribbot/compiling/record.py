"""What a record keeps of two compiles: small, without folders, with every number compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from contribbot.compiling.cache import Compiled
from contribbot.compiling.judge import Judgement, counted
from contribbot.compiling.listing import by_class
from contribbot.compiling.pairs import COLUMNS, Row, pair_kernels, rows_of
from contribbot.model.proofs import Compile

#: Rows that a record keeps of one target; the worst come first.
_ROWS: Final = 150
_NAMES: Final = 20


def details_of(
    entry: Compile, target: str, base: Compiled, patched: Compiled, judgement: Judgement
) -> dict[str, JsonValue]:
    """Return what the record keeps of an entry for one target."""
    name = f"{entry.name} [{target}]"
    red = judgement.red if entry.expect == "fail-to-pass" else base.error
    amiss = judgement.amiss or patched.error
    rows = rows_of(pair_kernels(counted(entry, base.listing), counted(entry, patched.listing)))
    shown = rows[:_ROWS]
    return {
        "kind": entry.kind,
        "source": entry.source,
        "expect": entry.expect,
        "stated_reason": entry.reason,
        "command": patched.command or base.command,
        "base": _side(entry, target, base, name, base.crashed or base.missing or red),
        "patched": _side(entry, target, patched, name, patched.crashed or patched.missing or amiss),
        "table": {
            "columns": list(COLUMNS),
            "rows": [row.to_json() for row in shown],
            "left_out": {
                "changed": sum(row.count for row in rows[_ROWS:] if row.changed),
                "unchanged": sum(row.count for row in rows[_ROWS:] if not row.changed),
            },
        },
    }


def rows_in(details: dict[str, JsonValue]) -> list[Row]:
    """Return the rows of a record's table; none where it has no table of this kind."""
    table = details.get("table")
    if not isinstance(table, dict) or table.get("columns") != list(COLUMNS):
        return []
    rows = table.get("rows")
    found = map(Row.from_json, rows if isinstance(rows, list) else [])
    return [row for row in found if row is not None]


def left_out_of(details: dict[str, JsonValue]) -> tuple[int, int]:
    """Return how many changed and unchanged kernels a record's table leaves out."""
    table = details.get("table")
    told = table.get("left_out") if isinstance(table, dict) else None
    counts = [told.get(name) if isinstance(told, dict) else 0 for name in ("changed", "unchanged")]
    changed, unchanged = (one if isinstance(one, int) else 0 for one in counts)
    return changed, unchanged


def _side(
    entry: Compile, target: str, side: Compiled, name: str, wrong: str
) -> dict[str, JsonValue]:
    kernels = counted(entry, side.listing)
    failure: dict[str, JsonValue] = {"test": name, "when": "compile", "message": wrong}
    told: dict[str, JsonValue] = {
        "failed": [failure] if wrong else [],
        "passed": [] if wrong else [name],
        "seconds": round(side.seconds, 3),
        "remembered": side.cached,
    }
    if side.listing is None:
        return told
    named = {
        mnemonic: {
            "kernels": sum(mnemonic in one.mnemonics for one in kernels),
            "times": sum(one.mnemonics.get(mnemonic, 0) for one in kernels),
        }
        for mnemonic in entry.instructions.get(target, ())
    }
    return told | {
        "kernels": len(kernels),
        "instructions": sum(one.instructions for one in kernels),
        "classes": {**by_class(kernels)},
        "named": {mnemonic: {**counts} for mnemonic, counts in named.items()},
        "not_inlined": dict(list(side.listing.functions.items())[:_NAMES]),
        "unresolved": _some(side.listing.unresolved),
    }


def _some(names: Sequence[str]) -> list[JsonValue]:
    return list(names[:_NAMES])
