"""The Python files of a release's wheel, for releases without a source archive.

A wheel is read here, never installed, so that any platform's will do: what differs
between the wheels of a release are compiled files, which no patch touches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from contribbot.errors import IntegrityError
from contribbot.model.pin import WheelSource
from contribbot.sources.archive import Member, read_members
from contribbot.sources.base import Job
from contribbot.sources.download import obtain
from contribbot.store.fastimport import import_tree

_SUFFIX: Final = ".py"


class WheelFiles:
    """Finds, downloads, checks and imports a release's wheel."""

    def detail(self, job: Job) -> str:
        """Return the release, the folders and the digest."""
        spec = job.spec_as(WheelSource)
        return (
            f"{spec.distribution} {spec.version} wheel {spec.tags}, Python files of"
            f" {', '.join(spec.packages)}, sha256 {spec.sha256}"
        )

    def bring(self, job: Job) -> bool:
        """Import the wheel's Python files; see `Source.bring`."""
        spec = job.spec_as(WheelSource)
        wheel = obtain(spec, progress=job.progress)
        prefix = f"{spec.root}/" if spec.root else ""
        with job.store.exclusive():
            if job.landed():
                return False
            job.progress.start(f"importing {wheel.name}", wheel.stat().st_size)
            with contextlib.ExitStack() as stack:
                stack.callback(job.progress.done)
                message = job.message(spec.sha256)
                tree = stack.enter_context(import_tree(job.store, ref=job.ref, message=message))
                empty = True
                members = read_members(wheel, advance=job.progress.advance, topless=True)
                for member in _python_files(spec, members):
                    empty = False
                    tree.add(prefix + member.path, member.mode, member.size, member.pieces)
                if empty:
                    raise IntegrityError(
                        f"{wheel.name}: holds no Python files under {', '.join(spec.packages)}",
                        hint="correct the packages of the pin's source",
                    )
        return True


def _python_files(spec: WheelSource, members: Iterator[Member]) -> Iterator[Member]:
    folders = tuple(f"{package}/" for package in spec.packages)
    for member in members:
        if member.path.endswith(_SUFFIX) and member.path.startswith(folders):
            yield member
