"""What came of a patch's versions: verdicts as its history has them, figures from git's records."""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from contribbot.errors import CommandTimeoutError
from contribbot.model.evidence import Statement, Verdict, seal_of
from contribbot.model.history import VerifiedEvent, VersionEvent
from contribbot.queue.load import Queue
from contribbot.report.story import PatchStory, entries_of, headline_of
from contribbot.runners.actions import ask_git
from contribbot.verify.evidence import Record, State, contradiction
from contribbot.verify.facts import Source

#: Of verdicts of several machines the first counts.
_RANK: Final = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)
#: Records as git had them, the newest first, by the digest of the patch and its pin.
Kept = Mapping[tuple[str, str], Sequence[Source]]


class PastVersion(NamedTuple):
    """A version of a patch, and what came of it."""

    name: str
    pin: str
    verdict: str
    headline: str


def kept_records(queue: Queue) -> Kept:
    """Return the records that the queue's git repository has had; without one, none."""
    log = ("log", "--max-count=200", "--no-show-signature", "--format=", "--raw", "--no-abbrev",
           "--no-renames", "--diff-filter=AM", "--", "evidence")  # fmt: skip
    texts = ""
    # In a repository so large that git is slow, the pages do without.
    with contextlib.suppress(CommandTimeoutError):
        blobs = re.findall(r"(?m)^:\d+ \d+ \w+ (\w+) [AM]\t.*\.json$", ask_git(queue.folder, *log))
        ids = "".join(f"{blob}\n" for blob in dict.fromkeys(blobs))
        texts = ask_git(queue.folder, "cat-file", "--batch", stdin=ids.encode()) if ids else ""
    kept: dict[tuple[str, str], dict[str, Source]] = defaultdict(dict)
    for text in re.split(r"(?m)^[0-9a-f]{40,64} blob \d+$", texts)[1:]:
        if source := _read(text):
            details = source.details
            # The newest of each machine comes first.
            kept[details.patch_sha256, details.pin].setdefault(details.machine.slug, source)
    return {key: [*sources.values()] for key, sources in kept.items()}


def _read(text: str) -> Source | None:
    """Read a record; one of an older form, or that contradicts itself, tells nothing."""
    try:
        document = json.loads(text)
        statement = Statement.model_validate(document)
    except (ValueError, RecursionError, ValidationError):
        return None
    if contradiction(statement, seal_of(document)):
        return None
    record = Record(Path(), State.STALE, "", statement)
    return Source("", record, "", statement.predicate.contribbot, "")


def versions_of(story: PatchStory, kept: Kept) -> list[PastVersion]:
    """Return what came of the versions that were verified, oldest first, and of what is there."""
    names: dict[tuple[str, str], str] = {}
    seen: dict[tuple[str, str], dict[str, Verdict]] = defaultdict(dict)
    for event in story.events:
        if isinstance(event, VersionEvent):
            names[event.digest, event.pin] = f"v{event.version}"
        elif isinstance(event, VerifiedEvent):
            names.setdefault((event.digest, event.pin), "")
            seen[event.digest, event.pin][event.machine] = event.verdict
    now = story.patch.digest, story.patch.pin.tag
    last = PastVersion(names.pop(now, ""), now[1], story.verdict, story.headline)
    past = []
    for key, name in names.items():
        sources = kept.get(key, ())
        verdicts = {*seen[key].values(), *(source.details.verdict for source in sources)}
        if verdict := next((each for each in _RANK if each in verdicts), None):
            figure = headline_of(entries_of(story.patch, sources))
            past.append(PastVersion(name, key[1], verdict, figure))
    return [*past, last]
