"""Rules and templates of upstreams: loading them, and comparing a template with the live one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from contribbot import upstreams
from contribbot.errors import QueueError, UsageError
from contribbot.model.rules import Rules, Template
from contribbot.queue.load import Queue, read_model

_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def rules_of(queue: Queue, upstream: str) -> Rules:
    """Return what an upstream asks of a contribution."""
    known = upstreams.contributing(queue.folder)
    wanted = queue.folder / "upstreams" / "contributing" / f"{upstream}.toml"
    if upstream not in known:
        raise QueueError(
            f"{upstream}: no rules for contributions are known",
            hint=f"write them in {wanted}; those of vllm show every key",
        )
    rules = read_model(known[upstream], Rules)
    if rules.upstream != upstream:
        raise QueueError(
            f"{known[upstream]}: upstream is {rules.upstream}, and the file's is {upstream}",
            hint="make them the same",
        )
    return rules


def template_of(queue: Queue, rules: Rules, version: str = "") -> Template:
    """Return the template of an upstream's pull requests."""
    known = upstreams.templates(queue.folder, rules.upstream)
    wanted = version or rules.body.template
    if wanted not in known:
        there = ", ".join(known) or "none"
        if version:
            raise UsageError(f"{rules.upstream}: no template {version}", hint=f"there are: {there}")
        raise QueueError(
            f"{rules.upstream}: its rules name the template {wanted}, which is not there",
            hint=f"there are: {there}",
        )
    template = read_model(known[wanted], Template)
    if (template.upstream, template.version) != (rules.upstream, wanted):
        raise QueueError(
            f"{known[wanted]}: it says {template.upstream} {template.version}, and its place says "
            f"{rules.upstream} {wanted}",
            hint="make them the same",
        )
    return template


@dataclass(frozen=True)
class Comparison:
    """How a template's headings differ from those of the live one.

    Attributes:
        gone: Headings of ours that the live one has not.
        new: Headings of the live one that ours has not.
        moved: Whether those that both have stand in another order.
    """

    gone: tuple[str, ...]
    new: tuple[str, ...]
    moved: bool

    @property
    def lines(self) -> tuple[str, ...]:
        """What has changed, a line each; none when nothing has."""
        return (
            *(f"the live template has no `{one}` any more" for one in self.gone),
            *(f"the live template has `{one}`, which is new" for one in self.new),
            *(("the live template has its headings in another order",) if self.moved else ()),
        )


def compare_with_live(template: Template, live: str) -> Comparison:
    """Compare a template's headings with those of the upstream's file as it is now."""
    ours, theirs = list(template.headings), headings(live)
    here = [one for one in ours if one in theirs]
    there = [one for one in theirs if one in ours]
    return Comparison(
        gone=tuple(one for one in ours if one not in theirs),
        new=tuple(one for one in theirs if one not in ours),
        moved=list(dict.fromkeys(here)) != list(dict.fromkeys(there)),
    )


def headings(text: str) -> list[str]:
    """Return the headings of a Markdown text, with their number signs.

    What stands in a comment or a fenced block is none.
    """
    found = []
    fenced = ""
    for row in _COMMENT.sub("", text).splitlines():
        mark = _FENCE.match(row)
        if mark:
            fenced = "" if fenced == mark[1] else fenced or mark[1]
        heading = _HEADING.match(row)
        if heading and not fenced:
            found.append(f"{heading[1]} {heading[2].strip()}")
    return found
