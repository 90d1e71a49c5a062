"""The toy queue with rules and a template of its own, and texts that were approved before."""

from __future__ import annotations

import os
from pathlib import Path

from tests.toy import Toy

RULES = """
upstream = "toy"
source = "made up"
targets = ["gfx942"]
tests = ["tests"]

[body]
template = "1"
live = ".github/pull_request_template.md"

[[questions]]
name = "read"
text = "Have you read it?"
"""
TEMPLATE = """\
{% import "macros.md.j2" as m with context %}
## What

{{ summary | prose }}

{{ m.references() }}
{{ m.words() }}
{{ m.disclosure() }}
## Shown

{{ m.claimed() }}
{{ m.results() }}
{{ m.open_ends(evaluation=false) }}
{{ m.commands() }}
{{ m.person() }}
{{ m.fold() }}
<details>
<summary>Checklist</summary>

- [{{ m.tick(tests_touched) }}] Tests
- [{{ m.tick(ai_used) }}] AI
- [ ] Lint

</details>
"""
#: The path of the template in the queue.
OWN = "templates/toy.md.j2"


def describe(toy: Toy) -> None:
    """Give the toy upstream rules and a template."""
    toy.put("upstreams/contributing/toy.toml", RULES)
    toy.put(OWN, TEMPLATE)


FOLDER = Path(__file__).parent / "snapshots"
#: With the value 1, tests write the snapshots: read the difference before you commit.
UPDATE = "CONTRIBBOT_UPDATE_SNAPSHOTS"


def assert_snapshot(name: str, text: str) -> None:
    """Compare a text with its snapshot; write the snapshot if the variable asks for that."""
    path = FOLDER / name
    if os.environ.get(UPDATE) == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no snapshot {name}: read the text, then run with {UPDATE}=1"
    assert text == path.read_text(encoding="utf-8"), f"{name} differs: {UPDATE}=1 rewrites it"
