"""Handing over to a person: the page on which a pull request is written already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from contribbot.contribute.opening.branch import Place
from contribbot.files import write_atomically
from contribbot.github.cache import make_private

#: GitHub's server refuses longer addresses.
_LONGEST: Final = 8000


@dataclass(frozen=True)
class Page:
    """A prefilled compare page."""

    url: str
    #: The file with the body, where that is too long for an address; else None.
    body_file: Path | None = None


def compare_page(place: Place, branch: str, title: str, body: str, body_file: Path) -> Page:
    """Return the page on which a person opens the pull request."""
    ends = f"{quote(place.tip.name)}...{quote(place.owner)}:{quote(branch)}"
    start = f"{place.server.rstrip('/')}/{place.upstream}/compare/{ends}"
    query = {"expand": "1", "title": title, "body": body}
    url = f"{start}?{urlencode(query, quote_via=quote)}"
    if len(url) <= _LONGEST:
        return Page(url)
    del query["body"]
    return Page(f"{start}?{urlencode(query, quote_via=quote)}", body_file)


def write_body(page: Page, body: str) -> None:
    """Write the body to its file, where the page does not have it."""
    if page.body_file is not None:
        make_private(page.body_file.parent)
        write_atomically(page.body_file, body.encode("utf-8"))
