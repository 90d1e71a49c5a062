"""Running a program that a person works with in their own terminal, such as a pager."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from contribbot.process.children import check_stopping, describe

log: Final = logging.getLogger(__name__)


def foreground(argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes) -> bool:
    """Run a program in this process's terminal, give it something to read, and wait for it.

    An interrupt from the terminal is the program's to act on: it reaches both, and is
    passed over here until the program has ended.
    """
    check_stopping()
    log.debug("run: %s", describe(argv))
    # A handler, unlike "ignore", is not inherited by the program.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        with subprocess.Popen(list(argv), env=dict(env), stdin=subprocess.PIPE) as child:  # noqa: S603  no shell; argv is a list
            with contextlib.suppress(BrokenPipeError):
                child.communicate(stdin)
            return child.wait() == 0
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
