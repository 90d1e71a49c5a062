"""Start-up: `contribbot --help` against a bare two-command Typer app, in one run.

Both are started alternately as separate processes of the same interpreter; the
medians and their ratio are printed. Wanted: at most 1.3.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 21
BARE = """\
import typer

app = typer.Typer()


@app.command()
def one(name: str, loud: bool = False) -> None:
    "Do one thing."
    print(name, loud)


@app.command()
def two(count: int = 1) -> None:
    "Do another."
    print(count)


if __name__ == "__main__":
    app()
"""


def seconds(argv: list[str]) -> float:
    """Return how long a command takes."""
    started = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE, encoding="utf-8")
        commands = {
            "bare Typer app": [sys.executable, str(bare), "--help"],
            "contribbot": [sys.executable, "-m", "contribbot", "--help"],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for argv in commands.values():
            seconds(argv)
        for _ in range(ROUNDS):
            for name, argv in commands.items():
                taken[name].append(seconds(argv))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in medians.items():
        print(f"{name} --help: {median * 1000:.0f} ms (median of {ROUNDS})")
    ratio = medians["contribbot"] / medians["bare Typer app"]
    print(f"ratio: {ratio:.2f} (wanted: at most 1.3)")


if __name__ == "__main__":
    main()
