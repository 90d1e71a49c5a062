"""`contribbot evidence report`: what the pages say, what they never hold, where they go."""

from __future__ import annotations

import html
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from selenium.webdriver import Chrome

from contribbot.contribute.figures import figure_of, headline
from contribbot.model.evidence import Machine, Outcome, StageResult, Verdict, target_order
from contribbot.model.record import MeasuredCase
from contribbot.queue import history
from contribbot.queue.history import PullRequestEvent
from contribbot.queue.load import load_queue
from contribbot.report import intervals
from contribbot.report.story import RUN, CellLine, Mark, column, places_of
from contribbot.verify.evidence import Record, Source, State, judge_record, write_evidence
from tests.browser import Scheme, chromium, show
from tests.conftest import Program, dig, once
from tests.contribute.tracked import tracked_queue
from tests.github.npm import brought
from tests.records import NUMERICS, SIDES, made_up, seen
from tests.toy import CHECKS, PASS_TO_PASS, Toy, contents

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/report.md"
PATCHES = len(load_queue(tracked_queue()).own)
RECORDS = len([*tracked_queue().glob("evidence/*/*.json")])
MACHINE = Machine(system="Linux x86_64", cpu="made up", cores=1, python="3.12", git="2",
                  packages={}, rocm="", gpus=())  # fmt: skip
#: What would run, load, or mislead, if a page took it for more than text.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \u202e{{ 7 * 7 }} $x_2$ ]]>"


@pytest.fixture(scope="module")
def real(shared: Path) -> Path:
    return once(shared / "report", make_report)


def make_report(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(folder / "cache"))
        ran = Program(tracked_queue())("evidence", "report", folder / "site")
    assert (ran.code, ran.err) == (0, "")
    told = f"{folder / 'site'}/index.html: {PATCHES + 1} pages; records: {RECORDS} fresh"
    assert " ".join(ran.out.split()) == told  # a long path folds the line
    return folder / "site"


def test_the_real_queue(real: Path, program: Program, tmp_path: Path) -> None:
    index = (real / "index.html").read_text()
    assert "<strong>Nothing here has run on an AMD GPU.</strong>" in index
    assert index.count('<th scope="row">') == PATCHES
    page = (real / "patches/rmsnorm.html").read_text()
    red = page.index("AiterContractError: rmsnorm2d_fwd: input must be 2-D")
    assert 0 < red < page.index("85 tests pass")
    assert "https://github.com/sgl-project/sglang/blob/v0.5.10.post1/python/sglang" in page
    (record,) = (tracked_queue() / "evidence/rmsnorm").glob("*-cpu-*.json")
    assert (real / "evidence/rmsnorm" / record.name).read_bytes() == record.read_bytes()
    outside = r'(?:src|href)="(?!https://github\.com/|#|data:|\.\./|[\w.-]+\.html)'
    for name in ("patches/stable-softmax.html", "patches/fp8-hw-convert.html"):
        text = (real / name).read_text()
        assert re.findall(outside, text) == []
        assert ('role="img"' in text, "#0101" in text) == (True, False)
    # The same queue gives the same bytes.
    program.ok("--queue", tracked_queue(), "evidence", "report", tmp_path / "site")
    assert contents(tmp_path / "site") == contents(real)


@pytest.fixture
def proved(toy: Toy, program: Program, outcome_cache: None) -> Path:
    del outcome_cache
    toy.put_area()
    program.ok("verify", "area")
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("change", "states", "page"),
    [
        (lambda _: None, "1 fresh", "proved</span> on cpu: fails without the patch"),
        (lambda path: edit(path.parents[2] / "patches/area/checks/test_same.py", "9, 3", "9, 3.0"),
         "1 stale", "stale: passed before a change"),
        (lambda path: edit(path, '"verdict": "proved"', '"verdict": "refuted"'), "1 tampered",
         "its content does not match its seal"),
        (lambda path: path.rename(path.with_name("other.json")), "1 foreign", "its place is"),
        (Path.unlink, "none", "no fresh record</span>: contribbot verify area makes one"),
    ],
    ids=["fresh", "stale", "tampered", "foreign", "none"],
)  # fmt: skip
def test_only_records_that_hold_count(
    proved: Path, program: Program, change: Callable[[Path], object], states: str, page: str
) -> None:
    change(proved)
    ran = program("evidence", "report", "site")
    missing = "" if states == "1 fresh" else "  no fresh record: area\n"
    assert ran.out == f"site/index.html: 2 pages; records: {states}\n{missing}"
    site = program.cwd / "site"
    assert page in (site / "patches/area.html").read_text()
    index = (site / "index.html").read_text()
    verdict = '<td data-title="state"><span class="pill proved">proved</span>'
    assert (verdict in index) is (states == "1 fresh")
    # What somebody changed is not handed on.
    assert (site / "evidence").exists() is (states in {"1 fresh", "1 stale"})


def test_targets_are_data() -> None:
    targets = ("gfx1100", "emulated:gfx942", "cuda", "gfx942", "cpu", "gfx90a")
    columns = [column(target) for target in sorted(targets, key=target_order)]
    assert [(each.title, each.kind) for each in columns] == [
        ("CPU", "a processor"), ("CUDA", "NVIDIA, not AMD"), ("gfx90a", "AMD"), ("gfx942", "AMD"),
        ("gfx1100", "AMD"), ("gfx942, emulated", "not the hardware itself"),
    ]  # fmt: skip


def line(stage: str, mark: Mark, passed: int, stated: int) -> CellLine:
    return CellLine(title=stage, mark=mark, text="", passed=passed, stated=stated)


PASSED, OPEN = line(RUN, Mark.PASSED, 2, 2), line(RUN, Mark.OPEN, 0, 1)
EMULATED = line("emulate", Mark.PASSED, 1, 1)
#: Lines by target; the column of it, and whether asked.
PLACES: dict[str, tuple[dict[str, CellLine], tuple[str, str, bool]]] = {
    "passed": ({"cpu": PASSED}, ("CPU", "passed", True)),
    "nobody asked": ({"cpu": PASSED}, ("AMD", "not run", False)),
    "a check asks": ({"gfx942": OPEN}, ("AMD", "not run", True)),
    "CUDA alone": ({"cuda": line("build", Mark.PASSED, 1, 1)}, ("AMD", "not run", False)),
    "emulated is no run": ({"emulated:gfx942": EMULATED}, ("AMD", "not run", True)),
    "emulated": ({"emulated:gfx942": EMULATED, "emulated:gfx950": EMULATED},
                 ("emulated", "2 targets", True)),
    "compiled": ({"gfx942": line("compile", Mark.PASSED, 3, 3)},
                 ("compiled", "1 target", True)),
    "built for CUDA": ({"cuda": line("build", Mark.OPEN, 0, 1)},
                       ("compiled", "not compiled", True)),
    "one of two": ({"gfx942": PASSED, "gfx950": OPEN}, ("AMD", "partly", True)),
    "built": ({"gfx942": line("build", Mark.PASSED, 1, 1)},
                           ("compiled", "1 target", True)),
    "failed": ({"gfx942": PASSED, "gfx950": line(RUN, Mark.FAILED, 1, 2)},
               ("AMD", "failed", True)),
    "too noisy": ({"cuda": line(RUN, Mark.NOISY, 0, 1)}, ("CUDA", "too noisy", True)),
    "stale": ({"cuda": line(RUN, Mark.STALE, 0, 1)}, ("CUDA", "stale", True)),
    "nothing is stated": ({"cuda": line(RUN, Mark.OPEN, 0, 0)}, ("CUDA", "not run", False)),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), PLACES.values(), ids=PLACES)
def test_a_column(lines: dict[str, CellLine], expected: tuple[str, str, bool]) -> None:
    cells = [column(name).model_copy(update={"lines": (own,)}) for name, own in lines.items()]
    found = {place.title: place for place in places_of(cells)}
    assert [*found] == ["CPU", "CUDA", "AMD", "compiled", "emulated"]
    assert (expected[0], found[expected[0]].text, found[expected[0]].asked) == expected


def measured(name: str, median: float, low: float = 0.0, high: float = 0.0) -> dict[str, object]:
    side = {"input_sets": 1, "seconds": 1, "low": 1, "high": 1, "rounds": [], "samples": 1}
    low, high = low or median, high or median
    ratio = {"median": median, "low": low, "high": high, "confidence": 0.9, "noise": low < 1 < high}
    return {"case": name, "verdict": "passed", "text": "", "base": side, "patched": side,
            "rounds": 0, "pairs": [], "ratio": ratio}  # fmt: skip


def timed(claim: float, median: float) -> StageResult:
    return seen("bench", "cuda", cases=[measured("a", median)], at_least=claim)


def grid(*ratios: float) -> StageResult:
    output: dict[str, object] = {
        "name": "o", "kind": "error", "dtype": "float32", "shape": [1], "elements": 1,
        "mismatches": 0, "non_finite": 0, "worst_seed": 0, "max_abs": 1.0, "reference_abs": 1.0,
        "allowed": 2.0, "largest": 1.0, "complaint": "",
    }  # fmt: skip
    cell = {"test": "t", "cell": "c", "axes": {}, "seeds": [0], "failed": ""}
    sides = [[{**cell, "outputs": [{**output, "ratio": ratio}]}] for ratio in ratios]
    cells = dict(zip(("base", "patched"), sides, strict=True))
    return seen("numerics", red="wrong", numerics={**NUMERICS, "cells": cells})


FAILED = {"test": "it", "when": "compile", "message": "wrong"}
COMPILED = seen("compile", "gfx942", red="wrong",
                base={**SIDES["compile"], "instructions": 90, "failed": [FAILED]},
                patched={**SIDES["compile"], "instructions": 40})  # fmt: skip
RED = seen("reproduce", red="wrong")
#: Outcomes, and the headline of all of them.
HEADLINES: dict[str, tuple[list[StageResult], str]] = {
    "red to green": ([RED], "fails \u2192 1 pass (CPU)"),
    "emulated": (
        [seen("emulate", "emulated:gfx942", red="wrong")],
        "fails \u2192 1 pass (gfx942, emulated)",
    ),
    "a claimed speed": ([RED, timed(1.2, 1.5)], "1.50x the speed (CUDA)"),
    "a cost is no headline": ([RED, timed(0.9, 0.95)], "fails \u2192 1 pass (CPU)"),
    "an error": ([RED, grid(30.0, 1.5)], "error 30x \u2192 1.5x (CPU)"),
    "compiled": ([COMPILED], "90 instructions \u2192 40 instructions (gfx942, compiled)"),
    "nothing": ([seen("reproduce")], ""),
}


@pytest.mark.parametrize(("results", "said"), HEADLINES.values(), ids=HEADLINES)
def test_the_headline(area: Toy, results: list[StageResult], said: str) -> None:
    queue = load_queue(area.queue)
    made = made_up(queue, "area", MACHINE, outcomes={}, seconds=1, commit=area.commit)
    for verdict, end in (
        (Verdict.PROVED, ")"),
        (Verdict.INCOMPLETE, ", other checks not run there)"),
    ):
        details = made.predicate.contribbot.model_copy(update={"verdict": verdict})
        source = Source("", Record(Path(), State.FRESH, "", made), "", details, "")
        figures = [figure_of(source, result) for result in results]
        assert headline(figures) == said.replace(")", end)


def test_failures_come_first(proved: Path, toy: Toy, program: Program) -> None:
    for name in ("bare", "odd"):
        shutil.copytree(toy.queue / "patches/area", toy.queue / "patches" / name)
    toy.put_queue(["area", "bare", "odd"])
    queue = load_queue(toy.queue)
    known = judge_record(queue, proved).statement
    assert known
    details = known.predicate.contribbot
    broken = made_up(queue, "odd", details.machine, outcomes={"reproduce": Outcome.FAILED},
                     seconds=1.0, commit=toy.commit)  # fmt: skip
    write_evidence(queue.evidence, broken)
    event = PullRequestEvent(
        time=details.finished, summary="s", reference="example/toy#7", state="draft"
    )
    history.append(toy.queue, "area", event)
    program.ok("evidence", "report")
    index = (toy.queue / "site/index.html").read_text()
    rows = re.findall(r'<th scope="row"><a href="patches/(\w+)\.html">', index)
    assert rows == ["odd", "bare", "area"]
    heads = re.findall(r'data-title="headline">(.*?)<', index)
    assert heads == ["reproduce on cpu failed", "contribbot verify bare makes one",
                     "2 fail \u2192 2 pass (CPU)"]  # fmt: skip
    assert 'href="https://github.com/example/toy/pull/7">example/toy#7</a> draft' in index


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs if name.startswith("on") or name == "src"}
        links = {value for name, value in attrs if name == "href" and "script:" in (value or "")}
        self.found |= {tag, *names, *filter(None, links)}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_stays_text(toy: Toy, program: Program) -> None:
    said = HOSTILE.replace("\u202e", "")
    toy.put_area(
        checks=CHECKS.replace("^AssertionError: assert 5 == ", "^AssertionError: <script>"),
        check_files={
            "test_red.py": "from toy.area import rectangle\n\n\ndef test_red():\n"
            f"    assert rectangle(2, 3) == 6, {said!r}\n",
            "test_same.py": PASS_TO_PASS,
        },
    )  # fmt: skip
    path = toy.queue / "patches/area/patch.toml"
    edit(path, "Multiply the sides", HOSTILE)
    edit(path, "Areas are sums.", f"{said} [a](javascript:alert(1)) ![b](https://example.com/x)")
    program.ok("verify", "area")
    program.ok("evidence", "report", "site")
    for name in ("index.html", "patches/area.html"):
        page = Elements((toy.queue / "site" / name).read_text())
        assert not page.found & {"script", "img", "src", "onerror"}, name
        assert not any("javascript" in found for found in page.found)
        assert HOSTILE.replace("\u202e", "\ufffd") in page.text
    assert f"AssertionError: {said}" in page.text


def test_a_picture_shows_text_as_it_is() -> None:
    name = "<script>1</script> $x_2$ ]]>"
    case = MeasuredCase.model_validate(measured(name, 1.0, 0.9, 1.1))
    page = Elements(intervals("a", [case], 0.5))
    assert "script" not in page.found
    assert f"1.000, noise: {name}" in page.text


def test_the_folder(area: Toy, program: Program) -> None:
    mine = area.put("mine/notes", "mine").parent
    for place, why in ((mine, "it has files in it, and none says that they are a report's"),
                       (mine / "notes", "not a folder")):  # fmt: skip
        ran = program("evidence", "report", place)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert ran.err.startswith(f"contribbot: {place}: {why}; name ")
    assert contents(mine) == {"notes": b"mine"}

    documented = re.search(r"^contribbot (evidence report)$", PAGE.read_text(), re.MULTILINE)
    assert documented
    program.ok(*documented[1].split())
    site = area.queue / "site"
    before = contents(site)
    (site / "CNAME").write_text("example.com")
    (site / "index.html").write_text("old")
    (area.queue / "patches/area").rename(area.queue / "patches/other")
    area.put_queue(["other"])
    program.ok("evidence", "report", "site")
    after = contents(site)
    assert after.keys() - before.keys() == {"CNAME", "patches/other.html"}
    assert before.keys() - after.keys() == {"patches/area.html"}
    assert after["index.html"] != b"old"
    shutil.rmtree(area.queue / "patches/other")
    area.put_queue([])
    program.ok("evidence", "report", "a/new/site")


@pytest.mark.parametrize("module", ["matplotlib.figure", "markdown_it"])
def test_what_reports_need(program: Program, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    ran = program("--queue", tracked_queue(), "evidence", "report", "site", "--json")
    assert ran.code == 3
    assert f"{module} is not installed" in ran.err
    install = "python -m pip install --constraint constraints.txt '.[report]'"
    assert ran.err.endswith(f"{install}  # in contribbot's checkout\n")
    assert dig(ran.json(), "error", "exit_code") == 3
    assert not (program.cwd / "site").exists()


BROWSER = pytest.mark.tool("chromium", "chromedriver", "npm")
#: Everything of an audit but what a person has to look at.
_AUDIT = (
    "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']})"
    ".then(found => done(found.violations.map(each => [each.id, each.nodes[0].html,"
    " each.nodes[0].failureSummary].join('\\n'))), error => done([String(error)]))"
)
#: How much wider than the screen the page is, and what sticks out of it, but for boxes that scroll.
_WIDE = (
    "const wide = document.documentElement.clientWidth;"
    "const out = e => !e.closest('.scroll, svg') && e.getBoundingClientRect().right > wide + 1;"
    "return [document.documentElement.scrollWidth - wide,"
    " ...[...document.querySelectorAll('body *')].filter(out).map(e => e.outerHTML.slice(0, 200))]"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def pages(real: Path) -> list[Path]:
    found = sorted(real.rglob("*.html"))
    assert len(found) == PATCHES + 1
    return found


@BROWSER
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: Chrome, real: Path, width: int) -> None:
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
        if name != "patches/fp8-hw-convert":
            browser.execute_script(
                "for (const e of document.querySelectorAll('details')) e.open = 1"
            )
        browser.execute_script(axe)
        assert browser.execute_async_script(_AUDIT) == [], name


def test_every_link_leads_somewhere(real: Path) -> None:
    for page in pages(real):
        for found in re.findall(r'<[a-z][^>]* (?:href|src)="([^"]*)"', page.read_text()):
            link = html.unescape(found)
            parts = urlsplit(link)
            if parts.scheme:
                fine = link == "data:," or (parts.scheme, parts.netloc) == ("https", "github.com")
                assert fine, link
                assert re.fullmatch(r"https://[\w./%@+-]+(#[\w-]+)?|data:,", link), link
                continue
            file = page.parent / unquote(parts.path) if parts.path else page
            assert file.is_file(), (page.name, link)
            assert not parts.fragment or f'id="{parts.fragment}"' in file.read_text(), link
