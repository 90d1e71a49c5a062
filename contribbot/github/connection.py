"""One exchange with a server: bounded in bytes and time, and what may come between in our words."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import requests
import urllib3

from contribbot import process
from contribbot.errors import GitHubError
from contribbot.github.waits import MINUTE

#: More than any answer that contribbot asks for: the listing of PyTorch's tree has 7 MB.
MOST: Final = 64 * 1024 * 1024
#: Seconds until connected, and until the next bytes.
TIMEOUT: Final = (10.0, 60.0)
#: Seconds that one answer may take in all, however its bytes drip.
DEADLINE: Final = 180.0
#: Bytes between two looks at the clock: a chunk is waited for until it is whole.
_CHUNK: Final = 1024
#: What GitHub says in a 403 that is a limit, and no refusal.
_LIMIT: Final = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)
#: GraphQL answers 200 and says it inside, in either spelling.
_GRAPHQL_LIMIT: Final = re.compile(rb'"type"\s*:\s*"RATE_LIMIT(ED)?"')


class OversizeError(Exception):
    """An answer that is read no further."""


@dataclass(frozen=True)
class Answer:
    """An answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Fault:
    """What came between: whether GitHub may have acted, and whether another attempt may help."""

    words: str
    acted: bool = False
    passes: bool = True


#: What the libraries raise, and what it means in our words (theirs quote URLs and proxies), the
#: particular before the general.
RAISED: Final = (
    requests.RequestException, urllib3.exceptions.HTTPError, OSError, OversizeError,
)  # fmt: skip
_FAULTS: Final[tuple[tuple[type[BaseException], Fault], ...]] = (
    (requests.exceptions.ProxyError, Fault("the proxy does not let it through")),
    (requests.exceptions.ConnectTimeout, Fault("no connection to {server} in time")),
    (requests.exceptions.ChunkedEncodingError, Fault("the answer is cut short", acted=True)),
    (requests.exceptions.ContentDecodingError, Fault("the answer is garbled", acted=True)),
    (urllib3.exceptions.NameResolutionError, Fault("the name of {server} is not known here")),
    (urllib3.exceptions.NewConnectionError, Fault("{server} cannot be reached")),
    (requests.exceptions.Timeout, Fault("no answer in time", acted=True)),
    (OversizeError, Fault("an answer of more than {most} MiB", acted=True, passes=False)),
    (Exception, Fault("the connection broke", acted=True)),
)


def fault_of(error: BaseException, server: str) -> Fault:
    """Return what an exception of the libraries means."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Fault("its certificate is not trusted", passes=False)
    below = error.args[0] if error.args else None
    inside = (error, below, getattr(below, "reason", None))
    fault = next(fault for kind, fault in _FAULTS if any(isinstance(it, kind) for it in inside))
    words = fault.words.format(server=server, most=MOST >> 20)
    return Fault(words, fault.acted, fault.passes)


def read_body(response: requests.Response, most: int) -> bytes:
    """Return a body of so many bytes at most, in the time that one answer may take."""
    started, body = time.monotonic(), bytearray()
    for chunk in response.iter_content(_CHUNK):
        process.check_stopping()
        body += chunk
        if len(body) > most:
            raise OversizeError
        if time.monotonic() - started > DEADLINE:
            raise requests.Timeout
    return bytes(body)


def asked_pause(what: str, answer: Answer, attempt: int) -> float | None:
    """Return the seconds that GitHub wants to be left alone; None where it does not say so."""
    headers, start = answer.headers, answer.body[:4096]
    limited: dict[int, bool] = {
        HTTPStatus.TOO_MANY_REQUESTS: True,
        HTTPStatus.FORBIDDEN: "retry-after" in headers or bool(_LIMIT.search(start)),
        HTTPStatus.OK: what == "POST /graphql" and bool(_GRAPHQL_LIMIT.search(start)),
    }
    if not limited.get(answer.status):
        return None
    after, reset = headers.get("retry-after"), headers.get("x-ratelimit-reset", "")
    if after is not None:
        return max(float(after), 1.0) if after.isdigit() else MINUTE
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        # One more second: GitHub's clock has whole ones.
        return max(float(reset) - time.time(), 0.0) + 1.0
    return MINUTE * 2.0 ** (attempt - 1)


def elsewhere(what: str, url: str) -> GitHubError:
    """Return the error for an answer that leads to another server."""
    return GitHubError(
        f"{what[:200]}: GitHub points to another server: {url[:200]!a}",
        hint="correct GITHUB_API_URL, if that is the right one",
    )
