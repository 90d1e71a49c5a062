from __future__ import annotations

from pathlib import Path

from contribbot.contribute.gate import judge
from contribbot.queue.load import load_queue
from tests.contribute.gatetoy import Proved, edit

PATCH = "patches/area/0001-change.patch"


def test_the_trailer_is_shown_so_that_a_person_sees_whom_it_names(
    proved: Proved, tmp_path: Path
) -> None:
    toy = proved.copy(tmp_path)
    edit(toy, "Assisted-by: A model", "Assisted-by: Eve, by hand \x1b[2J", PATCH)
    row = next(
        one for one in judge(load_queue(toy.queue), "area", None).rows if one.rule == "ai-trailer"
    )
    assert (row.state, row.seen) == ("passed", "in the commit: Assisted-by: Eve, by hand")
