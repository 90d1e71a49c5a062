"""Saying why a patch is no duplicate: an entry of `[contribution.different]` in its patch.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from contribbot.contribute.gate import looks
from contribbot.errors import GitHubError, UsageError
from contribbot.github.auth import find_server
from contribbot.model.gate import Look
from contribbot.queue.load import Queue, no_such_patch
from contribbot.queue.toml_edit import set_different as edit_different
from contribbot.queue.transaction import transaction

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_GIVEN: Final = re.compile(r"(?P<reference>[\w.-]+/[\w.-]+#[1-9][0-9]*)=(?P<why>.*)", re.DOTALL)
#: A reason says something.
_WORDS: Final = 4
#: Candidates that a message names.
_NAMED: Final = 5
_HINT: Final = 'write --different owner/name#123="why this one is different"'


def read_option(text: str) -> tuple[str, str]:
    """Take `REF=WHY` apart."""
    found = _GIVEN.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--different {text}: no pull request and a reason", hint=_HINT)
    why = found["why"].strip()
    if not why.isprintable():
        raise UsageError("--different: the reason is to be one line of plain text", hint=_HINT)
    if not is_reason(why):
        raise UsageError(
            f"--different {found['reference']}: the reason {why!r} is too short to be one",
            hint="say in a sentence what the other one does and this one does not, or the reverse",
        )
    return found["reference"], why


def is_reason(why: str) -> bool:
    """Say whether a text is long enough to be a reason: a few words that differ."""
    return len({word.lower() for word in re.findall(r"[^\W\d_]{2,}", why)}) >= _WORDS


def set_different(
    queue: Queue,
    name: str,
    reasons: Mapping[str, str],
    github: GitHub | None,
    *,
    broken: GitHubError | None = None,
) -> str:
    """Write why a patch is different from other pull requests; comments and layout stay.

    What a look does not find is refused, before anything is written.
    """
    path = f"patches/{name}/patch.toml"
    if name not in queue.specs:
        raise no_such_patch(name, queue.specs)
    look, unchecked = _look(queue, name, github, broken)
    if look is not None:
        _refuse_strangers(name, reasons, [one.reference for one in look.candidates])
    with transaction(queue.folder) as changes:
        content = changes.read(path)
        if name not in queue.specs or content is None:
            raise no_such_patch(name, queue.specs)
        changes.write(path, edit_different(content, reasons))
        changes.commit()
    return unchecked


def _look(
    queue: Queue, name: str, github: GitHub | None, broken: GitHubError | None
) -> tuple[Look | None, str]:
    """Return a look of the last hour, or why there is none."""
    server, now = find_server().api, datetime.now(UTC).replace(microsecond=0)
    if github is None:
        known = looks.remembered(queue, name, server=server, now=now)
        why = broken.message if broken else "GitHub was not asked (--offline)"
        return known, "" if known else why
    try:
        return looks.find(github, queue, name, server=server, now=now), ""
    except GitHubError as error:
        return None, error.message


def _refuse_strangers(name: str, reasons: Iterable[str], candidates: Iterable[str]) -> None:
    """Refuse an answer to what nobody asks about: most likely a slip in its number."""
    known = list(candidates)
    for reference in unasked(reasons, known):
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        there = f"these are: {', '.join(known[:_NAMED])}{more}" if known else "there is none"
        raise UsageError(
            f"--different {reference}: it is no candidate of {name}; {there}",
            hint="one that you found yourself goes into `related` of patch.toml first",
        )


def unasked(answered: Iterable[str], candidates: Iterable[str]) -> list[str]:
    """Return the pull requests that are answered for and no candidates."""
    known = {one.lower() for one in candidates}
    return [one for one in answered if one.lower() not in known]
