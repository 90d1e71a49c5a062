"""What a run left, from a folder that somebody filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.model.actions import PREFIX
from contribbot.runners.answer import Source, read_done
from contribbot.runners.artifacts import RefusedArtifactError, check_names
from contribbot.runners.fetching import Arrived, Haul, copied, opened


def from_folder(folder: Path, *, scratch: Path) -> Haul:
    """Open what somebody fetched: `NAME.zip`, or `NAME/` as `gh run download` unpacks it.

    GitHub is not asked, so that nobody can tell whether it is what the jobs sent.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="name the folder with the artifacts")
    arrived = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".zip")
        if not name.startswith(PREFIX):
            continue
        if path.is_symlink():
            arrived.append(Arrived(name, refused="it is a link"))
            continue
        if path.is_dir():
            arrived.append(_unpacked(path))
            continue
        try:
            got = copied(path, scratch / "one.zip")
        except RefusedArtifactError as error:
            arrived.append(Arrived(name, refused=str(error)))
        else:
            arrived.append(opened(name, scratch / "one.zip", got))
    if not arrived:
        raise UsageError(
            f"{folder}: no artifact of contribbot in it",
            hint=f"it holds {PREFIX}….zip, or folders of such names",
        )
    source, odd = _source_of(arrived)
    note = "GitHub was not asked: whether this is what the jobs sent, nobody here can tell"
    return Haul(source, tuple(arrived), notes=(note, *odd))


def _unpacked(folder: Path) -> Arrived:
    """Read a folder that was an artifact."""
    try:
        paths = sorted(folder.rglob("*"))
        _check_kinds(paths)
        found = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
        check_names({name: path.stat().st_size for name, path in found.items()})
    except RefusedArtifactError as error:
        return Arrived(folder.name, refused=str(error))
    files = {name: path.read_bytes() for name, path in found.items() if name.endswith(".json")}
    return Arrived(folder.name, files)


def _check_kinds(paths: Sequence[Path]) -> None:
    if any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in paths):
        raise RefusedArtifactError("there is a link or a device in it")


def _source_of(arrived: Sequence[Arrived]) -> tuple[Source | None, list[str]]:
    """Return the run that most of the artifacts say they are from."""
    said: Counter[tuple[str, int, str]] = Counter()
    attempts = 1
    for one in arrived:
        try:
            run = read_done(one.files).run
        except RefusedArtifactError:
            continue
        if run is not None:
            said[run.repository, run.run_id, run.commit] += 1
            attempts = max(attempts, run.attempt)
    if not said:
        return None, []
    (repository, run_id, commit), _ = said.most_common(1)[0]
    odd = [] if len(said) == 1 else [f"the artifacts are of {len(said)} runs: {run_id} counts"]
    return Source(repository, run_id, attempts, commit), odd
