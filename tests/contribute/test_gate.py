from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from contribbot.contribute.body import rules_of
from contribbot.contribute.duplicates import look_file
from contribbot.contribute.gate import RULES, GateCase, judge, judge_rule
from contribbot.contribute.model import Gate, Row, RowState
from contribbot.github import client
from contribbot.github.client import Waits
from tests.contribute.place import (
    CHANGES,
    MESSAGE,
    NOW,
    OTHERWISE,
    Change,
    Table,
    both,
    changing,
    close,
    edit,
    nobody,
    put_patch,
    verify,
)
from tests.github.faults import ODD, PARTLY, UNFINISHED, WIRE_FAULTS, Fault, moved, says
from tests.test_cli import imported
from tests.tools import kinds
from tests.toy import FIXED

PATCH = "patches/area/0001-change.patch"
NO_DOCS = '"none needed: nothing that users see."'
toml = changing
resigned = partial(changing, path=PATCH)
rules = partial(changing, path="upstreams/contributing/toy.toml")


def states(gate: Gate) -> dict[str, str]:
    return {row.rule: str(row.state) for row in gate.rows}


def test_a_patch_that_keeps_every_rule_passes(table: Table) -> None:
    gate = table.gate()
    for_a_person = {"not-run", "docs", "by-hand"}
    assert {row.rule for row in gate.rows} == set(RULES)
    assert {rule for rule, state in states(gate).items() if state == "for a person"} == for_a_person
    assert {state for rule, state in states(gate).items() if rule not in for_a_person} == {"passed"}
    assert gate.blocking == []
    assert gate.looked == NOW
    asked = {row.rule for row in gate.rows if row.github}
    assert asked == {"issue", "template", "upstream", "duplicates", "turned-down"}
    assert table.row("not-run", gate).seen == "not run: gfx942"


def no_test(table: Table) -> None:
    table.toy.put(PATCH, table.toy.format_patch({"src/toy/area.py": FIXED}, body=MESSAGE))


def untidy(table: Table) -> None:
    put_patch(table.toy, {**CHANGES, "src/toy/area.py": FIXED + "x = 1 \n"})
    verify(table.toy, table.toy.root)


def no_records(table: Table) -> None:
    for path in (table.toy.queue / "evidence/area").iterdir():
        path.unlink()


def archived(table: Table) -> None:
    table.upstream.archived = True


def two_open(table: Table) -> None:
    for number in (1, 2):
        table.pull(f"mine{number}", {f"other{number}": "x\n"}, user=table.me)


def may_write(table: Table) -> None:
    """Open two pull requests as a user with write access, who has no limit."""
    two_open(table)
    table.upstream.members["ada"] = "write"


def new_template(table: Table) -> None:
    table.push({".github/pull_request_template.md": b"## What\n## \x1b[2JNew\n"})


def close_issue(table: Table) -> None:
    table.upstream.issues[1].state = "closed"


def move_issue(table: Table) -> None:
    there = table.github.add_repository("another/toy")
    table.github.add_issue(there, table.other, "Areas are sums", None)
    table.faults.arm(moved("example/toy/issues", "another/toy/issues"), path="^/repos/ex", times=0)


def delete_issue(table: Table) -> None:
    fault = says(410, {"message": "This issue was deleted"})
    table.faults.arm(fault, path="issues/1$", times=0)


def signed(who: str) -> Change:
    """Let somebody else be the author, and sign it off."""
    return resigned("Ada Example <ada@example.com>", who)


RUNS = "end_to_end = '^\\[Bugfix\\]'\n"


SAID = 'model_evaluation = "not run: no GPU"\n'


def large(table: Table) -> None:
    text = FIXED + "x = 1\n" * 151
    table.toy.put(PATCH, table.toy.format_patch({"src/toy/area.py": text}, body=MESSAGE))


CASES: list[tuple[str, str, str, Change]] = [
    ("title", "failed", "[Bugfix] What it does", toml('title = "[Bugfix] ', 'title = "Bugfix: ')),
    ("title", "passed", "no pattern; usual: [Bugfix] What it does",
     rules("title = '^\\[[A-Z]\\w+\\] \\S'", "")),
    ("commits", "failed", "Ada Example <ada@example.com>", resigned("by: Ada", "by: Eve")),
    ("commits", "failed", "0001-change.patch", resigned("Signed-off-by", "Signed-of-by")),
    ("commits", "passed", "in the commit: Assisted-by: A model", rules("sign_off = true", "")),
    ("commits", "failed", "no trailer says so", resigned("Assisted-by: A model", "By a model.")),
    ("commits", "passed", "signed off by the author", toml('"A machine drafted it."', '"None."')),
    ("commits", "passed", "in the commit: Assisted-by: Eve, by hand",
     resigned("Assisted-by: A model", "Assisted-by: Eve, by hand \x1b[2J")),
    ("commits", "passed", "in the commit", toml('"A machine', '"None by hand: it')),
    ("commits", "for a person", "a trailer waits", toml('ai = "A machine drafted it."', "")),
    ("issue", "failed", "wants a linked issue", toml('issue = "example/toy#1"', "")),
    ("issue", "failed", "there is no example/toy#77", toml("toy#1", "toy#77")),
    ("issue", "for a person", "is closed", close_issue),
    ("issue", "failed", "example/toy#1 is another/toy#1 now", move_issue),
    ("issue", "failed", "there is no example/toy#1", delete_issue),
    ("commits", "failed", "all@q.invalid is no address", signed("Q <all@q.invalid>")),
    ("commits", "failed", "is a program's", signed("Claude <noreply@anthropic.com>")),
    ("commits", "failed", "Claude Code is an AI", signed("Claude Code <me@example.com>")),
    ("commits", "passed", "by the author", signed("Claude Dupont <1+c@users.noreply.github.com>")),
    ("person", "failed", "nobody has read it and run it", nobody),
    ("person", "failed", "a@b.invalid is no address", toml("ada@example.com", "a@b.invalid")),
    ("person", "failed", "is a program's", toml("ada@ex", "1+x[bot]@ex")),
    ("person", "failed", "is no fresh record of area", toml("area/x86", "area/x87")),
    ("end-to-end", "failed", "nothing says", rules("[body]", RUNS + "[body]")),
    ("end-to-end", "passed", "not run: no GPU",
     both(rules("[body]", RUNS + "[body]"), toml('ai = "A', SAID + 'ai = "A'))),
    ("speed", "failed", "the title promises speed on a GPU: measured on no GPU",
     rules("[body]", "speed = '^\\[Bugfix\\]'\n[body]")),
    ("size", "for a person", "changed lines outside tests; a reviewer reads 150 at once", large),
    ("by-hand", "for a person", "sign it", rules("[body]", 'by_hand = ["sign it"]\n[body]')),
    ("superseded", "failed", "superseded: v2 has it",
     toml('title = "[Bugfix]', 'kept = "v2 has it"\ntitle = "[Bugfix]')),
    ("tests", "failed", "no file below tests", no_test),
    ("text", "failed", "problem not written yet", toml('"Areas', '"TODO: areas')),
    ("text", "failed", "how AI was used", toml('ai = "A machine drafted it."', "")),
    ("evidence", "failed", "no fresh evidence", no_records),
    ("evidence", "failed", "states nothing for it: gfx950", rules('["cpu"]', '["cpu", "gfx950"]')),
    ("evidence", "failed", "states nothing for it: emulated:gfx942",
     rules('["cpu"]', '["cpu", "emulated:gfx942"]')),
    ("evidence", "failed", "cpu (missing)", no_records),
    ("text", "failed", "31 words in the overview, and 30 may be",
     toml('"Areas are sums.', '"' + "word " * 30 + "sums.")),
    ("text", "failed", "words in all, folds included, and 400 may be",
     toml('solution = "', 'solution = "' + "word " * 400)),
    ("template", "for a person", "`## New`, which is new", new_template),
    ("by-hand", "for a person", "labels, once it is open: rocm; one more",
     toml('ai = "A', 'labels = ["one more"]\nai = "A')),
    ("docs", "failed", "names no file", toml(NO_DOCS, '"docs/a.md"')),
    ("docs", "passed", "tests/test_area.py", toml(NO_DOCS, '"tests/test_area.py"')),
    ("style", "failed", "src/toy/area.py:16: trailing whitespace", untidy),
    ("upstream", "failed", "example/toy is archived", archived),
    ("upstream", "failed", "ada has 2 open, 2 at most", two_open),
    ("upstream", "passed", "", may_write),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "state", "seen", "change"), CASES, ids=[f"{case[0]}-{case[2]}" for case in CASES]
)
def test_each_rule_says_what_is_wrong_and_what_to_do(
    table: Table, rule: str, state: str, seen: str, change: Change
) -> None:
    assert table.row(rule).state != "failed"
    change(table)
    row = table.row(rule)
    assert (row.state, seen in row.seen) == (state, True), row
    assert row.seen.isprintable()
    assert bool(row.next) or state != "failed"


def test_a_file_that_two_commits_touch_is_named_once(table: Table) -> None:
    again = table.toy.format_patch({"tests/test_area.py": "# again\n"}, "Test again", MESSAGE)
    table.toy.put(PATCH.replace("0001", "0002"), again)
    toml(NO_DOCS, '"tests/test_area.py"')(table)
    assert table.row("docs").seen == "tests/test_area.py"


def test_our_own_pull_request_is_no_duplicate_and_takes_no_further_place(table: Table) -> None:
    table.publish()
    table.pull("mine", {"other": "x\n"}, user=table.me)
    gate = table.gate()
    assert states(gate)["upstream"] == states(gate)["own-pr"] == "passed"
    assert gate.candidates == ()


def test_a_branch_behind_its_base_fails_and_is_for_open_pr_to_mend(table: Table) -> None:
    table.publish()
    table.push({"README": b"more\n"})
    gate = table.gate()
    row = table.row("own-pr", gate)
    assert (row.state, row.next) == ("failed", "contribbot open-pr area --up-to-date")
    assert "ada:contribbot/area is 1 commits behind main" in row.seen
    # If this blocked, nobody could attest, and so run `open-pr`, which mends this.
    assert gate.blocking == []


def test_offline_is_listed_and_asks_nothing(table: Table) -> None:
    before = len(table.github.requests)
    gate = judge(table.queue, "area", None)
    unseen = {row.rule for row in gate.of(RowState.NOT_LOOKED_AT)}
    assert unseen == {"issue", "template", "upstream", "duplicates", "turned-down"}
    assert {row.rule for row in gate.blocking} == unseen
    assert len(table.github.requests) == before


def test_a_gate_takes_few_requests_and_the_second_fewer(table: Table) -> None:
    assert (table.asked(), table.asked()) == (14, 5)


def test_the_command_says_it_in_lines_and_as_json(table: Table, tmp_path: Path) -> None:
    # It needs no pin: nothing is fetched.
    cache = tmp_path / "none"
    done = table.program("gate", "area", CONTRIBBOT_CACHE=str(cache))
    assert (done.code, done.err, cache.exists()) == (0, "", False)
    for rule in RULES:
        assert sum(line.startswith(f"{rule} ") for line in done.out.splitlines()) == 1
    shown = table.program("gate", "area", "--json")
    assert Gate.model_validate_json(shown.out, strict=False).patch == "area"
    assert json.loads(shown.out)["rows"][0]["state"] == "passed"


def test_without_github_the_rest_is_shown_and_the_end_is_3(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The usual number of attempts, without pauses.
    monkeypatch.setattr(client, "Waits", partial(Waits, sleep=lambda _: None, between_writes=0))
    done = table.program("gate", "area", GITHUB_API_URL="http://127.0.0.1:9")
    assert done.code == 3
    assert re.search(r"^commits +passed ", done.out, re.MULTILINE)
    assert sum("not known" in line for line in done.out.splitlines()) == 6
    assert done.out.count("check the network") == 1
    table.program.ok("gate", "area", "--offline")
    no_test(table)
    assert table.program("gate", "area", GITHUB_TOKEN="ghp_" + "x" * 36).code == 1


@pytest.mark.parametrize("command", [["gate", "area", "--offline"], ["body", "area"]])
def test_offline_nothing_loads_what_speaks_to_github(table: Table, command: list[str]) -> None:
    assert not {"github", "pypi_simple"} & imported(table.toy, *command)


@pytest.mark.parametrize("how", ["squash", "bot"])
def test_a_merged_pull_request_of_this_patch_fails_whether_or_not_follow_saw_it(
    table: Table, how: str
) -> None:
    pull = table.publish()
    assert table.row("own-pr").state == "passed"
    assert table.offline("own-pr").state == "not looked at"
    table.github.merge(pull, "bot" if how == "bot" else "squash")
    row = table.row("own-pr")
    said = "landed as" if how == "bot" else "merged as"
    assert (row.state, row.next) == ("failed", "contribbot queue retire area")
    assert row.seen.startswith(f"example/toy#{pull.number}: {said}")
    assert "own-pr" in [blocking.rule for blocking in table.gate().blocking]
    table.note("merged", number=pull.number)
    assert table.row("own-pr").state == "failed"
    assert table.offline("own-pr").state == "failed"


def test_a_closed_one_stands_in_the_way_of_its_own_branch_alone(table: Table) -> None:
    close(table.publish())
    row = table.row("own-pr")
    assert (row.state, "closed without being merged" in row.seen) == ("failed", True)
    assert "name another `branch`" in row.next
    edit(table.toy, "[contribution]", '[contribution]\nbranch = "again"')
    row = table.row("own-pr")
    assert (row.state, "opens another from again" in row.seen) == ("passed", True)


def expires(table: Table, *conditions: str) -> Row:
    edit(table.toy, "problem =", f"expires_when = [{', '.join(conditions)}]\nproblem =")
    return table.row("superseded")


@pytest.mark.parametrize(
    ("condition", "state", "seen"),
    [
        ('{ release = "v1.0" }', "failed", "superseded by toy v1.0: release v1.0: this is it"),
        (
            '{ release = "v0.9" }',
            "failed",
            "superseded by toy v0.9: release v0.9: v1.0 is at or after it",
        ),
        ('{ release = "v1.1" }', "passed", "release v1.1: v1.0 is before it"),
        ('{ release = "soon" }', "for a person", "v1.0 and soon are not both versions"),
        ('{ pull_request = "example/toy#77" }', "for a person", "there is no example/toy#77"),
    ],
)
def test_a_condition_of_expiry_that_has_come_is_said(
    table: Table, condition: str, state: str, seen: str
) -> None:
    row = expires(table, condition)
    assert (row.state, seen in row.seen) == (state, True), row
    assert ("contribbot queue retire area" in row.next) == (state != "passed")


def test_a_pull_request_that_makes_it_unnecessary_is_asked_for(table: Table) -> None:
    pull = table.pull("theirs", {"docs/x.md": "x\n"}, title="Another way")
    row = expires(table, f'{{ pull_request = "example/toy#{pull.number}" }}')
    assert (row.state, row.seen) == ("passed", f"example/toy#{pull.number} is open")
    table.github.merge(pull, "squash")
    row = table.row("superseded")
    assert row.state == "failed"
    assert row.seen.startswith(f"superseded by example/toy#{pull.number}: merged as")
    # The answer of GitHub is kept: later commands need no network.
    assert table.offline("superseded").seen == row.seen
    assert "superseded by" in table.body().text.partition("\n")[0].lower()


#: Faults that stay; the last two are only of searches.
SILENCE = dict.fromkeys(
    (*(fault for fault in WIRE_FAULTS if not fault.passing), *ODD, UNFINISHED, PARTLY)
)


@pytest.mark.parametrize(
    "fault", kinds(SILENCE, lambda fault: fault.name in {"404", "null", "partly"}, str)
)
def test_a_row_that_github_does_not_answer_never_passes(table: Table, fault: Fault) -> None:
    theirs = table.pull("theirs", {"docs/x.md": "x\n"}, title="Another way")
    expires(table, f'{{ pull_request = "example/toy#{theirs.number}" }}')
    table.publish()
    table.pull("otherwise", OTHERWISE, body="For #1.")
    queue, rules = table.queue, rules_of(table.queue, "toy")

    def row(rule: str) -> Row:
        look_file(queue, "area").unlink(missing_ok=True)
        with table.connect() as ours:
            case = GateCase(queue, queue.patch("area"), rules, ours, NOW)
            return judge_rule(rule, case)

    searches, count = fault in {UNFINISHED, PARTLY}, 0
    for rule in RULES:
        asked = {request.path for request in table.requests(partial(row, rule))}
        count += bool(asked)
        for path in {"/search/issues"} & asked if searches else asked:
            table.faults.struck.clear()
            table.faults.arm(fault, path=f"^{re.escape(path)}$", times=0)
            seen = row(rule)
            table.faults.clear()
            assert table.faults.struck
            # If GraphQL is refused, REST gives the same state.
            assert seen.state != "passed" or path == "/graphql", (path, seen)
            told = "did not finish the search" in seen.seen
            assert told or seen.state != "not known" or not searches, seen
    assert count == 7
