"""The HTTP client for package indexes, which speaks as pip is configured to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, Field, ValidationError

from contribbot.errors import SourceError
from contribbot.sources.pip_config import PipConfig
from contribbot.sources.redact import redact_logs

if TYPE_CHECKING:
    import ssl

    import httpx2
    from unearth.fetchers.sync import PyPIClient

log: Final = logging.getLogger(__name__)

#: What an index calls its pages in JSON (PyPA specification "Simple repository API").
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_SERVER_ERROR: Final = 500
_REFUSED: Final = frozenset({401, 403, 407})
#: Loggers that write URLs as they are, passwords included.
_TALKATIVE: Final = ("unearth.auth", "unearth.collector", "unearth.evaluator", "httpx2")


class _PageFile(BaseModel):
    """What unearth reads of a file on a page."""

    url: str | None = None
    hashes: dict[str, str] | None = None
    requires_python: str | None = Field(default=None, alias="requires-python")
    upload_time: str | None = Field(default=None, alias="upload-time")


class _Page(BaseModel):
    files: list[_PageFile] = []


def _require_page(page: bytes) -> None:
    """Refuse a page in JSON that is none: unearth takes its shape for granted."""
    try:
        _Page.model_validate_json(page)
    except ValidationError:
        raise ValueError("what it gives is no page of a package index") from None


class _Watch:
    """Sees every answer of a server, also those that unearth passes over.

    Attributes:
        answers: How many there were.
        refused: The status of one that refused access, or 0.
        pages: Who reads pages of the JSON interface too, where somebody does.
    """

    def __init__(self) -> None:
        self.pages: Callable[[bytes], None] | None = None
        self.answers = 0
        self.refused = 0

    def reset(self) -> None:
        """Forget what was seen."""
        self.answers = self.refused = 0

    def __call__(self, response: httpx2.Response) -> None:
        """Note an answer; make a fault of the server an exception, which is tried again."""
        self.answers += 1
        if response.status_code in _REFUSED:
            self.refused = response.status_code
        if response.status_code >= _SERVER_ERROR:
            import httpx2  # noqa: PLC0415  comes with unearth

            raise httpx2.HTTPStatusError(
                f"server error {response.status_code}", request=response.request, response=response
            )
        told = response.headers.get("Content-Type", "").lower()
        if response.is_success and told.startswith(_JSON):
            page = response.read()
            _require_page(page)
            if self.pages:
                self.pages(page)


@dataclass(frozen=True)
class Connection:
    """An open HTTP client.

    Attributes:
        http: The client.
        watch: What sees its answers.
    """

    http: PyPIClient
    watch: _Watch


@contextlib.contextmanager
def connect(config: PipConfig) -> Iterator[Connection]:
    """Open a client that uses pip's certificates, proxy, time limit and passwords."""
    from unearth.auth import MultiDomainBasicAuth  # noqa: PLC0415  0.3 s; only for downloads
    from unearth.fetchers.sync import PyPIClient  # noqa: PLC0415  the same

    redact_logs(*_TALKATIVE)
    if not log.isEnabledFor(logging.DEBUG):
        # It warns of each folder of an index that lacks a package, which is no news.
        logging.getLogger("unearth").setLevel(logging.ERROR)
    # Traces headers, with the signed links that indexes redirect to.
    logging.getLogger("httpcore2").setLevel(logging.INFO)
    urls = [config.index_url, *config.extra_index_urls, *config.find_links]
    watch = _Watch()
    with PyPIClient(
        trusted_hosts=config.trusted_hosts,
        verify=_certificates(config),
        timeout=config.timeout,
        # Object stores and mirrors are reached through redirects.
        follow_redirects=True,
        proxy=config.proxy or None,
        event_hooks={"response": [watch]},
        auth=MultiDomainBasicAuth(prompting=False, index_urls=[url for url in urls if url]),
    ) as http:
        yield Connection(http, watch)


def _certificates(config: PipConfig) -> ssl.SSLContext | bool:
    """Return the certificates to trust and to show; True for the usual ones."""
    if not config.cert and not config.client_cert:
        return True
    import ssl  # noqa: PLC0415  only where certificates are configured

    name = config.cert or config.client_cert
    try:
        context = ssl.create_default_context(
            cafile=config.cert if config.cert and not Path(config.cert).is_dir() else None,
            capath=config.cert if config.cert and Path(config.cert).is_dir() else None,
        )
        if config.client_cert:
            name = config.client_cert
            context.load_cert_chain(config.client_cert)
    except OSError as error:  # ssl.SSLError is one
        raise SourceError(
            f"pip's certificate {name} cannot be used: {error.strerror or error}",
            hint="correct `cert` or `client-cert` in pip's configuration",
        ) from error
    return context
