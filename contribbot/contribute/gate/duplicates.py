"""Who else is at the same work: open and recently merged pull requests, compared with a patch.

One look takes a bounded number of requests: at most 6 for lists, 10 searches (GitHub allows 30
a minute), 10 for what the patch names; then one for the files of each of at most 40 pull
requests (one for each further 100 files), and for the most alike of these at most 10 for their
commits and 10 for the sum of these, 15 files of Python (with as many heads, where a search did
not give them) and 10 lists of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from contribbot.contribute.gate.candidates import Found, harvest, in_order, mentions
from contribbot.contribute.gate.ours import Ours
from contribbot.contribute.gate.samechange import Comparison, Same
from contribbot.contribute.gate.touching import functions, read_hunks, shared_functions
from contribbot.contribute.text.escape import clean, shortened
from contribbot.errors import NotFoundError, RefusedError
from contribbot.github.fields import name_of, whole
from contribbot.github.git_data import read_file
from contribbot.model.gate import Candidate, Look

if TYPE_CHECKING:
    from github.File import File

    from contribbot.github.client import GitHub

#: Days in which a merged pull request counts as recent.
DAYS: Final = 90
#: Pull requests whose files are compared.
FILES_OF: Final = 40
#: Of these, files of Python that are parsed, and lists of events.
PARSED: Final = 15
EVENTS: Final = 10
_AT_ONCE: Final = 4
#: Weights of what two changes may have in common.
_SAME_CHANGE: Final = 1000
_SAME_WITHIN: Final = 900
_SAME_COMMIT: Final = 500
_NAMED: Final = 300
_ISSUE: Final = 200
_FUNCTION: Final = 40
_FILE: Final = 10
#: Names of one kind that a row shows, and characters of a title that are kept.
_SHOWN: Final = 4
_TITLE: Final = 200
_LANDED: Final = frozenset({"closed", "merged"})


@dataclass(frozen=True)
class _Shared:
    """What a pull request has in common with the patch."""

    found: Found
    files: tuple[File, ...]
    functions: tuple[str, ...]
    #: Whether it names the issue.
    issue: bool
    #: Whether it touches no file that the patch does not.
    alone: bool
    same: Same = ""

    @property
    def counts(self) -> bool:
        """Whether there is anything in common."""
        return bool(self.files or self.issue or self.same or self.found.related)

    @property
    def weight(self) -> int:
        """How much it is."""
        same = {"whole": _SAME_CHANGE, "within": _SAME_WITHIN, "commit": _SAME_COMMIT, "": 0}
        return (
            same[self.same]
            + (_NAMED if self.found.related else 0)
            + (_ISSUE if self.issue else 0)
            + _FUNCTION * len(self.functions)
            + _FILE * len(self.files)
        )


def look(
    github: GitHub, ours: Ours, title: str, *, key: str, now: datetime, days: int = DAYS
) -> Look:
    """Look for pull requests that may be the same work."""
    made = harvest(github, ours, now - timedelta(days=days))
    ordered = in_order(ours, title, list(made.found.values()))
    limits = [*ours.notes, *made.limits]
    chosen = ordered[:FILES_OF]
    if len(ordered) > len(chosen):
        limits.append(f"the files of {len(chosen)} of {len(ordered)} pull requests were compared")
    shared = [one for one in _compared(github, ours, chosen, limits) if one.counts]
    shared.sort(key=_order)
    shared = _landed(github, shared, limits)
    shared = _same_change(github, ours, shared, limits)
    shared = _parsed(github, ours, shared, limits)
    shared.sort(key=_order)
    return Look(
        key=key,
        time=now,
        days=days,
        seen=len(ordered),
        looked_into=len(chosen),
        candidates=tuple(_candidate(one, ours) for one in shared),
        limits=tuple(shortened(one, _TITLE) for one in limits),
    )


def _order(one: _Shared) -> tuple[int, int]:
    return (-one.weight, -one.found.number)


def _compared(
    github: GitHub, ours: Ours, chosen: Sequence[Found], limits: list[str]
) -> list[_Shared]:
    """Compare the files of pull requests, four at a time."""

    def files_of(one: Found) -> tuple[File, ...]:
        if one.repository.lower() != ours.repository.lower():
            return ()  # its paths are another project's
        try:
            return tuple(github.pull(one.repository, one.number).get_files())
        except NotFoundError as error:  # taken away meanwhile
            limits.append(f"{one.reference}: its files could not be read: {error.message}")
            return ()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        listed = list(pool.map(files_of, chosen))
    return [_shared(ours, one, files) for one, files in zip(chosen, listed, strict=True)]


def _shared(ours: Ours, one: Found, files: Sequence[File]) -> _Shared:
    common = tuple(file for file in files if _path(ours, file))
    return _Shared(
        found=one,
        files=common,
        functions=_functions(ours, common, {}),
        issue=mentions(ours.issue, ours.repository, one),
        alone=bool(common) and len(common) == len(files),
    )


def _path(ours: Ours, file: File) -> str:
    """Return the path by which the patch knows a file of a pull request; or nothing."""
    names = (file.filename, file.previous_filename or "")
    return next((name for name in names if name in ours.touched), "")


def _functions(ours: Ours, files: Sequence[File], contents: dict[str, bytes]) -> tuple[str, ...]:
    found: list[str] = []
    for file in files:
        content = contents.get(file.filename)
        theirs = functions(file.filename, read_hunks(file.patch or ""), content)
        found += shared_functions(ours.touched[_path(ours, file)], theirs)
    return tuple(dict.fromkeys(found))


def _landed(github: GitHub, shared: list[_Shared], limits: list[str]) -> list[_Shared]:
    """Leave out what was closed and did not land; bots land commits and then close."""
    kept: list[_Shared] = []
    left = EVENTS
    for one in shared:
        found = one.found
        if found.state == "closed":
            if left == 0:
                limits.append(f"{found.reference} was closed; whether it landed was not looked at")
                continue
            left -= 1
            events = whole(github.issue(found.repository, found.number).get_events())
            if any(event.event in _LANDED and event.commit_id for event in events):
                found.state = "merged"
            elif not found.related:
                continue
        kept.append(one)
    return kept


def _same_change(
    github: GitHub, ours: Ours, shared: list[_Shared], limits: list[str]
) -> list[_Shared]:
    """Find those that are the same change, or hold it or one commit of it."""
    compared = Comparison(github, ours)
    made = []
    for one in shared:
        found = one.found
        same: Same = (
            compared.same(found.repository, found.number, alone=one.alone) if one.files else ""
        )
        made.append(replace(one, same=same))
    limits += compared.said()
    return made


def _parsed(github: GitHub, ours: Ours, shared: list[_Shared], limits: list[str]) -> list[_Shared]:
    """Name functions by the syntax of the files themselves, where they are Python."""
    made: list[_Shared] = []
    left = PARSED
    for one in shared:
        wanted = [file for file in one.files if _is_python(file)][:left]
        left -= len(wanted)
        contents: dict[str, bytes] = {}
        try:
            head = one.found.head or (_head(github, one.found) if wanted else None)
            for file in wanted if head else ():
                content = read_file(github, head[0], file.filename, head[1]) if head else None
                if content is not None:
                    contents[file.filename] = content
        except (NotFoundError, RefusedError) as error:
            limits.append(f"{one.found.reference}: its files could not be read: {error.message}")
        made.append(replace(one, functions=_functions(ours, one.files, contents)))
    return made


def _is_python(file: File) -> bool:
    return file.filename.endswith((".py", ".pyi")) and file.status != "removed" and bool(file.patch)


def _head(github: GitHub, found: Found) -> tuple[str, str] | None:
    """Return where the files of a pull request lie that a search found."""
    head = github.pull(found.repository, found.number).complete().head
    where = name_of(head.repo)
    return (where, head.sha) if where else None


def _candidate(one: _Shared, ours: Ours) -> Candidate:
    found = one.found
    says = [
        *(["the same change (patch-id)"] if one.same == "whole" else []),
        *(["a commit of it is the same change (patch-id)"] if one.same == "within" else []),
        *(["one of the patch's commits (patch-id)"] if one.same == "commit" else []),
        *(["named in `related`"] if found.related else []),
        *([f"mentions {ours.issue}"] if one.issue else []),
        *_some("functions", one.functions),
        *_some("files", [file.filename for file in one.files]),
    ]
    return Candidate(
        reference=found.reference,
        title=found.title[:_TITLE],
        author=clean(found.author) or "ghost",
        state=found.state,
        url=found.url,
        in_common=tuple(says),
        weight=one.weight,
    )


def _some(kind: str, names: Sequence[str]) -> list[str]:
    """Say some names of one kind."""
    if not names:
        return []
    shown = ", ".join(shortened(name, _TITLE) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{kind if len(names) > 1 else kind[:-1]} {shown}{more}"]
