"""Detached SSH signatures beside records, by ssh-keygen (PROTOCOL.sshsig): made and checked."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from contribbot import process
from contribbot.errors import CommandError, MachineError
from contribbot.files import write_atomically
from contribbot.run_folder import run_folder

log: Final = logging.getLogger(__name__)
#: What the signatures are for: a commit's signature is not a record's.
NAMESPACE: Final = "contribbot-evidence"
#: Who may sign records, in the evidence folder of a queue (ssh-keygen(1), ALLOWED SIGNERS).
ALLOWED: Final = "allowed_signers"
#: How git marks a key that is written out in its configuration and lies with the agent.
_LITERAL: Final = ("key::", "ssh-", "ecdsa-", "sk-")


class Worth(enum.Enum):
    """What a signature says of a record."""

    SIGNED = enum.auto()
    UNSIGNED = enum.auto()
    MISMATCH = enum.auto()


class Signature(NamedTuple):
    """What stands beside a record, and the same in words."""

    worth: Worth = Worth.UNSIGNED
    words: str = "unsigned"


UNSIGNED: Final = Signature()


def signature_path(record: Path) -> Path:
    """Return where the signature of a record is."""
    return record.with_name(f"{record.name}.sig")


def write_signed(path: Path, content: bytes) -> None:
    """Write a record, and its signature where the person has a git signing key of SSH's."""
    # Its signature is of what it was: a kill from here on leaves an unsigned record.
    signature_path(path).unlink(missing_ok=True)
    write_atomically(path, content)
    sign(path)


def sign(path: Path) -> None:
    """Sign a record that has no signature; where that fails, say so and leave it unsigned."""
    if signature_path(path).exists():
        return
    try:
        key = _setting(path, "user.signingkey")
        if not key or _setting(path, "gpg.format") != "ssh":
            return
        made = _signed(key, path.read_bytes())
    except (CommandError, MachineError) as error:
        why, hint = error.message, error.hint
        if isinstance(error, CommandError):
            why = (error.stderr.splitlines() or [why])[-1].strip()
            hint = "see `git config user.signingkey` and `ssh-add -L`, then verify again"
        log.warning("%s: unsigned: %s; %s", path.name, why, hint)
        return
    write_atomically(signature_path(path), made)


def _setting(record: Path, name: str) -> str:
    """Return a setting of git where a record is, or nothing."""
    argv = ["git", "config", "--type=path", "--get", name]
    done = process.run(argv, cwd=record.parent, env=process.user_environment(), accept=(0, 1))
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def _signed(key: str, content: bytes) -> bytes:
    """Return an armored signature by a key: a file's, or one that the agent holds."""
    with run_folder() as scratch:
        held = key.startswith(_LITERAL)
        if held:
            file = scratch / "key.pub"
            file.write_text(key.removeprefix("key::") + "\n", encoding="utf-8")
            key = str(file)
        # Nobody may be there to be asked for a passphrase: the agent has it, or nothing is signed.
        env = process.user_environment() | {"SSH_ASKPASS_REQUIRE": "force", "SSH_ASKPASS": "false"}
        argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", key]
        return process.run([*argv, *(["-U"] if held else [])], env=env, stdin=content).stdout


def read_signature(path: Path, content: bytes, *, evidence: Path) -> Signature:
    """Tell what the signature beside a record is worth."""
    signature, allowed = signature_path(path), evidence / ALLOWED
    if not signature.exists():
        return UNSIGNED
    try:
        whose = _keygen("check-novalidate", "-s", signature, stdin=content)
    except CommandError as error:
        why = error.stderr.splitlines()[-1:] or [error.message]
        return Signature(Worth.MISMATCH, f"its signature does not match it: {why[0].strip()}")
    except MachineError as error:
        return Signature(words=f"unsigned as far as is known: {error.message}; {error.hint}")
    # `Good "contribbot-evidence" signature with ED25519 key SHA256:…`
    key = whose.rpartition(" key ")[2].strip()
    where = f"{evidence.name}/{ALLOWED}"
    if not allowed.is_file():
        return Signature(words=f"unsigned: its signature is by {key}, and there is no {where}")
    for name in _principals(signature, allowed):
        with contextlib.suppress(CommandError):
            _keygen("verify", "-f", allowed, "-I", name, "-s", signature, stdin=content)
            return Signature(Worth.SIGNED, f"signed by {name}")
    return Signature(words=f"unsigned: its signature is by {key}, which {where} does not allow")


def _principals(signature: Path, allowed: Path) -> Sequence[str]:
    """Return the names under which a file of allowed signers has the key of a signature."""
    with contextlib.suppress(CommandError):
        return _keygen("find-principals", "-s", signature, "-f", allowed).splitlines()
    return ()


def _keygen(verb: str, *options: str | Path, stdin: bytes = b"") -> str:
    argv = ["ssh-keygen", "-Y", verb, "-n", NAMESPACE, *options]
    return process.run(argv, stdin=stdin).stdout.decode("utf-8", "replace")
