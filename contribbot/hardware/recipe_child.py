"""Runs commands one after the other.

Started as a script, `recipe_child.py COMMANDS.json`, by `commands.run_commands`. The
file holds a list of commands, each a list of words. The first command that does not
end with 0 ends it, with the same status (128 and more: a signal).

It imports nothing of contribbot, which need not be importable where it runs.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path


def main() -> None:
    """Run the commands."""
    # Whoever started this process ends it with its parent; a build need not know.
    os.environ.pop("CONTRIBBOT_LIFELINE", None)
    for argv in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        sys.stdout.write(f"+ {shlex.join(argv)}\n")
        sys.stdout.flush()
        status = os.spawnvp(os.P_WAIT, argv[0], argv)  # noqa: S606  no shell is what is wanted
        if status:
            sys.exit(status if status > 0 else 128 - status)


if __name__ == "__main__":
    main()
