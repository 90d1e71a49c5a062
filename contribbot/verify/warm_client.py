"""The client: the program in a run's sandbox that asks for a fork: `CHANNEL COMMAND...`.

The script starts without `site`, because that is quick. The forked run gets this program's
variables, folder and streams, and this program ends with the run's exit status. If no run is
forked, this program executes the command itself. `warm.py` describes all processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

_STREAMS = (0, 1, 2)


def main() -> None:
    """Ask for a fork and end with the fork's exit status, or else execute the command."""
    channel, command = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
    request = {"command": command, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109  quick to start
    try:
        socket.send_fds(channel, [json.dumps(request).encode()], _STREAMS)
        answer = channel.recv(1000).decode()
    except OSError:
        answer = ""
    if answer == "forked":
        # No answer: the keeper was killed, and with the keeper the fork.
        _end(int(channel.recv(1000) or -signal.SIGKILL))
    why = answer or "the warmed process has ended"
    os.write(2, f"contribbot: not forked from a warmed process: {why}\n".encode())
    channel.close()
    os.execv(command[0], command)  # noqa: S606  the command of the check's child


def _end(status: int) -> None:
    """End this program with an exit status; a negative status is the number of a signal."""
    if status < 0:
        if -status not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
