"""A record with a sound seal, from the right run, may only speak of what its job was asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue
from pydantic_core import from_json

from contribbot.model.evidence import Details, Machine
from contribbot.runners.artifacts import Source
from contribbot.runners.records import Answer, Bases, Question, read_sent, written
from contribbot.verify.evidence import statement_of
from tests.conftest import dig
from tests.runners.conftest import CHECKS, Ranged
from tests.runners.homing import COMPILED, RAN, REPOSITORY, Json, details

#: What a stage on a target of a patch is made to say.
Stages = list[dict[str, JsonValue]]
Change = Callable[[Stages, Json], None]

GFX950 = """
[[checks]]
name = "on-next"
file = "test_next.py"
expect = "pass-to-pass"
requires = ["gfx950"]
"""
RED: Json = {"expect": "fail-to-pass", "base": {"failed": ["a"]}, "patched": {"passed": ["a"]}}


@dataclass
class Forger:
    """Whoever has a runner: what it sends is as contribbot would have written it."""

    ranged: Ranged
    scratch: Path

    def send(self, name: str, change: Change, target: str = "gfx942") -> Answer:
        """Let a job of the plan send a record that was changed, and judge it."""
        job = next(one for one in self.ranged.plan().jobs if one.id == name)
        source = Source(REPOSITORY, 7, 1, "1" * 40)
        path = self.ranged.record("area", target=target)
        document: Json = json.loads(path.read_bytes())
        shutil.rmtree(self.ranged.folder / "evidence")
        told = details(document)
        run: Json = {"run_id": 7, "attempt": 1, "job": name, "repository": REPOSITORY,
                     "commit": source.commit}  # fmt: skip
        told["run"] = run
        told["container"] = {"image": job.image, "flags": list(job.flags)}
        stages = told["stages"]
        assert isinstance(stages, list)
        change([one for one in stages if isinstance(one, dict)], document)
        made = _consistent(document)
        done = {
            "type": "contribbot/job/v1", "job": name, "run": run, "container": told["container"],
            "asked": [{"patch": one, "require": list(need)} for one, need in job.asks.items()],
            "exit_code": 0,
        }  # fmt: skip
        slug = Machine.model_validate(told["machine"]).slug
        files = {"job.json": json.dumps(done).encode(), f"records/area/{slug}.json": made}
        question = Question(job, source, Bases(self.ranged.load()), self.scratch)
        _, answers = read_sent(files, question)
        return answers["area"]


def _consistent(document: Json) -> bytes:
    """Let all else in a record follow from its stages, and seal it."""
    told = Details.model_validate(details(document))
    return statement_of(told).model_dump_json(by_alias=True, exclude_none=True).encode()


def put_patch(ranged: Ranged, more: str) -> None:
    """Let the patch have one more check."""
    ranged.toy.put_patch(
        "area", patch=ranged.toy.format_patch({"README": "area\n"}), files=("README",),
        checks=CHECKS + more,
        check_files={f"test_{name}.py": "def test_one():\n    pass\n" for name in ("same", "next")},
    )  # fmt: skip


@pytest.fixture
def forger(ranged: Ranged, tmp_path: Path) -> Forger:
    """One who has the runner of a patch that is to pass on gfx942, and later on gfx950."""
    put_patch(ranged, GFX950)
    return Forger(ranged, tmp_path / "scratch")


def add_gpu(document: Json, target: str) -> None:
    """Give the machine one more GPU."""
    gpus = dig(details(document), "machine", "gpus")
    assert isinstance(gpus, list)
    gpus.append({"vendor": "amd", "target": target, "name": "made up", "driver": ""})


def stage(stages: Stages, name: str, target: str) -> dict[str, JsonValue]:
    """Return an outcome."""
    return next(one for one in stages if (one["stage"], one["target"]) == (name, target))


def nothing(stages: Stages, document: Json) -> None:
    """Change nothing."""


def speak_for_another_target(stages: Stages, document: Json) -> None:
    """Say that it passed on a GPU that the job was not asked about."""
    add_gpu(document, "gfx950")
    stage(stages, "reproduce", "gfx950")["outcome"] = "passed"


def run_where_it_compiles(stages: Stages, document: Json) -> None:
    """Say that a machine that only compiles has a GPU, and that it passed there."""
    add_gpu(document, "gfx942")
    stage(stages, "reproduce", "gfx942")["outcome"] = "passed"


def watch_on_another_target(stages: Stages, document: Json) -> None:
    """Say that kernels were seen on a GPU that the job was not asked about."""
    add_gpu(document, "gfx950")
    found: Json = {**stage(stages, "apply", "any"), "stage": "witness", "target": "gfx950"}
    _put(document, found)


def go_from_red_to_green(stages: Stages, document: Json) -> None:
    """Prove with a check of which the patch states only that it passes."""
    del document
    dig(stage(stages, "reproduce", "gfx942"), "details").update(RED)  # type: ignore[union-attr]  # it is one


def prove_by_applying(stages: Stages, document: Json) -> None:
    """Prove with something that is no check."""
    del document
    dig(stage(stages, "apply", "any"), "details").update(RED)  # type: ignore[union-attr]  # it is one


def make_up_a_check(stages: Stages, document: Json) -> None:
    """Prove with a check that the patch does not have."""
    found = json.loads(json.dumps(stage(stages, "reproduce", "gfx942")))
    found["details"] = {"check": "made-up", **RED}
    _put(document, found)


def say_it_twice(stages: Stages, document: Json) -> None:
    """Say a second thing of the same check."""
    _put(document, {**stage(stages, "reproduce", "gfx942"), "outcome": "unavailable"})


def leave_out(stages: Stages, document: Json) -> None:
    """Say nothing of what was asked."""
    told = details(document)
    told["stages"] = [one for one in stages if one is not stage(stages, "reproduce", "gfx942")]


def _put(document: Json, found: Json) -> None:
    stages = details(document)["stages"]
    assert isinstance(stages, list)
    stages.append(found)


@pytest.mark.parametrize(
    ("job", "change", "reason"),
    [
        (RAN, nothing, ""),
        (COMPILED, nothing, ""),
        (RAN, speak_for_another_target, "it says what ran on gfx950, and gfx942 was asked"),
        (RAN, watch_on_another_target, "it says what ran on gfx950, and gfx942 was asked"),
        (COMPILED, run_where_it_compiles, "it says what ran on gfx942, and no GPU was asked"),
        (RAN, go_from_red_to_green, "reproduce/on-gpu/gfx942: "),
        (RAN, prove_by_applying, "apply/any: "),
        (RAN, make_up_a_check,
         "it has an outcome of reproduce/made-up/gfx942 that the patch does not state"),
        (RAN, say_it_twice,
         "it has an outcome of reproduce/on-gpu/gfx942 that the patch does not state"),
        (RAN, leave_out, "it leaves out reproduce/on-gpu/gfx942"),
    ],
)  # fmt: skip
def test_a_record_speaks_of_what_was_asked(
    forger: Forger, job: str, change: Change, reason: str
) -> None:
    answer = forger.send(job, change, "" if job == COMPILED else "gfx942")
    assert reason in answer.refused
    assert bool(reason) is bool(answer.refused)


@pytest.mark.parametrize("cover", [False, True])
def test_one_of_two_checks_is_left_out(forger: Forger, *, cover: bool) -> None:
    """The other one passed, so that the stage on the target seems answered."""
    again = GFX950.replace("on-next", "again").replace("gfx950", "gfx942")
    put_patch(forger.ranged, again)

    def leave_one_out(stages: Stages, document: Json) -> None:
        details(document)["stages"] = [
            one for one in stages if '"check": "again"' not in json.dumps(one)
        ]
        if cover:
            _put(document, {**stage(stages, "apply", "any"), "stage": "reproduce",
                            "outcome": "skipped", "details": {}})  # fmt: skip

    assert "reproduce/" in forger.send(RAN, leave_one_out).refused


def test_a_number_that_is_none_makes_no_file() -> None:
    """1e999 is JSON; what Python would write of it is not."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        written(from_json(b'{"seconds": 1e999}'))


def test_a_small_record_does_not_become_a_large_file() -> None:
    """Indents would make a gigabyte of a megabyte that is nested deeply."""
    deep = b"[" * 190 + b"1," * 200_000 + b"1" + b"]" * 190
    with pytest.raises(ValueError, match="written out it has more than 16777216 characters"):
        written(from_json(deep))


def test_what_a_terminal_would_obey_is_not_in_the_file() -> None:
    text = "a\x9b31mb\u202ec\U000e0001d\u2028é…"
    made = written({"reason": text})
    assert json.loads(made) == {"reason": text}
    assert made.decode().replace("\n", "").isprintable()
