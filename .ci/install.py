"""Make a virtual environment and install contribbot into it; `make` calls this.

It runs under whatever `python3` is, so it is written for old ones too, and it takes only the
standard library. pip's output goes through as it is; of an error it gives one line with the cure.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

OLDEST = (3, 11)
ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTICE = """\
torch is still to come: the usual wheel for Linux brings CUDA, 2.8 GB to download and 5 GB on disk,
and takes some minutes to unpack. To be spared, stop here and name a second package index,
that of torch's CPU or ROCm builds:
    PIP_EXTRA_INDEX_URL=<its address> make {goal}"""
GOALS = {"": "verify", "dev": "test"}
# torch without CUDA, and all else.
LEAST = 2 * 1024**3
FULL = "the disk is full: free some space (torch takes 5 GB with CUDA, 2 GB without)"
READ_ONLY = "cannot be written: use a clone of your own, or name another folder with VENV="
INDEX = ".venv/bin/python -m pip config list"
NETWORK = (
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|Failed to establish a new connection|Connection refused|[Rr]ead timed out|ConnectTimeout"
    r"|NameResolutionError|ProxyError|Max retries exceeded"
)
# What pip says, and what a person does about it; the first that fits.
CURES = (
    (r"No space left on device", FULL),
    (NETWORK, f"no package index can be reached: check the network, and `{INDEX}`"),
    (r"ERROR: No matching distribution found for (\S+)",
     "the package index has no {}: `" + INDEX + "` shows which index that is"),
    (r"Read-only file system|Permission denied", f"a folder {READ_ONLY}"),
)  # fmt: skip


def main() -> int:
    """Install, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="the virtual environment")
    parser.add_argument("--extra", help="an extra of pyproject.toml, such as dev")
    parser.add_argument("--constraints", help="a constraints file; empty: none")
    parser.add_argument("--system-site-packages", action="store_true")
    options = parser.parse_args()
    trouble = lacking(options.folder) or make(options) or install(options)
    if trouble:
        print(f"install: {trouble}", file=sys.stderr)
    return 3 if trouble else 0


def lacking(folder: pathlib.Path) -> str:
    """Return what this machine lacks, or nothing."""
    if sys.version_info < OLDEST:
        here = ".".join(map(str, sys.version_info[:2]))
        return f"this is Python {here}, and 3.11 is the oldest that will do: name one with PYTHON="
    try:
        __import__("ensurepip")
        __import__("venv")
    except ImportError:
        return "this Python has no venv module: apt-get install python3-venv"
    if shutil.which("git") is None:
        return "git is not here: apt-get install git"
    there = next(one for one in (folder, *folder.resolve().parents) if one.is_dir())
    if not os.access(there, os.W_OK):
        return f"{there} {READ_ONLY}"
    if not torch_is_in(folder) and shutil.disk_usage(there).free < LEAST:
        return FULL
    return ""


def succeeds(python: str, code: str) -> bool:
    """Tell whether there is such a Python, and it runs a line without an error."""
    try:
        return subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def torch_is_in(folder: pathlib.Path) -> bool:
    """Tell whether a virtual environment has torch already."""
    find = "import importlib.util as util; util.find_spec('torch').origin"
    return succeeds(str(folder / "bin" / "python"), find)


def make(options: argparse.Namespace) -> str:
    """Make the virtual environment unless a whole one is there; return what is wrong."""
    ready = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    if succeeds(str(options.folder / "bin" / "python"), ready):
        return ""
    argv = [sys.executable, "-m", "venv", "--clear", str(options.folder)]
    if options.system_site_packages:
        argv.append("--system-site-packages")
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return explain(done.stdout.decode("utf-8", "replace")) if done.returncode else ""


def install(options: argparse.Namespace) -> str:
    """Install contribbot as it lies here; return what is wrong."""
    python = str(options.folder / "bin" / "python")
    print(f"Installing into {options.folder}; pip shows each download.", flush=True)
    if not torch_is_in(options.folder):
        print(NOTICE.format(goal=GOALS.get(options.extra or "", "extras")), flush=True)
    argv = [python, "-m", "pip", "--disable-pip-version-check"]
    argv += ["install", "--editable", f"{ROOT}[{options.extra}]" if options.extra else str(ROOT)]
    if options.constraints:
        argv += ["--constraint", options.constraints]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE)
    said = []
    for line in process.stderr:
        said.append(line.decode("utf-8", "replace"))
        if not said[-1].startswith("ERROR:"):
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
    return explain("".join(said)) if process.wait() else ""


def explain(said: str) -> str:
    """Return the cure for what pip or venv said, or its own last words."""
    for pattern, cure in CURES:
        found = re.search(pattern, said)
        if found:
            return cure.format(*found.groups())
    lines = [line for line in said.splitlines() if line.strip()] or ["pip said nothing"]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines)[-1]


if __name__ == "__main__":
    sys.exit(main())
