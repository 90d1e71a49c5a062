"""The upstreams as data: sources and builds, rules and templates."""
# A queue adds its own, or replaces ours, under the same names in `upstreams/`; the template in
# force by `templates/NAME.md.j2` there.

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
TEMPLATES: Final = _HERE / "templates"


def files(queue: Path) -> dict[str, Path]:
    """Return the file that describes each upstream, by name."""
    return _both(queue, ".")


def contributing(queue: Path) -> dict[str, Path]:
    """Return the file with each upstream's rules for contributions, by the upstream's name."""
    return _both(queue, "contributing")


def _both(queue: Path, folder: str) -> dict[str, Path]:
    """Return our files in a folder with the queue's over them, by name."""
    places = (_HERE / folder, queue / "upstreams" / folder)
    return {path.stem: path for place in places for path in sorted(place.glob("*.toml"))}
