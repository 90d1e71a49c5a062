"""The program that stands in a sandbox for the fork of a warmed process: `CHANNEL COMMAND...`.

Started as a script without `site`, so that its start costs next to nothing. The fork gets this
program's variables, folder and streams; the status of the fork becomes its own. Where the warmed
process does not fork, the command is executed here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

_STREAMS = (0, 1, 2)


def main() -> None:
    """Ask for a fork and end with the fork's status, or else become the command."""
    channel, command = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
    lifeline = os.environ.pop("CONTRIBBOT_LIFELINE")
    request = {"command": command, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109  quick to start
    try:
        socket.send_fds(channel, [json.dumps(request).encode()], _STREAMS)
        answer = _answer(channel, int(lifeline))
    except OSError:
        answer = ""
    if answer == "forked":
        # Without an answer the process beside the fork was killed, and the fork with it.
        _end(int(_answer(channel, int(lifeline)) or -signal.SIGKILL))
    why = answer or "the warmed process has ended"
    os.write(2, f"contribbot: not forked from a warmed process: {why}\n".encode())
    channel.close()
    os.environ["CONTRIBBOT_LIFELINE"] = lifeline
    os.execv(command[0], command)  # noqa: S606  the command of the check's child


def _answer(channel: socket.socket, lifeline: int) -> str:
    """Return the next answer; end where contribbot has ended."""
    ready, _, _ = select.select([channel.fileno(), lifeline], [], [])
    if lifeline in ready:
        os._exit(1)
    return channel.recv(1000).decode()


def _end(status: int) -> None:
    """End with a status, or by the signal that a negative status means."""
    if status < 0:
        if -status not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
