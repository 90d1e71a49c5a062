"""The source archive of a release, from the package index that pip is configured for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contribbot.errors import IntegrityError
from contribbot.model.pin import SdistSource
from contribbot.sources.archive import Member, read_members
from contribbot.sources.base import Job
from contribbot.sources.download import obtain
from contribbot.store.fastimport import import_tree

#: What setuptools writes into the archive beside the repository's files.
_GENERATED: Final = re.compile(r"PKG-INFO|(?:src/)?[^/]+\.egg-info/.*", re.DOTALL)
#: The setup.cfg that setuptools makes when the repository has none. Where the
#: repository has one, setuptools adds these lines to it and it is kept as it is.
_SETUP_CFG: Final = re.compile(rb"\s*\[egg_info\]\s*(?:tag_\w+ *=[^\n]*\s*)*")
_SETUP_CFG_MAX: Final = 500


class SourceArchive:
    """Finds, downloads, checks and imports a release's source archive. Builds nothing."""

    def detail(self, job: Job) -> str:
        """Return the release and its digest."""
        spec = job.spec_as(SdistSource)
        return f"{spec.distribution} {spec.version} source archive, sha256 {spec.sha256}"

    def bring(self, job: Job) -> bool:
        """Import the archive; see `Source.bring`."""
        archive = obtain(job.spec_as(SdistSource), progress=job.progress)
        with job.store.exclusive():
            if job.landed():
                return False
            import_archive(job, archive)
        return True


def import_archive(job: Job, archive: Path) -> None:
    """Stream an archive into the store, below the folder that the source names.

    Call it inside `store.exclusive()`.
    """
    spec = job.spec_as(SdistSource)
    prefix = f"{spec.root}/" if spec.root else ""
    empty = True
    job.progress.start(f"importing {archive.name}", archive.stat().st_size)
    try:
        with import_tree(job.store, ref=job.ref, message=job.message(spec.sha256)) as tree:
            for member in _upstream_files(archive, job):
                empty = False
                if member.copy_of:
                    tree.copy(prefix + member.copy_of, prefix + member.path)
                else:
                    tree.add(prefix + member.path, member.mode, member.size, member.pieces)
            if empty:
                raise IntegrityError(f"{archive.name}: holds no files")
    finally:
        job.progress.done()


def _upstream_files(archive: Path, job: Job) -> Iterator[Member]:
    """Yield the members that the upstream's repository has too."""
    left_out: set[str] = set()
    for member in read_members(archive, advance=job.progress.advance):
        if member.copy_of in left_out:
            raise IntegrityError(f"{archive.name}: {member.path!a}: hard link to a generated file")
        kept: Member | None = member
        if _GENERATED.fullmatch(member.path):
            kept = None
        elif member.path == "setup.cfg" and member.size <= _SETUP_CFG_MAX:
            kept = _unless_generated(member)
        if kept is None:
            left_out.add(member.path)
        else:
            yield kept


def _unless_generated(member: Member) -> Member | None:
    """Return a setup.cfg, unless setuptools made all of it."""
    content = b"".join(member.pieces)
    if _SETUP_CFG.fullmatch(content):
        return None
    return Member(member.path, member.mode, member.size, iter((content,)), member.copy_of)
