"""The text of a pull request: the upstream's sections, filled from prose and evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from contribbot.contribute.text.escape import clean
from contribbot.contribute.text.figures import Figures, gather
from contribbot.contribute.text.grid import grid_of, not_run
from contribbot.contribute.text.sections import BLOCKS
from contribbot.contribute.text.tables import Context
from contribbot.contribute.text.templates import compare_with_live, rules_of, template_of
from contribbot.errors import GitHubError, QueueError
from contribbot.model.base import Model
from contribbot.model.gate import Searched
from contribbot.model.rules import GITHUB_LIMIT, Block, Rules, Section, Template
from contribbot.queue.load import Queue

#: How short a text can be made.
LEVELS: Final = 4
#: What GitHub takes as a title, in characters.
_LONGEST_TITLE: Final = 256
#: Reads a file of the upstream's default branch: repository and path to its text, or to None
#: where there is no such file. It may raise `GitHubError`.
ReadLive = Callable[[str, str], str | None]
_NOT_COMPARED: Final = "not compared with the live template"


class RecordRef(Model):
    """A record that figures are from.

    Attributes:
        label: How the text names it.
        file: Where it lies, seen from the queue.
        seal: Its seal.
    """

    label: str
    file: str
    seal: str


class Body(Model):
    """The text of a pull request, and what is still to be done about it.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        repository: Its repository.
        title: The pull request's title.
        template: The version of the template.
        text: The text (Markdown).
        sha256: Digest of the text.
        characters: Its length.
        budget: The length that the upstream's rules ask for.
        records: Where the figures are from.
        not_run: Targets on whose hardware nothing ran.
        wants: What a person still has to write.
        live: How the live template differs, a line each; or that it was not looked at.
    """

    patch: str
    upstream: str
    repository: str
    title: str
    template: str
    text: str
    sha256: str
    characters: int
    budget: int
    records: tuple[RecordRef, ...]
    not_run: tuple[str, ...]
    wants: tuple[str, ...]
    live: tuple[str, ...]


def make_body(
    queue: Queue,
    name: str,
    *,
    version: str = "",
    read_live: ReadLive | None = None,
    searched: Searched | None = None,
) -> Body:
    """Make the text of a patch's pull request."""
    figures = gather(queue, name)
    rules = rules_of(queue, figures.patch.spec.upstream)
    template = template_of(queue, rules, version)
    text = _within(figures, rules, template, searched)
    upstream = figures.patch.upstream
    return Body(
        patch=name,
        upstream=upstream.name,
        repository=upstream.repository,
        title=_title(figures),
        template=template.version,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        characters=len(text),
        budget=rules.body.budget,
        records=tuple(
            RecordRef(
                label=one.label,
                file=one.file,
                seal=one.record.statement.seal if one.record.statement else "",
            )
            for one in figures.sources
        ),
        not_run=not_run(grid_of(figures, rules)),
        wants=_wants(figures, rules, template),
        live=_live(rules, template, upstream.repository, read_live),
    )


def _title(figures: Figures) -> str:
    """Return the title, if GitHub takes it."""
    title = clean(figures.patch.spec.title)
    if not 0 < len(title) <= _LONGEST_TITLE:
        raise QueueError(
            f"{figures.patch.folder / 'patch.toml'}: title: {len(title)} characters that print; "
            f"GitHub takes 1 to {_LONGEST_TITLE}",
            hint="write a title that a list of pull requests can show",
        )
    return title


def _within(figures: Figures, rules: Rules, template: Template, searched: Searched | None) -> str:
    """Return the longest form of the text that keeps within the budget."""
    text = ""
    for level in range(LEVELS):
        text = render(figures, rules, template, level, searched)
        if len(text) <= rules.body.budget:
            return text
    limit = "GitHub takes" if len(text) > GITHUB_LIMIT else f"the rules of {rules.upstream} allow"
    most = min(rules.body.budget, GITHUB_LIMIT) if len(text) <= GITHUB_LIMIT else GITHUB_LIMIT
    raise QueueError(
        f"{figures.patch.folder / 'patch.toml'}: the text of the pull request has {len(text):,} "
        f"characters, and {limit} {most:,}",
        hint="shorten problem, root_cause or solution, or raise `budget` in "
        f"upstreams/contributing/{rules.upstream}.toml of the queue",
    )


def render(
    figures: Figures,
    rules: Rules,
    template: Template,
    level: int = 0,
    searched: Searched | None = None,
) -> str:
    """Return the text at one level of shortness."""
    paragraphs: list[str] = []
    for section in template.sections:
        context = Context(figures, rules, section, level, searched)
        if section.heading:
            paragraphs.append(section.heading)
        paragraphs += [section.text] if section.text else []
        for block in section.blocks:
            paragraphs += _block(context, template, block)
        paragraphs += _folded(context, section)
    return "\n\n".join(paragraphs) + "\n"


def _block(context: Context, template: Template, block: Block) -> list[str]:
    made = BLOCKS[block](context)
    # What a person wrote stands above the line from which on a machine speaks.
    if template.machine and block == "words":
        return [*made, template.machine]
    return made


def _folded(context: Context, section: Section) -> list[str]:
    inside = [line for block in section.folded for line in BLOCKS[block](context)]
    if not inside:
        return []
    return [f"<details>\n<summary>{section.summary}</summary>", *inside, "</details>"]


def _wants(figures: Figures, rules: Rules, template: Template) -> tuple[str, ...]:
    """Return what the upstream asks for and nobody has written."""
    contribution = figures.patch.spec.contribution
    used = {block for one in template.sections for block in (*one.blocks, *one.folded)}
    table = "[contribution] of patch.toml"
    told = (
        (
            rules.issue == "required" and contribution.issue is None,
            f"the issue that it fixes: `issue` in {table}",
        ),
        (rules.ai.disclosed and not contribution.ai, f"how AI was used: `ai` in {table}"),
        (
            rules.ai.contained and not contribution.words,
            f"your own words on it, beside what a machine wrote: `words` in {table}",
        ),
        (
            "breaking" in used and not contribution.breaking,
            f"whether something stops working for users: `breaking` in {table}",
        ),
    )
    return tuple(text for missing, text in told if missing)


def _live(
    rules: Rules, template: Template, repository: str, read_live: ReadLive | None
) -> tuple[str, ...]:
    if read_live is None:
        return (_NOT_COMPARED,)
    try:
        live = read_live(repository, rules.body.live)
    except GitHubError as error:
        return (clean(f"{_NOT_COMPARED}: {error.message}"),)
    if live is None:
        return (f"{_NOT_COMPARED}: {repository} has no {rules.body.live}",)
    return tuple(clean(line) for line in compare_with_live(template, live).lines)
