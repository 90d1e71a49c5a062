"""The README says what the records say, and leads to what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_table_is_what_the_records_say() -> None:
    done = subprocess.run([sys.executable, "-m", "docs.readme", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "README.md is not what the records say: run `make readme`"


@pytest.mark.parametrize("page", ["README.md", "docs/concepts.md", "docs/report.md"])
def test_what_a_page_links_is_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)[)#]|(?:src|srcset)=\"([^\"]+)\"", text)
    assert links
    for link in (one or other for one, other in links):
        place = (ROOT / page).parent / link
        assert place.is_file(), link
        assert place.suffix != ".png" or place.stat().st_size < 200_000
