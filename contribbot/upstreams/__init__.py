"""What is known of each upstream, as data: TOML files.

`NAME.toml` describes its source and its builds, `contributing/NAME.toml` its rules for
contributions, `templates/NAME/VERSION.toml` the template of its pull requests.

A queue adds its own, or replaces ours, under the same names in `upstreams/` beside its
`patches/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


def files(queue: Path) -> dict[str, Path]:
    """Return the file that describes each upstream, by name."""
    return _both(queue, ".")


def contributing(queue: Path) -> dict[str, Path]:
    """Return the file with each upstream's rules for contributions, by the upstream's name."""
    return _both(queue, "contributing")


def templates(queue: Path, upstream: str) -> dict[str, Path]:
    """Return the templates of an upstream's pull requests, by version."""
    return _both(queue, f"templates/{upstream}")


def _both(queue: Path, folder: str) -> dict[str, Path]:
    """Return our files in a folder with the queue's over them, by name."""
    found: dict[str, Path] = {}
    for place in (_HERE / folder, queue / "upstreams" / folder):
        found.update({path.stem: path for path in sorted(place.glob("*.toml"))})
    return found
