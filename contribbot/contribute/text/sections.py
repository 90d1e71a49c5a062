"""The blocks that sections are filled with: one function each, and the table of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from contribbot.contribute.text import speed, tables
from contribbot.contribute.text.escape import code, fence, plain, prose
from contribbot.contribute.text.tables import Context
from contribbot.git.patch_format import parse, plain_path
from contribbot.model.patch import Contribution, Patch
from contribbot.model.rules import Block, Rules, Tick

#: What Markdown knows only at the start of a line.
_BLOCK: Final = re.compile(r"```|~~~|[-+*>|]|[0-9]+[.)]|\\#|\t")
#: How `ai` says that none was used, as `docs` says that none is needed: "None.", "no AI was
#: used", "none: and why". "None of it by hand" is something else.
_NO_AI: Final = re.compile(
    r"(?i)\s*(?:none|no ai|not used)(?:\s+(?:was\s+)?used)?(?:\s+at\s+all)?\s*(?:[.:;,(]|$)"
)
#: Claims that are worth a line, at most.
_CLAIMS: Final = 8
#: Limits of a look that are worth naming.
_LIMITS: Final = 3


def words(context: Context) -> list[str]:
    """Return what the person says in their own words."""
    text = context.figures.patch.spec.contribution.words
    return [prose(text)] if text else []


def problem(context: Context) -> list[str]:
    """Return what is wrong."""
    return [prose(context.figures.patch.spec.problem)]


def cause(context: Context) -> list[str]:
    """Return why."""
    return _led("**Root cause.**", context.figures.patch.spec.root_cause)


def solution(context: Context) -> list[str]:
    """Return what the patch does about it."""
    return _led("**Change.**", context.figures.patch.spec.solution)


def issue(context: Context) -> list[str]:
    """Return the issue that it fixes, so that GitHub closes it."""
    patch = context.figures.patch
    reference = patch.spec.contribution.issue
    if reference is None:
        return []
    return [f"Fixes {reference.removeprefix(patch.upstream.repository)}"]


def waits(context: Context) -> list[str]:
    """Return the pull requests that must be merged first."""
    first = context.figures.waits
    return [f"Stacked on {', '.join(first)}, to be merged first."] if first else []


def related(context: Context) -> list[str]:
    """Return what else a reader should know."""
    spec = context.figures.patch.spec
    told = {spec.contribution.issue, *spec.contribution.different}
    left = [one for one in spec.related if one not in told]
    return [f"Related: {', '.join(left)}"] if left else []


def duplicates(context: Context) -> list[str]:
    """Return why it is no duplicate of what others do."""
    different = context.figures.patch.spec.contribution.different
    if not different:
        return _none_found(context)
    lines = [
        f"- {reference}: {' '.join(prose(why).split())}" for reference, why in different.items()
    ]
    return ["**Not a duplicate of:**", "\n".join(lines)]


def _none_found(context: Context) -> list[str]:
    """Say what a look for duplicates looked at that found none, where the upstream asks."""
    found, patch = context.searched, context.figures.patch
    if found is None or not context.rules.body.duplicates:
        return []
    by = f"{'the issue, ' if patch.spec.contribution.issue else ''}files, functions and patch-id"
    rest = len(found.limits) - _LIMITS
    limits = [*map(plain, found.limits[:_LIMITS]), *([f"and {rest} more"] if rest > 0 else [])]
    told = f" Limits of that look: {'; '.join(limits)}." if limits else ""
    text = (
        f"**No duplicate was found** on {found.time:%Y-%m-%d}, compared by {by}, among the open "
        f"pull requests of {patch.upstream.repository} and those merged in the {found.days} days "
        f"before: {found.seen} were listed or found, and {found.looked_into} of them looked into."
    )
    return [text + told]


def docs(context: Context) -> list[str]:
    """Return what becomes of the documentation."""
    text = context.figures.patch.spec.contribution.docs
    return _led("**Documentation**:", text) if text else []


def disclosure(context: Context) -> list[str]:
    """Return how AI was used."""
    text = context.figures.patch.spec.contribution.ai
    return _led("**Use of AI.**", text) if text else []


def ai_used(contribution: Contribution) -> bool:
    """Say whether a contribution says that AI was used."""
    return bool(contribution.ai) and not _NO_AI.match(contribution.ai)


def _led(title: str, text: str) -> list[str]:
    """Return prose behind a title; below it, where it begins with a list or a block."""
    shown = prose(text)
    if _BLOCK.match(shown):
        return [title, shown]
    return [f"{title} {shown}"]


def breaking(context: Context) -> list[str]:
    """Return what stops working for users."""
    contribution = context.figures.patch.spec.contribution
    text = prose(contribution.breaking) if contribution.breaking else ""
    if not (text and ai_used(contribution) and context.rules.ai.contained):
        return [text] if text else []
    # A quote is how text by a machine is kept apart where no heading says so.
    return ["\n".join(f"> {row}".rstrip() for row in ("(machine-written)", "", *text.splitlines()))]


def claims(context: Context) -> list[str]:
    """Return what the change was shown to do, a line each."""
    figures = context.figures
    lines = [
        f"- {code(one.name)}: {one.count('base', 'failed')} tests fail without the change and "
        f"pass with it, on {one.result.target} ({one.labels})"
        for one in figures.of("reproduce")
        if one.red
    ]
    lines += [
        f"- {code(one.name)} compiled for {one.result.target}, not run there: "
        f"{plain(one.summary)} ({one.labels})"
        for one in figures.of("compile")
        if one.red
    ]
    lines += [
        f"- {code(one.name)} on {one.result.target}: {plain(one.summary)} ({one.labels})"
        for one in figures.of("numerics")
    ]
    fast = {entry.name for entry in figures.patch.spec.bench if entry.at_least >= 1}
    lines += [
        f"- {code(one.name)} {speed.device(one)}: {plain(one.summary)} ({one.labels})"
        for one in figures.of("bench")
        if one.name in fast
    ]
    left = len(lines) - _CLAIMS
    more = [f"- and {left} more, under Validation"] if left > 0 else []
    return ["\n".join([*lines[:_CLAIMS], *more])] if lines else []


def commands(context: Context) -> list[str]:
    """Return the commands that run it all again, and the tests that the change adds."""
    patch = context.figures.patch
    # Others are no tests of pytest's.
    touched = [one for one in test_files(patch, context.rules) if one.endswith(".py")]
    lines = [
        "# in the queue that keeps the records",
        f"contribbot verify {patch.name}",
        *(["# in a checkout with the change; no record is of this"] if touched else []),
        *(f"python -m pytest {shlex.quote(file)}" for file in touched),
    ]
    return [fence("\n".join(lines), language="sh")]


def test_files(patch: Patch, rules: Rules) -> list[str]:
    """Return the tests in the upstream's tree that a patch adds or changes."""
    folders = (*rules.tests, *patch.upstream.tests)
    gone: dict[str, bool] = {}
    for file in patch.files:
        for one in parse(file.name, file.content):
            gone[plain_path(one.source_file)] = bool(one.is_removed_file or one.is_rename)
            gone[plain_path(one.target_file)] = bool(one.is_removed_file)
    return [
        path
        for path in patch.spec.files
        if not gone.get(path)
        and any(path.startswith(f"{folder}/") for folder in folders)
        and PurePosixPath(path).name.startswith("test_")
    ]


def evaluation(context: Context) -> list[str]:
    """Say what a person says of a model's evaluation: no record of contribbot holds one."""
    said = context.figures.patch.spec.contribution.model_evaluation
    if not said:
        return ["Model evaluation: **not run**."]
    return _led("**Model evaluation**, as a person says; no record is of it:", said)


def checklist(context: Context) -> list[str]:
    """Return the checklist; only what is known is ticked."""
    rows = [
        f"- [{'x' if _ticked(context, item.tick) else ' '}] {item.text}"
        for item in context.section.items
    ]
    return ["\n".join(rows)] if rows else []


def _ticked(context: Context, tick: Tick) -> bool:
    patch = context.figures.patch
    if tick == "ai":
        return ai_used(patch.spec.contribution)
    if tick == "tests":
        return bool(test_files(patch, context.rules))
    if tick == "benchmarks":
        return bool(context.figures.of("bench"))
    return tick == "docs" and bool(patch.spec.contribution.docs)


#: A function for each block.
BLOCKS: Final[dict[Block, Callable[[Context], list[str]]]] = {
    "words": words,
    "problem": problem,
    "cause": cause,
    "solution": solution,
    "waits": waits,
    "related": related,
    "issue": issue,
    "claims": claims,
    "commands": commands,
    "tests": tables.tests,
    "numerics": tables.numerics,
    "compile": tables.compiled,
    "witness": tables.witness,
    "speed": speed.speed,
    "grid": tables.grid,
    "evaluation": evaluation,
    "duplicates": duplicates,
    "breaking": breaking,
    "ai": disclosure,
    "checklist": checklist,
    "records": tables.records,
    "docs": docs,
}
