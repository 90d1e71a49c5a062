from __future__ import annotations

from collections.abc import Iterator

import pytest

from contribbot.contribute.duplicates import look_file
from contribbot.contribute.model import Gate, RowState
from contribbot.github.waits import Waits
from tests.contribute.gatetoy import Table
from tests.github.faults import WIRE_FAULTS, Fault, Faults, each
from tests.github.wire import Answer, Request
from tests.toy import AREA

OTHERWISE = AREA.replace("return width + height", "return height * width")


#: What may pass when the request is made again, or only spoils this one answer.
PASSING = [fault for fault in WIRE_FAULTS if fault.passing]
LASTING = [fault for fault in WIRE_FAULTS if not fault.passing]
#: Patient in number, not in time.
WAITS = Waits(say=lambda _: None, sleep=lambda _: None, attempts=3, longest=10_000.0)


def gates(table: Table, fault: Fault) -> Iterator[Gate]:
    """Yield the gate with a fault at each of its requests in turn."""
    table.github.state.rate_limits.update(core=100_000, search=100_000)
    faults = Faults()
    table.github.hooks.append(faults)
    total = table.requests()
    for number in range(1, total + 1):
        look_file(table.queue, "area").unlink(missing_ok=True)
        faults.arm(fault, number=number)
        yield table.gate(waits=WAITS)
        assert len(faults.struck) == number
        faults.clear()


@pytest.mark.parametrize("fault", each(LASTING))
def test_a_fault_that_stays_is_never_a_pass(table: Table, fault: Fault) -> None:
    table.pull("otherwise", {"src/toy/area.py": OTHERWISE})
    whole = {row.rule: row.state for row in table.gate().rows}
    for gate in gates(table, fault):
        changed = [row for row in gate.rows if row.state is not whole[row.rule]]
        assert all(row.state in {"not known", "failed", "for a person"} for row in changed), changed
        assert gate.of(RowState.UNKNOWN) or gate.limits or changed


@pytest.mark.parametrize(("times", "state"), [(0, "not known"), (1, "passed")])
def test_where_every_search_is_refused_nothing_is_known(
    table: Table, times: int, state: str
) -> None:
    def refuses(_faults: Faults, _request: Request) -> Answer:
        words = "The listed users and repositories cannot be searched"
        return Answer(422, {"message": "Validation Failed", "errors": [{"message": words}]})

    faults = Faults()
    table.github.hooks.append(faults)
    faults.arm(Fault("refuses", before=refuses), path="^/search/issues$", number=2, times=times)
    if times == 0:
        faults.arm(Fault("refuses", before=refuses), path="^/search/issues$", times=1)
    row = table.row("duplicates")
    assert row.state == state
    if times == 0:
        assert "cannot be searched" in row.seen
    else:
        assert any("was refused" in limit for limit in table.gate().limits)
