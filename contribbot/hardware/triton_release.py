"""Releases of Triton beside the installed one: each in a folder of its own in the cache."""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from contribbot import process
from contribbot.errors import CommandError, ContribbotError, MachineError, UsageError
from contribbot.git.source import one_line
from contribbot.hardware.build_cache import CachedBuild, build_key, make

_SITE: Final = "site"
_SECONDS: Final = 3600.0
#: What pip says where no wheel fits, or where it could ask nobody.
_VERSIONS: Final = re.compile(r"\(from versions: (?:none|([^)]*))\)")
#: Versions that a message names, the newest.
_MOST: Final = 6


def two_releases(text: str) -> tuple[str, str]:
    """Read `triton==3.6.0,3.7.1`."""
    package, _, listed = text.partition("==")
    versions = [version.strip() for version in listed.split(",")]
    try:
        different = len(set(map(Version, versions))) == len(versions)
    except InvalidVersion:
        different = False
    if package.strip() != "triton" or len(versions) != 2 or not different:  # noqa: PLR2004  two sides
        hint = "such as --with triton==3.6.0,3.7.1"
        raise UsageError(f"--with {text}: name two releases of triton", hint=hint)
    return versions[0], versions[1]


def installed_release(version: str) -> Path:
    """Return the folder for Python's path that holds a release; pip brings it, if need be."""
    python = f"Python {platform.python_version()} on {sysconfig.get_platform()}"

    def bring(folder: Path) -> CachedBuild:
        # Constraints of this environment are not those of that folder.
        kept = process.user_environment()
        env = {name: kept[name] for name in kept if name != "PIP_CONSTRAINT"}
        try:
            process.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                 "--no-input", "--no-deps", "--only-binary", ":all:", "--target", folder / _SITE,
                 f"triton=={version}"], env=env, timeout=_SECONDS, tethered=True,
            )  # fmt: skip
        except CommandError as error:
            raise _worded(error, version, python) from error
        return CachedBuild(0.0, log="", python=(_SITE,))

    product = make(build_key(["triton", version, python]), bring)
    if product is None:
        raise MachineError(f"triton {version}: it is not as pip wrote it", hint="try again")
    return product.folder / _SITE


def _worded(error: CommandError, version: str, python: str) -> ContribbotError:
    """Say why pip did not bring a release."""
    versions = _VERSIONS.search(error.stderr)
    if versions and versions[1]:
        newest = ", ".join(reversed(versions[1].split(", ")[-_MOST:]))
        return UsageError(
            f"triton {version}: the index has no wheel of it for {python}",
            hint=f"the newest that it has: {newest}",
        )
    why = "the package index cannot be reached, or has no wheel of triton"
    if not versions:
        why = f"pip does not install it: {one_line(error.stderr.strip().rpartition(chr(10))[2])}"
    hint = "check the network, and the index and proxy in `pip config list`"
    return MachineError(f"triton {version}: {why}", hint=hint)
