"""Fork the runs of checks from warmed processes: Python with pytest and torch imported.

Four processes take part:

- contribbot: `WarmProcesses` starts servers, and asks a server for a fork for each run.
- The server (`serve`) imports the modules once. The server imports nothing of a patch's tree, and
  so needs no sandbox.
- The keeper (`_look_after`) is a fork of the server for one run. The keeper forks the run itself
  (`_become`), waits for the end of the run, and kills processes that the run left behind.
- The client (`warm_client.py`) stands for the run in the run's sandbox.

The order for one run:

1. `WarmProcesses.fork` sends the server an end of a socket (the channel) and of a pipe (`life`).
2. The server forks the keeper, which waits for a request on the channel.
3. The client, started in the sandbox with the other end of the channel, sends the request: the
   command, the variables, the folder and the three standard streams.
4. The keeper enters the client's namespaces (`_join`), writes a byte to `life`, forks the run, and
   answers "forked". If no fork is safe, the keeper answers with the reason instead, and the
   client executes the command itself.
5. The run takes the client's streams, variables and folder, and calls pytest.
6. The keeper sends the run's exit status to the client, which ends with the same status. If the
   channel closes first, the keeper kills the run.
7. `Fork.end` waits until `life` has no writer left: the keeper and the run have ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from contribbot import process

#: The client's command, in front of the command that a fresh process would have.
CLIENT: Final = (sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("warm_client.py")))
_SERVE: Final = "from contribbot.verify.warm import serve; serve()"
#: Variables that differ from run to run, like all whose names begin with CONTRIBBOT_.
_OF_A_RUN: Final = ("HOME", "TMPDIR", "TRITON_HOME")
#: The largest number of servers at a time; each server takes some 200 MB.
_MOST: Final = 4


@dataclass(frozen=True)
class Fork:
    """A run's connection to the parent process that forks the run."""

    channel: socket.socket  # the client's end of the channel
    _life: int  # a pipe: a byte means that a fork exists, end of file means that the fork ended

    def end(self) -> None:
        """Close the channel, and wait a limited time for the fork and its parent process to end."""
        self.channel.close()
        for seconds in (0, process.LAST_WAIT):
            if not select.select([self._life], [], [], seconds)[0] or not os.read(self._life, 1):
                return


@dataclass
class WarmProcesses:
    """The servers of a verification, one for each set of variables and modules."""

    folder: Path
    _servers: dict[str, tuple[socket.socket, contextlib.ExitStack]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def fork(self, env: Mapping[str, str], modules: Sequence[str]) -> Iterator[Fork]:
        """Yield a run's connection to a new keeper, whose server has imported the modules."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, life_of_fork = os.pipe()
        with ours, theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            try:
                # If the server has ended, the client sees that the channel is closed.
                with self._lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    control = self._control(env, modules)
                    socket.send_fds(control, [b"\n"], [theirs.fileno(), life_of_fork])
                theirs.close()
            finally:
                os.close(life_of_fork)
            try:
                yield Fork(ours, life)
            finally:
                os.close(life)

    def _control(self, env: Mapping[str, str], modules: Sequence[str]) -> socket.socket:
        shared = {
            name: value
            for name, value in env.items()
            if name not in _OF_A_RUN and not name.startswith("CONTRIBBOT_")
        }
        key = json.dumps([shared, *modules], sort_keys=True)
        if key not in self._servers:
            while len(self._servers) >= _MOST:
                self._servers.pop(next(iter(self._servers)))[1].close()
            self._servers[key] = self._start(shared, modules)
        return self._servers[key][0]

    def _start(
        self, shared: Mapping[str, str], modules: Sequence[str]
    ) -> tuple[socket.socket, contextlib.ExitStack]:
        self.folder.mkdir(exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack = contextlib.ExitStack()
        with theirs, Path(os.devnull).open("r+b") as nothing:
            server = process.started(
                [sys.executable, "-B", "-P", "-c", _SERVE, str(theirs.fileno()), *modules],
                cwd=Path("/"),
                env={**shared, **dict.fromkeys(_OF_A_RUN, str(self.folder))},
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                pass_fds=(theirs.fileno(),),
                tethered=False,  # the server ends when the control socket closes
            )
            stack.enter_context(server)
        stack.enter_context(ours)
        return ours, stack

    def close(self) -> None:
        """End all servers."""
        with self._lock:
            while self._servers:
                self._servers.popitem()[1][1].close()


# The code below runs in the server, in the keeper and in the fork.

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
#: The flags of setns(2) by namespace.
_NAMESPACES: Final = {
    "user": 0x10000000,
    "mnt": 0x20000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
#: Options of prctl(2), from linux/prctl.h.
_PARENT_DEATH: Final = 1
_DUMPABLE: Final = 4
_DROP_BOUNDING: Final = 24
_SUBREAPER: Final = 36
_NO_NEW_PRIVILEGES: Final = 38
_AMBIENT, _RAISE = 47, 2
#: CAP_DAC_OVERRIDE, which a sandbox leaves to its processes, and capset(2)'s header version.
_CAPABILITY: Final = 1
_CAPABILITIES_V3: Final = 0x20080522
_DEVICES: Final = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


def serve() -> NoReturn:
    """Import modules, then fork a keeper for each run: `serve CONTROL MODULE...`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    refusal = _warm(sys.argv[2:])

    def wait_for_ended(_signal: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    # The server waits for ended keepers, so that their CPU time counts as the server's children.
    signal.signal(signal.SIGCHLD, wait_for_ended)
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not descriptors:
            os._exit(0)
        channel, life = descriptors
        if not os.fork():
            control.close()
            _look_after(socket.socket(fileno=channel), life, refusal)
        os.close(channel)
        os.close(life)


def _warm(modules: Sequence[str]) -> str:
    """Import modules; return why no fork of this process is safe; empty: forks are safe."""
    for name in ("contribbot.verify.pytest_plugin", *modules):
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001  a fresh process reports the same error
            return f"import {name}: {type(error).__name__}"
    if cache := sys.modules.get("triton.runtime.cache"):
        cache.triton_key()  # triton caches the key, which takes reading a library of 300 MB
    gc.collect()
    gc.freeze()
    threads = len([*Path("/proc/self/task").iterdir()])
    if threads > 1:
        return f"{threads - 1} threads run after the imports"
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            path = str(descriptor.readlink())
            if path.startswith(_DEVICES):
                return f"the imports open {path}"
    return ""


def _look_after(channel: socket.socket, life: int, refusal: str) -> None:
    """Be the keeper: fork the run, end the run if the channel closes, send the run's status."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _prctl(_SUBREAPER, 1)
    ancillary = socket.CMSG_SPACE(3 * 4) + socket.CMSG_SPACE(3 * 4)
    message, received, _, _ = channel.recvmsg(2**20, ancillary)
    if not message:
        os._exit(0)  # the channel was closed before a request
    of_kind = {kind: memoryview(data).cast("i").tolist() for _, kind, data in received}
    streams, (client, _, _) = of_kind[socket.SCM_RIGHTS], of_kind[socket.SCM_CREDENTIALS]
    joined, pid = False, 0
    try:
        if not refusal:
            joined = _join(client)
            os.write(life, b"\n")
            pid = os.fork()
    except OSError as error:
        refusal = str(error)
    if refusal:
        with contextlib.suppress(OSError):  # the client has ended
            channel.send(refusal.encode())
        os._exit(0)
    if not pid:
        channel.close()
        _become(json.loads(message), streams, joined=joined)
    for stream in streams:
        os.close(stream)
    handle = os.pidfd_open(pid)
    with contextlib.suppress(OSError):
        channel.send(b"forked")
    if handle not in select.select([handle, channel.fileno()], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    _end_children()
    with contextlib.suppress(OSError):
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _join(pid: int) -> bool:
    """Enter the namespaces of a process for the next fork; return whether a namespace differs."""
    flags = sum(
        flag
        for name, flag in _NAMESPACES.items()
        if Path(f"/proc/{pid}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink()
    )
    handle = os.pidfd_open(pid)
    if flags and _LIBC.setns(handle, flags):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
    os.close(handle)
    return bool(flags)


def _end_children() -> None:
    """Kill the processes that the run left behind, also processes of other groups."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        try:
            left = list(map(int, children.read_text().split()))
        except OSError:
            return
        if not left:
            return
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _become(request: Mapping[str, object], streams: Sequence[int], *, joined: bool) -> NoReturn:
    """Be the run: take the client's streams, folder and variables, and run pytest."""
    os.setsid()
    if joined:
        _drop_privileges()
    _prctl(_PARENT_DEATH, signal.SIGKILL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    env, command = request["env"], request["command"]
    assert isinstance(env, dict)  # noqa: S101  `warm_client.py` sends a dict
    assert isinstance(command, list)  # noqa: S101  `warm_client.py` sends a list
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(env)
    # Each fork needs its own temporary folder and its own random numbers.
    if tempfile := sys.modules.get("tempfile"):
        vars(tempfile)["tempdir"] = None
    if random := sys.modules.get("numpy.random"):
        vars(random)["seed"]()
    from contribbot.verify.pytest_plugin import run  # noqa: PLC0415  contribbot itself needs no pytest

    sys.argv = ["-c", *command[command.index("-c") + 2 :]]
    run()


def _drop_privileges() -> None:
    """Give up all capabilities but the one capability that a sandbox leaves, for children, too."""
    for capability in range(64):
        if capability != _CAPABILITY:
            _prctl(_DROP_BOUNDING, capability)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    bit = 1 << _CAPABILITY
    if _LIBC.capset(header, (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset")
    _prctl(_AMBIENT, _RAISE, _CAPABILITY)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    # Joining a user namespace made the process undumpable: its user could not read its /proc.
    _prctl(_DUMPABLE, 1)


def _prctl(option: int, *arguments: int) -> None:
    _LIBC.prctl(option, *map(ctypes.c_ulong, (*arguments, *(0,) * (4 - len(arguments)))))
