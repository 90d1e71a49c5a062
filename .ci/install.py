"""Make a virtual environment and install contribbot into it; `make` calls this.

It runs under whatever `python3` is, so it is written for old ones too, and it takes only the
standard library. pip's output goes through as it is; of an error it gives one line with the cure.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

OLDEST = (3, 11)
ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTICE = """\
Installing into {folder}. pip shows each download with its size.
On Linux the usual torch wheel brings about 2.5 GB of CUDA libraries (6 GB on disk). To be spared,
stop here and point pip at a second index, one of torch's CPU or ROCm builds:
    PIP_EXTRA_INDEX_URL=<address of that index> make {goal}"""
NETWORK = (
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|Failed to establish a new connection|Connection refused|[Rr]ead timed out|ConnectTimeout"
    r"|NameResolutionError|ProxyError|Max retries exceeded"
)
# What pip says, and what a person does about it; the first that fits.
CURES = (
    (r"No space left on device", "the disk is full: free some space (torch with CUDA takes 6 GB)"),
    (NETWORK, "no package index can be reached: check the network, or `pip config list`"),
    (r"ERROR: No matching distribution found for (\S+)",
     "the package index has no {}: `pip config list` shows which index that is"),
    (r"Read-only file system|Permission denied",
     "a folder cannot be written: use a clone of your own, or name another folder with VENV="),
)  # fmt: skip


def main():
    """Install, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="the virtual environment")
    parser.add_argument("--extra", help="an extra of pyproject.toml, such as dev")
    parser.add_argument("--constraints", help="a constraints file; empty: none")
    parser.add_argument("--system-site-packages", action="store_true")
    options = parser.parse_args()
    trouble = lacking() or make(options) or install(options)
    if trouble:
        print(f"install: {trouble}", file=sys.stderr)
    return 3 if trouble else 0


def lacking():
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
    return ""


def make(options):
    """Make the virtual environment unless a whole one is there; return what is wrong."""
    python = options.folder / "bin" / "python"
    ready = [str(python), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    if python.exists() and subprocess.run(ready, stderr=subprocess.DEVNULL).returncode == 0:
        return ""
    argv = [sys.executable, "-m", "venv", "--clear", str(options.folder)]
    if options.system_site_packages:
        argv.append("--system-site-packages")
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode and explain(done.stdout.decode("utf-8", "replace"))


def install(options):
    """Install contribbot as it lies here; return what is wrong."""
    goal = "test" if options.extra else "verify"
    print(NOTICE.format(folder=options.folder, goal=goal), flush=True)
    argv = [str(options.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
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
    return process.wait() and explain("".join(said))


def explain(said):
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
