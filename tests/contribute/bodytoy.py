"""The toy queue with rules and a template of its own."""

from __future__ import annotations

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
