"""An answer as it came over the wire, and what may be said of it to a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from contribbot.errors import GitHubError

_LONGEST: Final = 300


@dataclass(frozen=True)
class Answer:
    """What a server said.

    Attributes:
        status: The HTTP status.
        headers: Its headers, names in lower case.
        body: Its body, decoded from gzip.
        what: The request that it answers, such as `GET /user`; no credentials.
        unchanged: Whether the body is one of an earlier answer (304).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    what: str
    unchanged: bool = False

    def said(self) -> str:
        """Return GitHub's words for a refusal, in one clean line; may be empty."""
        try:
            told = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(told, dict):
            return ""
        parts = [told["message"]] if isinstance(told.get("message"), str) else []
        errors = told.get("errors")
        for one in errors[:5] if isinstance(errors, list) else []:
            if isinstance(one, str):
                parts.append(one)
            elif isinstance(one, dict) and isinstance(one.get("message"), str):
                parts.append(one["message"])
            elif isinstance(one, dict):
                keys = ("resource", "field", "code")
                parts.append(" ".join(str(one[key]) for key in keys if key in one))
        return clean_line(": ".join(part for part in parts if part))


def clean_line(text: str, longest: int = _LONGEST) -> str:
    """Return a text of a server as one printable line of bounded length."""
    line = " ".join(text[: 4 * longest].split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def next_page(answer: Answer, api: str) -> str | None:
    """Return the path and query of the page that follows, or None on the last."""
    for part in answer.headers.get("link", "").split(","):
        target, _, rest = part.partition(";")
        if 'rel="next"' in rest:
            return same_server(target.strip().strip("<>"), api, answer.what)
    return None


def same_server(url: str, api: str, what: str) -> str:
    """Return path and query of a URL that a server named, behind the API's own path."""
    here = urlsplit(api)
    try:
        there = urlsplit(url)
        same = not there.netloc or (there.scheme, there.netloc) == (here.scheme, here.netloc)
    except ValueError:
        there, same = urlsplit(""), False
    if not same or not there.path.startswith("/") or not url.isprintable():
        raise GitHubError(
            f"{what}: GitHub points to another server: {clean_line(url)}",
            hint="correct GITHUB_API_URL, if that is the right one",
        )
    path = there.path.removeprefix(here.path) if here.path else there.path
    return f"{path}?{there.query}" if there.query else path
