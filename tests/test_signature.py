"""Signed records: made with a real ssh-keygen, and checked as a reviewer checks them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Program, dig
from tests.toy import Toy

pytestmark = pytest.mark.usefixtures("outcome_cache")
DOCUMENT = Path(__file__).parent.parent / "docs/reviewers.md"
WHO = "ana@example.org"


def new_key(path: Path, passphrase: str = "") -> str:
    """Make a key and return its public part."""
    kind = ["-q", "-t", "ed25519", "-C", ""]
    subprocess.run(["ssh-keygen", *kind, "-N", passphrase, "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


@pytest.fixture
def desk(toy: Toy, program: Program, tmp_path: Path) -> Program:
    """A queue of a person who signs with a key of SSH's, and is allowed to."""
    toy.put_patch()
    toy.put_queue(["area"])
    configure(program, tmp_path, str(tmp_path / "key"))
    toy.put("evidence/allowed_signers", f"{WHO} {new_key(tmp_path / 'key')}\n")
    return program


def configure(program: Program, folder: Path, key: str, gpg: str = "ssh") -> None:
    """Write git's configuration of whoever runs contribbot."""
    text = f'[gpg]\n\tformat = {gpg}\n[user]\n\tsigningkey = "{key}"\n'
    (folder / "gitconfig").write_text(text)
    program.env["GIT_CONFIG_GLOBAL"] = str(folder / "gitconfig")


def record_of(program: Program) -> tuple[Path, Path]:
    """Return the record and the place of its signature."""
    (record,) = (program.cwd / "evidence/area").glob("*.json")
    return record, record.with_name(f"{record.name}.sig")


def warnings_of(err: str) -> str:
    """Return what standard error has beside the stages that passed."""
    return "".join(row for row in err.splitlines(keepends=True) if not row.endswith(": passed\n"))


def check(program: Program) -> str:
    """Return state and reason of the first record."""
    return program("evidence", "check").out.splitlines()[0]


def test_a_record_is_signed_and_every_text_says_by_whom(desk: Program) -> None:
    ran = desk("verify", "area")
    assert (ran.code, warnings_of(ran.err)) == (0, "")
    record, signature = record_of(desk)
    assert check(desk).startswith("fresh ")
    assert check(desk).endswith(f"; signed by {WHO}")
    assert f"; signed by {WHO})" in desk("evidence", "show", "area").out
    document = desk("evidence", "check", "--json").json()
    assert dig(document, "records", 0, "signature") == f"signed by {WHO}"
    # A run that repeats nothing leaves both; where the signature is gone, it is made.
    before = record.read_bytes(), signature.read_bytes()
    assert desk("verify", "area").code == 0
    assert (record.read_bytes(), signature.read_bytes()) == before
    signature.unlink()
    assert check(desk).endswith("; unsigned")
    assert desk("verify", "area").code == 0
    assert check(desk).endswith(f"; signed by {WHO}")


def test_the_command_of_the_document_is_what_a_reviewer_types(desk: Program) -> None:
    assert desk("verify", "area").code == 0
    record, _ = record_of(desk)
    (command,) = re.findall(
        r"^ssh-keygen -Y verify (?:.*\\\n)*.*$", DOCUMENT.read_text(), re.MULTILINE
    )
    named = command.replace("evidence/NAME/MACHINE.json", f"evidence/area/{record.name}")
    argv = ["bash", "-c", named.replace("PRINCIPAL", shlex.quote(WHO))]
    done = subprocess.run(argv, cwd=desk.cwd, check=False, capture_output=True, text=True)
    assert f'Good "contribbot-evidence" signature for {WHO}' in done.stdout
    record.write_bytes(record.read_bytes() + b"\n")
    assert subprocess.run(argv, cwd=desk.cwd, check=False, capture_output=True).returncode


def other_content(record: Path, _signature: Path, _folder: Path) -> None:
    record.write_bytes(record.read_bytes() + b"\n")


def signed_by(name: str, namespace: str) -> Callable[[Path, Path, Path], object]:
    """Return what signs a record by hand."""

    def sign(record: Path, signature: Path, folder: Path) -> None:
        if not (folder / name).exists():
            new_key(folder / name)
        argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", namespace, "-f", str(folder / name)]
        content = record.read_bytes()
        made = subprocess.run(argv, input=content, check=True, capture_output=True)
        signature.write_bytes(made.stdout)

    return sign


WRONG = r"tampered  \S+: its signature does not match it: \w.*"
BY = r"fresh .*; unsigned: its signature is by SHA256:\S+, "
NOT_ALLOWED = BY + "which evidence/allowed_signers does not allow"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_content, WRONG + "incorrect signature"),
        (lambda _, sig, __: sig.write_bytes(sig.read_bytes()[:90]), WRONG),
        (lambda _, sig, __: sig.write_bytes(b""), WRONG),
        (signed_by("key", "git"), WRONG),
        (signed_by("other", "contribbot-evidence"), NOT_ALLOWED),
        (lambda record, *_: (record.parents[1] / "allowed_signers").unlink(),
         BY + "and there is no evidence/allowed_signers"),
        (lambda record, *_: (record.parents[1] / "allowed_signers").write_text("junk\n"),
         NOT_ALLOWED),
        (lambda record, *_: record.unlink(),
         r"foreign  \S+\.json\.sig: a signature whose record is not there"),
    ],
    ids=["other content", "truncated", "empty", "for commits", "another key", "no list", "junk",
         "no record"],
)  # fmt: skip
def test_a_signature_that_is_not_good(
    desk: Program, tmp_path: Path, change: Callable[[Path, Path, Path], object], said: str
) -> None:
    assert desk("verify", "area").code == 0
    change(*record_of(desk), tmp_path)
    assert re.fullmatch(said, check(desk))


@pytest.mark.parametrize(
    ("key", "gpg", "said"),
    [
        ("{folder}/key", "openpgp", None),
        ("{folder}/locked", "ssh", "incorrect passphrase supplied to decrypt private key"),
        ("{folder}/none", "ssh", "No such file or directory"),
        ("key::{public}", "ssh", "Couldn't get agent socket"),
        ("key::nothing", "ssh", "Couldn't load public key .*"),
    ],
)
def test_what_keeps_a_record_from_being_signed_leaves_it_whole(
    desk: Program, tmp_path: Path, key: str, gpg: str, said: str | None
) -> None:
    new_key(tmp_path / "locked", "a passphrase")
    public = (tmp_path / "key.pub").read_text().strip()
    configure(desk, tmp_path, key.format(folder=tmp_path, public=public), gpg)
    ran = desk("verify", "area")
    record, signature = record_of(desk)
    assert (ran.code, signature.exists()) == (0, False)
    assert re.fullmatch(r"fresh .*; unsigned", check(desk))
    if said is None:
        assert warnings_of(ran.err) == ""
    else:
        assert re.search(
            rf"{record.name}: unsigned: .*{said}; see `git config user.signingkey`", ran.err
        )


def test_a_key_that_the_agent_holds_signs(desk: Program, tmp_path: Path) -> None:
    socket, key = tmp_path / "agent", tmp_path / "key"
    public = key.with_suffix(".pub").read_text().strip()
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        desk.env["SSH_AUTH_SOCK"] = str(socket)
        for _ in range(100):
            add = subprocess.run(["ssh-add", "-q", str(key)], check=False, capture_output=True,
                                 env={**os.environ, **desk.env})  # fmt: skip
            if not add.returncode:
                break
            time.sleep(0.1)
        key.unlink()
        configure(desk, tmp_path, f"key::{public}")
        assert desk("verify", "area").code == 0
    finally:
        agent.kill()
        agent.wait()
    assert check(desk).endswith(f"; signed by {WHO}")


def test_without_ssh_keygen_nothing_is_signed_and_nothing_can_be_told(
    desk: Program, tmp_path: Path
) -> None:
    assert desk("verify", "area").code == 0
    (tmp_path / "bin").mkdir()
    for name in ("git", "bwrap"):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    desk.env["PATH"] = str(tmp_path / "bin")
    assert "; unsigned as far as is known: ssh-keygen: program not found; install" in check(desk)
    record_of(desk)[1].unlink()
    ran = desk("verify", "area")
    assert "unsigned: ssh-keygen: program not found" in ran.err
    assert (ran.code, record_of(desk)[1].exists()) == (0, False)


def test_a_stale_record_is_pruned_with_its_signature(desk: Program, toy: Toy) -> None:
    assert desk("verify", "area").code == 0
    record, signature = record_of(desk)
    toy.put_queue(["area"], commit="2" * 40)
    assert desk("evidence", "prune").code == 0
    assert not record.exists()
    assert not signature.exists()
