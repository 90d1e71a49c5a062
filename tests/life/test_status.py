"""`contribbot status`."""

from __future__ import annotations

import pytest

from contribbot.queue import history
from contribbot.queue.history import PullRequestEvent
from tests.conftest import Program, dig
from tests.test_refresh import AREA_FILE, series
from tests.toy import FAIL_TO_PASS, FIXED, Toy, git, one_check


def state(program: Program, *args: str) -> tuple[str, str, str]:
    """Return text, need and the line for people of the one patch."""
    ran = program.ok("status", *args, "--json")
    one = dig(ran.json(), "patches", 0)
    assert isinstance(one, dict)
    behaviour = one["behaviour"]
    need = str(behaviour["verdict"]) if isinstance(behaviour, dict) else ""
    return str(one["text"]), need, str(one["text_why"])


def test_a_pin_that_is_not_here_is_not_fetched(releases: Toy, program: Program) -> None:
    releases.upstream.rename(releases.upstream.with_name("gone"))
    text, _, why = state(program)
    assert text == "unknown"
    assert why == "toy v1.0 is not on this machine yet; contribbot verify brings it"


def test_what_applies_and_what_is_proved_is_told(releases: Toy, program: Program) -> None:
    program.ok("verify", "area")
    for _ in range(2):  # the second time it is remembered
        ran = program("status")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == "area  toy v1.0  applies  fresh: cpu\n"
    # A record that goes, or that another patch makes stale, is not.
    (record,) = (releases.queue / "evidence/area").iterdir()
    content = record.read_bytes()
    record.write_bytes(content.replace(b'"passed"', b'"failed"', 1))
    assert "missing: cpu" in program("status").out
    record.write_bytes(content)
    other = FIXED.replace("area = width * height", "area = height * width")
    releases.put_patch(patch=releases.format_patch({"src/toy/area.py": other}))
    assert "stale: cpu" in program("status").out


@pytest.mark.parametrize(
    ("tag", "text", "need"),
    [
        ("v1.1", "clean", "needed"),
        ("v1.2", "merged", "needed"),
        ("v1.3", "conflict", "needed"),
        ("v1.4", "conflict", "superseded"),
        ("v1.5", "upstream", "superseded"),
    ],
)
@pytest.mark.usefixtures("releases")
def test_each_release_makes_something_else_of_it(
    program: Program, tag: str, text: str, need: str
) -> None:
    assert state(program, "--against", tag)[:2] == (text, need)
    assert state(program, "--against", tag, "--text-only")[:2] == (text, "")


def test_the_second_time_nothing_runs(releases: Toy, program: Program) -> None:
    # No test of this session has run this check.
    releases.put("patches/area/checks/test_red.py", f"{FAIL_TO_PASS}\n# The first time.\n")
    cached = []
    for _ in range(2):
        ran = program("status", "--against", "v1.4", "--json")
        entries = dig(ran.json(), "patches", 0, "behaviour", "entries")
        assert isinstance(entries, list)
        cached.append([one["cached"] for one in entries if isinstance(one, dict)])
    assert cached == [[False], [True]]


def test_what_is_only_partly_mended_is_told(releases: Toy, program: Program) -> None:
    both = FIXED.replace("base * height / 2", "base * height / 2.0 + 0 * side")
    checks = one_check(reason="^AssertionError: assert 5 == ") + (
        '[[checks]]\nname = "halves"\nfile = "test_halves.py"\nexpect = "fail-to-pass"\n'
        'reason = "TypeError|missing"\n'
    )
    halves = (
        "from toy.area import triangle\n\n\ndef test_it():\n    assert triangle(2, 3, 1) == 3\n"
    )
    releases.put_patch(
        patch=releases.format_patch(
            {
                "src/toy/area.py": both.replace(
                    "triangle(base, height)", "triangle(base, height, side)"
                )
            }
        ),
        checks=checks,
        check_files={"test_red.py": FAIL_TO_PASS, "test_halves.py": halves},
    )
    ran = program("status", "--against", "v1.4")
    assert "failed" not in ran.err, "without the patch it must fail; nothing broke"
    assert state(program, "--against", "v1.4")[1] == "partly superseded"
    assert "check halves still fails as stated" in ran.out
    assert "1 of 2 pass without the patch" in ran.out
    assert '"decision": "needs work"' in program("rebase", "v1.4", "--json").out


def test_a_check_that_proves_nothing_supersedes_nothing(releases: Toy, program: Program) -> None:
    releases.put_patch(
        checks=one_check(reason="^AssertionError: assert 5 == "),
        check_files={"test_red.py": "def test_it():\n    assert True\n"},
    )
    assert state(program, "--against", "v1.1")[1] == "unclear"
    assert "proves nothing" in program("status", "--against", "v1.1").out


def test_what_stands_on_a_conflict_is_blocked(releases: Toy, program: Program) -> None:
    program("verify", "area")
    releases.put_patch(
        "on-top", patch=top(releases), files=("src/toy/area.py",), extra='depends_on = ["area"]'
    )
    releases.put_queue(["area", "on-top"])
    releases.edit("patches/area/0001-change.patch", "-    return width + height", "-    nothing")
    ran = program("status", "--json")
    texts = [dig(ran.json(), "patches", place, "text") for place in (0, 1)]
    assert texts == ["conflict", "blocked"]


def top(toy: Toy) -> bytes:
    """Return a patch on top of the toy's own, next to its line."""
    other = FIXED.replace("    return area", "    return abs(area)")
    return series(toy, {AREA_FILE: FIXED}, {AREA_FILE: other})[1]


def test_conditions_that_have_come_are_told(releases: Toy, program: Program) -> None:
    releases.put_patch(
        extra='expires_when = [{ release = "v1.4" }, { pull_request = "example/toy#7" }]'
    )
    ran = program("status", "--json")
    due = dig(ran.json(), "patches", 0, "due")
    assert isinstance(due, list)
    assert [dig(one, "come") for one in due] == [False, None]
    ran = program("status", "--against", "v1.5", "--text-only")
    assert "expires: release v1.4: v1.5 is at or after it" in ran.out


@pytest.mark.parametrize(("states", "come"), [(["merged"], True), (["merged", "reverted"], False)])
def test_a_pull_request_that_was_taken_back_is_none_that_came(
    releases: Toy, program: Program, states: list[str], *, come: bool
) -> None:
    releases.put_patch(extra='expires_when = [{ pull_request = "example/toy#7" }]')
    for state in states:
        event = PullRequestEvent(
            time=history.now(), summary=state, reference="example/toy#7", state=state
        )
        history.append(releases.queue, "area", event)
    ran = program("status", "--json")
    assert bool(dig(ran.json(), "patches", 0, "due", 0, "come")) is come


def test_a_tag_needs_its_upstream_where_there_are_two(releases: Toy, program: Program) -> None:
    queue = releases.queue / "patches/queue.toml"
    releases.put("upstreams/other.toml", releases.upstream_toml().replace("toy", "other"))
    second = queue.read_text().replace('order = ["area"]', "").replace('"toy"', '"other"')
    queue.write_text(queue.read_text().replace('["area"]', '["area", "twin"]') + second)
    releases.put_patch("twin")
    releases.edit("patches/twin/patch.toml", 'upstream = "toy"', 'upstream = "other"')
    ran = program("status", "--against", "v1.1")
    assert ran.code == 2
    assert "these patches are for toy, other; name it with --upstream" in ran.err
    ran = program("status", "--against", "v1.1", "--upstream", "other", "--text-only", "--json")
    assert [dig(ran.json(), "patches", place, "against") for place in (0, 1)] == ["v1.0", "v1.1"]
    # The newest is each one's own.
    releases.edit("patches/twin/patch.toml", "title =", 'kept = "Users stay."\ntitle =')
    ran = program.ok("status", "--against", "newest", "--text-only", "--json")
    rows = [dig(ran.json(), "patches", place) for place in (0, 1)]
    assert "v1.0" not in [dig(row, "against") for row in rows]
    assert dig(rows[1], "superseded") == "superseded: Users stay."


def test_one_that_does_not_apply_to_its_own_pin_hides_no_other(
    releases: Toy, program: Program
) -> None:
    releases.put_patch("lost")
    releases.put_patch("on-top", extra='depends_on = ["lost"]')
    releases.put_queue(["area", "lost", "on-top"])
    releases.edit("patches/lost/0001-change.patch", "-    return width + height", "-    nothing")
    ran = program.ok("status", "--against", "v1.2", "--json")
    rows = [dig(ran.json(), "patches", place) for place in range(3)]
    assert [dig(row, "text") for row in rows] == ["merged", "unknown", "unknown"]
    assert [dig(row, "behaviour") is None for row in rows] == [False, True, True]
    why = str(dig(rows[1], "text_why"))
    assert why.startswith("it does not apply to its own pin v1.0: 0001-change.patch: hunk 1 of")


@pytest.mark.usefixtures("releases")
def test_what_needs_no_words_has_no_empty_row(program: Program) -> None:
    ran = program("status", "--against", "v1.2", "--text-only")
    assert ran.out == "area  toy v1.0 at v1.2  applies, merged  missing: cpu\n"


@pytest.mark.parametrize("tag", ["v1.6rc1", "nightly"])
def test_any_tag_of_a_repository_can_be_asked_for(
    releases: Toy, program: Program, tag: str
) -> None:
    git(releases.upstream, "tag", tag, "v1.2")
    assert state(program, "--against", tag, "--text-only")[0] == "merged"
    ran = program("status", "--against", "newest", "--text-only", "--json")
    assert dig(ran.json(), "patches", 0, "against") == "v1.5"


@pytest.mark.parametrize(
    ("pattern", "come"),
    [('[release]\ndistribution = "toy"\ntag = "toy-{version}"', True), ("", None)],
)
def test_a_release_is_due_where_its_tag_can_be_read(
    toy: Toy, program: Program, pattern: str, come: bool | None
) -> None:
    toy.put("upstreams/toy.toml", toy.upstream_toml() + pattern)
    git(toy.upstream, "tag", "toy-1.10")
    toy.put_area(extra='expires_when = [{ release = "toy-1.9" }]')
    for file in ("queue.toml", "area/patch.toml"):
        toy.edit(f"patches/{file}", '"v1.0"', '"toy-1.10"')
    assert dig(program("status", "--json").json(), "patches", 0, "due", 0, "come") is come
