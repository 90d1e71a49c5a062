"""`contribbot report`: what the pages say, what they never hold, and how they get into a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from selenium.webdriver import Chrome

from tests.browser import Scheme, chromium, show
from tests.conftest import Program
from tests.contribute.tracked import tracked_queue
from tests.github.npm import brought
from tests.toy import contents

ROOT = Path(__file__).parent.parent
RECORDS = len([*ROOT.glob("evidence/*/*.json")])
HOSTILE = "<script>alert(1)</script> \u202e{{ 7 * 7 }} $x^2$ \x07 ]]> &lt;"


BROWSER = pytest.mark.tool("chromium", "chromedriver", "npm")
#: Everything of an audit but what a person has to look at.
_AUDIT = (
    "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']})"
    ".then(found => done(found.violations.map(each => [each.id, each.nodes[0].html,"
    " each.nodes[0].failureSummary].join('\\n'))), error => done([String(error)]))"
)
_LINKS = (
    "return [...document.querySelectorAll('[href], [src]')]"
    ".map(e => e.getAttribute('href') ?? e.getAttribute('src'))"
)
#: How much wider than the screen the page is, and what sticks out of it, but for boxes that scroll.
_WIDE = (
    "const wide = document.documentElement.clientWidth;"
    "const out = e => !e.closest('.scroll, svg') && e.getBoundingClientRect().right > wide + 1;"
    "return [document.documentElement.scrollWidth - wide,"
    " ...[...document.querySelectorAll('body *')].filter(out).map(e => e.outerHTML.slice(0, 200))]"
)


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def pages(real: Path) -> list[Path]:
    """Return the first page, and each patch's."""
    found = sorted(real.rglob("*.html"))
    assert len(found) == 6
    return found


@BROWSER
@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_screen_and_nothing_goes_wrong(
    browser: Chrome, real: Path, width: int
) -> None:
    for page in pages(real):
        show(browser, page, width, "light")
        assert browser.execute_script(_WIDE) == [0], page.name
        log = browser.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types here
        assert log == [], page.name


@BROWSER
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Chrome, real: Path, scheme: Scheme) -> None:
    axe = (brought("axe-core") / "node_modules/axe-core/axe.min.js").read_text()
    # These have every part of a page; what is folded, such as a diff, takes long.
    for name in ("index", "patches/fp8-hw-convert", "patches/hipify-path"):
        show(browser, real / f"{name}.html", 1440 if scheme == "light" else 360, scheme)
        if name == "patches/hipify-path":
            browser.execute_script(
                "for (const e of document.querySelectorAll('details')) e.open = 1"
            )
        browser.execute_script(axe)
        assert browser.execute_async_script(_AUDIT) == [], name


@BROWSER
def test_every_link_leads_somewhere(browser: Chrome, real: Path) -> None:
    for page in pages(real):
        show(browser, page, 1440, "light")
        for link in browser.execute_script(_LINKS):
            parts = urlsplit(link)
            if parts.scheme:
                fine = link == "data:," or (parts.scheme, parts.netloc) == ("https", "github.com")
                assert fine, link
                assert re.fullmatch(r"https://[\w./%@+-]+(#[\w-]+)?|data:,", link), link
                continue
            file = page.parent / unquote(parts.path) if parts.path else page
            assert file.is_file(), (page.name, link)
            assert not parts.fragment or f'id="{parts.fragment}"' in file.read_text(), link
