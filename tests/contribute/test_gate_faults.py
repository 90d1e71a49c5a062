from __future__ import annotations

from collections.abc import Iterator

import pytest

from contribbot.contribute.duplicates import look_file
from contribbot.contribute.model import Gate, RowState
from tests.contribute.gatetoy import OTHERWISE, Table
from tests.github.faults import WIRE_FAULTS, Fault, each
from tests.github.wire import Answer

LASTING = [fault for fault in WIRE_FAULTS if not fault.passing]


def gates(table: Table, fault: Fault) -> Iterator[Gate]:
    """Yield the gate with a fault at each of its requests in turn."""
    table.github.state.rate_limits.update(core=100_000, search=100_000)
    total, faults = table.asked(), table.faults
    for number in range(1, total + 1):
        look_file(table.queue, "area").unlink(missing_ok=True)
        faults.arm(fault, number=number)
        yield table.gate()
        assert len(faults.struck) == number
        faults.clear()


@pytest.mark.parametrize("fault", each(LASTING))
def test_a_fault_that_stays_is_never_a_pass(table: Table, fault: Fault) -> None:
    table.pull("otherwise", OTHERWISE)
    whole = {row.rule: row.state for row in table.gate().rows}
    for gate in gates(table, fault):
        changed = [row for row in gate.rows if row.state is not whole[row.rule]]
        assert all(row.state in {"not known", "failed", "for a person"} for row in changed), changed
        assert gate.of(RowState.UNKNOWN) or gate.limits or changed


@pytest.mark.parametrize(("number", "state"), [(1, "not known"), (2, "passed")])
def test_where_every_search_is_refused_nothing_is_known(
    table: Table, number: int, state: str
) -> None:
    words = "The listed users and repositories cannot be searched"
    answer = Answer(422, {"message": "Validation Failed", "errors": [{"message": words}]})
    refuses = Fault("refuses", before=lambda _faults, _request: answer)
    times = 0 if number == 1 else 1
    table.faults.arm(refuses, path="^/search/issues$", number=number, times=times)
    row = table.row("duplicates")
    assert row.state == state
    if state == "not known":
        assert "cannot be searched" in row.seen
    else:
        assert any("was refused" in limit for limit in table.gate().limits)
