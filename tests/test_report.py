"""`contribbot report`: what the pages say, what they never hold, and how they get into a folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.contribute.tracked import tracked_queue
from tests.toy import contents

ROOT = Path(__file__).parent.parent
RECORDS = len([*ROOT.glob("evidence/*/*.json")])
HOSTILE = "<script>alert(1)</script> \u202e{{ 7 * 7 }} $x^2$ \x07 ]]> &lt;"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of this repository's own queue."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(folder / "cache"))
        ran = Program(tracked_queue())("report", "--html", folder / "site")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{folder / 'site'}/index.html: 6 pages; records: {RECORDS} fresh\n"
    return folder / "site"


def test_the_real_queue(real: Path) -> None:
    index = (real / "index.html").read_text()
    assert "<strong>Nothing here has run on an AMD GPU.</strong>" in index
    assert index.count('<th scope="row">') == 5
    page = (real / "patches/rmsnorm.html").read_text()
    red, green = (
        page.index("AiterContractError: rmsnorm2d_fwd: input must be 2-D"),
        page.index("137 tests pass"),
    )
    assert 0 < red < green
    assert "https://github.com/sgl-project/sglang/blob/v0.5.10.post1/python/sglang" in page
    assert (real / "evidence/rmsnorm/x86_64-cpu-57ede66c.json").read_bytes() == (
        ROOT / "evidence/rmsnorm/x86_64-cpu-57ede66c.json"
    ).read_bytes()
    for name in ("patches/stable-softmax.html", "patches/fp8-hw-convert.html"):
        text = (real / name).read_text()
        assert (
            re.findall(r'(?:src|href)="(?!https://github\.com/|#|data:|\.\./|[\w.-]+\.html)', text)
            == []
        )
        assert 'role="img"' in text
        assert "#0101" not in text


def test_the_same_queue_gives_the_same_bytes(real: Path, program: Program, tmp_path: Path) -> None:
    assert program("--queue", tracked_queue(), "report", "--html", tmp_path / "site").code == 0
    assert contents(tmp_path / "site") == contents(real)
