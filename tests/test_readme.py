"""The README says what the records say, and leads to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contribbot.queue.load import load_queue
from docs.readme import rewritten
from tests.contribute.tracked import tracked_queue

ROOT = Path(__file__).parent.parent


def test_the_table_is_what_the_records_say() -> None:
    text = (tracked_queue() / "README.md").read_text("utf-8")
    assert rewritten(text.replace("| `rmsnorm`, ", ""), load_queue(tracked_queue())) == text, (
        "run `make readme`"
    )


@pytest.mark.parametrize("page", ["README.md", "docs/concepts.md", "docs/report.md"])
def test_what_a_page_links_is_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)[)#]|(?:src|srcset)=\"([^\"]+)\"", text)
    assert links
    for link in (one or other for one, other in links):
        place = (ROOT / page).parent / link
        assert place.is_file(), link
        assert place.suffix != ".png" or place.stat().st_size < 200_000
