"""Releases of Triton beside the installed one: each in a folder of its own in the cache."""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from contribbot import process
from contribbot.errors import CommandError, MachineError, UsageError
from contribbot.git.source import one_line
from contribbot.hardware.build_cache import CachedBuild, build_key, make

_EXAMPLE: Final = "such as --with triton==3.6.0,3.7.1"
_SITE: Final = "site"
_SECONDS: Final = 3600.0
#: What pip says where no wheel fits, and where it could ask nobody.
_VERSIONS: Final = re.compile(r"\(from versions: ([^)]*)\)")
_NETWORK: Final = re.compile(
    r"Retrying|Could not fetch URL|Max retries|Connection|timed out|ProxyError|SSLError"
)
_ERROR: Final = re.compile(r"^ERROR: (.+)$", re.MULTILINE)
#: Versions that a message names, the newest.
_MOST: Final = 6


def two_releases(text: str) -> tuple[str, str]:
    """Read `triton==3.6.0,3.7.1`."""
    package, _, listed = text.partition("==")
    if package.strip() != "triton":
        raise UsageError(f"--with {text}: only triton can be had twice", hint=_EXAMPLE)
    found = [version.strip() for version in listed.split(",")]
    for version in found:
        try:
            Version(version)
        except InvalidVersion:
            raise UsageError(f"--with {text}: {version!r} is no version", hint=_EXAMPLE) from None
    if len(found) != 2 or Version(found[0]) == Version(found[1]):  # noqa: PLR2004  two sides
        raise UsageError(f"--with {text}: name two versions", hint=_EXAMPLE)
    return found[0], found[1]


def installed_release(version: str) -> Path:
    """Return the folder for Python's path that holds a release; pip brings it, if need be."""
    python = f"Python {platform.python_version()} on {sysconfig.get_platform()}"
    key = build_key(["triton", version, python, str(sysconfig.get_config_var("SOABI"))])

    def bring(folder: Path) -> CachedBuild:
        started = time.monotonic()
        try:
            process.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                 "--no-input", "--no-deps", "--only-binary", ":all:", "--target", folder / _SITE,
                 f"triton=={version}"],
                env=_environment(), timeout=_SECONDS, tethered=True,
            )  # fmt: skip
        except CommandError as error:
            raise _worded(error, version, python) from error
        return CachedBuild(time.monotonic() - started, log="", python=(_SITE,))

    product = make(key, bring)
    if product is None:
        raise MachineError(f"triton {version}: it is not as pip wrote it", hint="try again")
    return product.folder / _SITE


def _environment() -> dict[str, str]:
    # Constraints and requirements of this environment are not those of that folder.
    kept = process.user_environment()
    return {
        name: value for name, value in kept.items()
        if name not in {"PIP_CONSTRAINT", "PIP_REQUIRE_HASHES", "PIP_TARGET", "PIP_USER"}
    }  # fmt: skip


def _worded(error: CommandError, version: str, python: str) -> UsageError | MachineError:
    """Say why pip did not bring a release."""
    versions = _VERSIONS.search(error.stderr)
    there = versions[1].split(", ") if versions and versions[1] != "none" else []
    if there:
        newest = ", ".join(reversed(there[-_MOST:]))
        return UsageError(
            f"triton {version}: the index has no wheel of it for {python}",
            hint=f"it has {newest}{', …' if len(there) > _MOST else ''}",
        )
    if _NETWORK.search(error.stderr):
        return MachineError(
            f"triton {version}: the package index cannot be reached",
            hint="check the network, and the index and proxy in `pip config list`",
        )
    if versions:
        return MachineError(
            f"triton {version}: the index has no wheel of triton for {python}",
            hint="see which indexes `pip config list` names",
        )
    said = _ERROR.search(error.stderr)
    why = said[1] if said else error.message.rpartition(": ")[2]
    return MachineError(
        f"triton {version}: pip cannot install it: {one_line(why)}",
        hint=f"see what `{Path(sys.executable).name} -m pip download triton=={version}` says",
    )
