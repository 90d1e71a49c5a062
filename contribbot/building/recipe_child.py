"""Runs commands one after the other, and dies with its parent.

Started as a script, `recipe_child.py COMMANDS.json`. The file holds a list of
commands, each a list of words. The variable `CONTRIBBOT_LIFELINE` names a file
descriptor whose end of file means that contribbot is gone: then this process and
all that it started in its group are killed. The first command that does not end
with 0 ends it, with the same status (128 and more: a signal).

It imports nothing of contribbot, which need not be importable where it runs.
"""

import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path


def end_with_parent(descriptor: int) -> None:
    """Wait for the end of file, then kill this process's group.

    Args:
        descriptor: The reading end of a pipe.
    """
    while os.read(descriptor, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the commands."""
    lifeline = os.environ.pop("CONTRIBBOT_LIFELINE", "")
    if lifeline:
        threading.Thread(target=end_with_parent, args=(int(lifeline),), daemon=True).start()
    for argv in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        sys.stdout.write(f"+ {shlex.join(argv)}\n")
        sys.stdout.flush()
        status = os.spawnvp(os.P_WAIT, argv[0], argv)  # noqa: S606  no shell is what is wanted
        if status:
            sys.exit(status if status > 0 else 128 - status)


if __name__ == "__main__":
    main()
