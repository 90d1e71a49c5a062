"""Contracts that others rely on, frozen: commands, options, exit codes, JSON, files and variables.

`contracts.json` holds them; a change of it is a change of a contract. To write it anew:
`CONTRIBBOT_UPDATE_SNAPSHOTS=1 pytest tests/contribute/test_contracts.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import typer
from pydantic import JsonValue
from typer.core import TyperCommand, TyperGroup

import contribbot
from contribbot.cli.main import app
from contribbot.errors import ExitCode
from tests.conftest import Program
from tests.contribute.place import Table
from tests.toy import git

FROZEN: Final = Path(__file__).with_name("contracts.json")
#: Commands in the order of running, on one queue, with `--json` if the command takes `--json`.
LOCAL: Final = (
    "queue list", "show area", "status", "verify area", "verify --all --jobs 1",
    "verify area --require gfx942", "evidence show area",
    "evidence check", "queue log area", "bisect area v1.0 v1.1", "gate area --offline",
    "body area", "open-pr area --dry-run", "runners matrix", "runners matrix --all",
    "queue export area",
    "edit area", "edit area", "refresh area", "edit area --abort", "edit area --abort",
    "status --against v1.1", "rebase v1.1 --dry-run", "rebase v1.1", "verify area",
    "queue diff area", "queue log area", "new other --title Other", "queue list", "show other",
    "verify other", "runners workflows install", "runners dispatch", "runners collect 1",
    "follow", "queue retire other --why because", "show nothing", "nothing",
)  # fmt: skip
ONLINE: Final = (
    "gate area", "body area", "open-pr area --dry-run", "open-pr area", "open-pr area", "follow",
    "open-pr area --up-to-date", "queue retire area",
)  # fmt: skip
RUNNERS: Final = f"""
[[runners]]
name = "one"
target = "gfx942"
labels = ["self-hosted", "mi300"]

[[runners.rocm]]
version = "7.1"
image = "registry.example/rocm@sha256:{"a" * 64}"
"""
VARIABLES: Final = (
    "CONTRIBBOT_CACHE", "CONTRIBBOT_CONTAINER_FLAGS", "CONTRIBBOT_EXTENSION",
    "CONTRIBBOT_IMAGE", "CONTRIBBOT_NUMERICS", "CONTRIBBOT_SANDBOX", "CONTRIBBOT_TREE",
    "GITHUB_API_URL", "GITHUB_OUTPUT", "GITHUB_REPOSITORY", "GITHUB_SERVER_URL",
    "GITHUB_TOKEN",
)  # fmt: skip
#: Keys that depend on the test case, not on the contract.
_CASES: Final = re.compile(r"^(?:[0-9a-f]{12,64}|.*[/.].*|[0-9]+|gfx[0-9a-f]+)$")


def shape(value: JsonValue) -> JsonValue:
    """Return the keys of a document and the kinds of their values."""
    if isinstance(value, dict):
        found: dict[str, JsonValue] = {}
        for key, inner in value.items():
            found["*" if _CASES.match(key) else key] = shape(inner)
        return dict(sorted(found.items()))
    if isinstance(value, list):
        kinds = {json.dumps(shape(one), sort_keys=True) for one in value}
        return [json.loads(kind) for kind in sorted(kinds)]
    return "null" if value is None else type(value).__name__


def commands(command: object, name: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Yield each command with its arguments and options."""
    if isinstance(command, TyperGroup):
        yield name, [*sorted(one.opts[0] for one in command.params)]
        for inner in command.commands:
            child = command.get_command(typer.Context(command), inner)
            yield from commands(child, f"{name} {inner}".strip())
        return
    assert isinstance(command, TyperCommand)
    parameters: list[JsonValue] = [
        f"{'/'.join(one.opts + one.secondary_opts)}"
        f"{' FLAG' if getattr(one, 'is_flag', False) else ''}"
        f"{' ...' if one.multiple or one.nargs != 1 else ''}{' required' if one.required else ''}"
        for one in command.params
    ]
    yield name, parameters


def run_all(program: Program, lines: tuple[str, ...], takes_json: set[str]) -> dict[str, JsonValue]:
    """Return the exit code of each command, and the shape of what it prints."""
    found: dict[str, JsonValue] = {}
    for line in lines:
        words = line.split()
        as_json = any(" ".join(words[:count]) in takes_json for count in (1, 2, 3))
        ran = program(*words, *(["--json"] if as_json else []))
        again = sum(key.partition(" #")[0] == line for key in found)
        out = shape(ran.json()) if as_json and ran.out else None
        found[f"{line} #{again + 1}" if again else line] = {"exit": int(ran.code), "json": out}
    return found


def written(contracts: dict[str, JsonValue]) -> str:
    """Return the file's text: a line for each command, so that a difference can be read."""
    parts = []
    for part, value in contracts.items():
        rows = value.items() if isinstance(value, dict) else [("", value)]
        lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows]
        text = ",\n  ".join(lines) if isinstance(value, dict) else json.dumps(value)
        parts.append(f'"{part}": ' + (f"{{\n  {text}\n}}" if isinstance(value, dict) else text))
    return "{" + ",\n".join(parts) + "}\n"


def test_contracts_are_as_frozen(table: Table) -> None:
    tree: dict[str, JsonValue] = dict(commands(typer.main.get_command(app)))
    takes_json = {
        name
        for name, options in tree.items()
        if isinstance(options, list) and "--json FLAG" in options
    }
    toy = table.toy
    toy.put("runners.toml", RUNNERS)
    # A newer release, to which the pin can move.
    toy.write("README", "More.\n")
    for words in (("add", "-A"), ("commit", "-qm", "More"), ("tag", "v1.1")):
        git(toy.upstream, *words)
    git(toy.queue, "init", "-q")
    program = Program(toy.queue)
    local = run_all(program, LOCAL, takes_json)
    table.attest()
    program.env |= {**table.env(), "GITHUB_SERVER_URL": table.github.base}
    package = Path(contribbot.__file__).parent
    source = "\n".join(path.read_text() for path in package.rglob("*.py"))
    contracts: dict[str, JsonValue] = {
        "commands": tree,
        "exit codes": {code.name: int(code) for code in ExitCode},
        "variables": [name for name in VARIABLES if f'"{name}"' in source],
        "files": [*sorted({
            re.sub(r"[0-9a-f]{8,}|\d{4}-\d\d-\d\d\S*", "*", str(path.relative_to(table.toy.queue)))
            for folder in ("patches", "evidence", "history")
            for path in (table.toy.queue / folder).rglob("*")
            if path.is_file()
        })],
        "schemas": [*sorted(path.name for path in (package / "schemas").glob("*.json"))],
        "local": local,
        "online": run_all(program, ONLINE, takes_json),
    }  # fmt: skip
    if os.environ.get("CONTRIBBOT_UPDATE_SNAPSHOTS"):
        FROZEN.write_text(written(contracts))
    frozen = json.loads(FROZEN.read_text())
    for part, value in contracts.items():
        assert json.loads(json.dumps(value)) == frozen[part], part
