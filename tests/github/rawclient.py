"""A client that hides nothing: one request, its status, headers and bytes."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue


@dataclass(frozen=True)
class Reply:
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> JsonValue:
        """The body as JSON."""
        found: JsonValue = json.loads(self.body)
        return found

    def at(self, *keys: str | int) -> JsonValue:
        """Follow keys and indexes into the body."""
        value = self.json
        for key in keys:
            if isinstance(value, dict) and isinstance(key, str):
                value = value[key]
            else:
                assert isinstance(value, list), (key, value)
                assert isinstance(key, int)
                value = value[key]
        return value

    def words(self) -> str:
        """GitHub's message, and those of its errors."""
        found = self.json
        assert isinstance(found, dict), found
        errors = found.get("errors", [])
        assert isinstance(errors, list)
        more = [str(one.get("message", one)) for one in errors if isinstance(one, dict)]
        return " | ".join([str(found["message"]), *more])


@dataclass(frozen=True)
class Raw:
    """Who asks whom. `token` None: anonymously."""

    base: str
    token: str | None = None

    def __call__(self, method: str, path: str, body: JsonValue = None, **headers: str) -> Reply:
        """Send one request on a connection of its own; `Accept=...` and so on are headers."""
        where = urlsplit(self.base)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
        sent = {"User-Agent": "raw", **{key.replace("_", "-"): headers[key] for key in headers}}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body).encode(), sent
            )
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, names, answer.read())
        finally:
            connection.close()
