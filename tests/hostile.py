"""A person's git configuration that would spoil every patch, if it had a say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CONFIG = """\
[user] name = Grace Example
    email = grace@example.com
[core] autocrlf = true
    eol = crlf
    safecrlf = true
    fileMode = false
    symlinks = false
    ignoreCase = true
    abbrev = 4
    quotePath = true
    hooksPath = {home}/hooks
    attributesFile = {home}/attributes
    excludesFile = {home}/ignored
    whitespace = tab-in-indent
    fsmonitor = {home}/hooks/pre-commit
[commit] gpgSign = true
[tag] gpgSign = true
[gpg] program = false
[diff] noprefix = true
    mnemonicPrefix = true
    renames = copies
    external = false
    algorithm = histogram
    interHunkContext = 20
    context = 1
    orderFile = {home}/attributes
    wsErrorHighlight = all
    submodule = log
    suppressBlankEmpty = true
[format] signOff = true
    suffix = .txt
    attach = attached
    numbered = true
    subjectPrefix = OTHER
    signature = me
    encodeEmailHeaders = false
    useAutoBase = true
    coverLetter = true
    filenameMaxLength = 20
[apply] whitespace = fix
    ignoreWhitespace = change
[i18n] commitEncoding = ISO-8859-1
    logOutputEncoding = ISO-8859-1
[log] showSignature = true
    date = relative
    mailmap = true
    decorate = full
[submodule] recurse = true
[init] defaultBranch = trunk
    templateDir = {home}/template
[rebase] autoSquash = true
    autoStash = true
    updateRefs = true
    backend = apply
[merge] conflictStyle = zdiff3
    ff = only
    renames = false
    directoryRenames = true
[rerere] enabled = false
    autoUpdate = false
[color] ui = always
[status] short = true
    branch = true
    showUntrackedFiles = no
[gc] auto = 1
"""


def hostile_home(folder: Path) -> Path:
    """Make a home whose `.gitconfig`, hooks and attributes all get in the way."""
    for name in ("hooks", "template/hooks", "template/info"):
        (folder / name).mkdir(parents=True)
    (folder / ".gitconfig").write_text(CONFIG.format(home=folder), encoding="utf-8")
    (folder / "attributes").write_text("*.py -diff merge=ours ident text\n* text=auto eol=crlf\n")
    (folder / "ignored").write_text("*.py\n*.bin\n")
    (folder / "template/info/exclude").write_text("*\n")
    for where in ("hooks", "template/hooks"):
        for hook in ("pre-commit", "commit-msg", "prepare-commit-msg", "post-checkout",
                     "pre-applypatch", "applypatch-msg", "reference-transaction"):  # fmt: skip
            path = folder / where / hook
            path.write_text(f"#!/bin/sh\ntouch {folder}/hook-ran\nexit 1\n")
            path.chmod(0o755)
    return folder


def person(tree: Path, *args: str, home: Path, stdin: bytes = b"", code: int = 0) -> bytes:
    """Run git in a tree as a person does: with all of their settings."""
    done = subprocess.run(
        ["git", *args],
        cwd=tree,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8",
             "GIT_EDITOR": "true", "GIT_CONFIG_NOSYSTEM": "1"},
        input=stdin,
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, (done.stdout + done.stderr).decode("utf-8", "replace")
    return done.stdout
