"""What pip is configured to use here: indexes, folders, certificates, proxy.

A machine that can reach packages has said how to pip already, in files or in
variables. pip itself is asked, so that every place it reads counts.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from dataclasses import dataclass
from typing import Final

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError, SourceError

#: Later sections win (pip's user guide, "Precedence / Override order").
_SECTIONS: Final = ("global", "download", ":env:")
_LINE: Final = re.compile(r"(?P<name>[^=]+)=(?P<value>(?P<quote>['\"]).*(?P=quote))")
#: Other names of the same options.
_ALIASES: Final = {"default-timeout": "timeout", "pypi-url": "index-url"}
_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})
#: Variables that decide which files pip reads.
_PLACES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")


@dataclass(frozen=True)
class PipConfig:
    """What pip is configured to use. May hold credentials: never print it.

    Attributes:
        index_url: The index; empty for pip's default.
        extra_index_urls: More indexes.
        find_links: Folders, archives or pages with links.
        no_index: Whether indexes are out of bounds.
        trusted_hosts: `host` or `host:port` whose certificate is not checked.
        cert: A file of certificates to trust, or empty.
        client_cert: A file with a client's certificate and key, or empty.
        proxy: The proxy's URL, or empty.
        timeout: Seconds to wait for an answer.
    """

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    timeout: float = 15.0

    def __repr__(self) -> str:
        """Return a text without any of it: URLs may carry passwords."""
        return "PipConfig(…)"


def read_pip_config() -> PipConfig:
    """Ask pip how it is configured."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in _listed():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[_ALIASES.get(key, key)] = value
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= {key: value for key, value in sections.get(section, {}).items() if value.strip()}
    timeout = merged.get("timeout", "15")
    try:
        seconds = float(timeout)
    except ValueError as error:
        raise SourceError(
            f"pip's configuration: timeout is {timeout!r}, no number of seconds",
            hint="correct it with `pip config set global.timeout 15`",
        ) from error
    return PipConfig(
        index_url=merged.get("index-url", "").strip(),
        extra_index_urls=tuple(merged.get("extra-index-url", "").split()),
        find_links=tuple(merged.get("find-links", "").split()),
        no_index=merged.get("no-index", "").strip().lower() in _YES,
        trusted_hosts=tuple(merged.get("trusted-host", "").split()),
        cert=merged.get("cert", "").strip(),
        client_cert=merged.get("client-cert", "").strip(),
        proxy=merged.get("proxy", "").strip(),
        timeout=seconds,
    )


def _listed() -> list[tuple[str, str]]:
    """Return what `pip config list` says, each name once."""
    values: dict[str, str] = {}
    ambiguous: set[str] = set()
    for line in _pip("list").splitlines():
        if (match := _LINE.fullmatch(line)) is None:
            continue  # notices, for example
        name, value = match["name"], str(ast.literal_eval(match["value"]))
        if values.setdefault(name, value) != value:
            ambiguous.add(name)
    # Since pip 25 a name that stands in several files is listed for each of them, in
    # the order of the files' paths; which one counts, only `get` says.
    for name in ambiguous:
        values[name] = _pip("get", name).strip()
    return list(values.items())


def _pip(*args: str) -> str:
    """Run `pip config` and return what it writes."""
    env = process.clean_environment(
        {
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or name in _PLACES
        }
    )
    try:
        done = process.run([sys.executable, "-m", "pip", "config", *args], env=env, timeout=60.0)
    except CommandError as error:
        if "No module named pip" in error.stderr:
            raise SourceError(
                f"pip is not installed for {sys.executable}, and only it knows the package index",
                hint=f"{sys.executable} -m ensurepip",
            ) from None
        # Its own words may quote a URL of the configuration, with a password.
        raise SourceError(
            "pip cannot read its configuration", hint="see what `pip config debug` says"
        ) from None
    except CommandTimeoutError:
        raise SourceError(
            "pip does not say how it is configured", hint="see what `pip config debug` says"
        ) from None
    return done.stdout.decode("utf-8", "replace")
