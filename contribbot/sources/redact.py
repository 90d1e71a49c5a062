"""Keeping credentials out of everything that people read."""

from __future__ import annotations

import logging
import re
from typing import Final

#: The part between `//` and the last `@` before the path: name, password, token.
_USERINFO: Final = re.compile(r"(?<=://)[^/\s'\"]*@")
#: Queries carry tokens too (signed download links).
_QUERY: Final = re.compile(r"(://[^\s'\"?]*)\?[^\s'\"]*")


def redact(text: str) -> str:
    """Return a text without the credentials of the URLs in it."""
    return _QUERY.sub(r"\1", _USERINFO.sub("", text))


def one_line(text: str) -> str:
    """Return a text on one line, without credentials."""
    return " ".join(redact(text).split())


class _Redacting(logging.Filter):
    """Takes the credentials out of what other libraries log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite a record; let it pass."""
        record.msg, record.args = redact(record.getMessage()), ()
        return True


_REDACTING: Final = _Redacting()


def redact_logs(*names: str) -> None:
    """Keep credentials out of the records of some loggers; calling it again changes nothing."""
    for name in names:
        logging.getLogger(name).addFilter(_REDACTING)
