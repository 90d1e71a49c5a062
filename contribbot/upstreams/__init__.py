"""Find the files that describe upstreams, and the files with their contribution rules."""
# A queue's folder `upstreams/` may add files, or replace files by the same name; the template in
# force is replaced by `templates/NAME.md.j2` in that folder.

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
TEMPLATES: Final = _HERE / "templates"


def files(queue: Path) -> dict[str, Path]:
    """Return the file that describes each upstream, by the upstream's name."""
    return _both(queue, ".")


def contributing(queue: Path) -> dict[str, Path]:
    """Return the file with each upstream's rules for contributions, by the upstream's name."""
    return _both(queue, "contributing")


def _both(queue: Path, folder: str) -> dict[str, Path]:
    """Return contribbot's TOML files in a folder by name, replaced by the queue's files."""
    places = (_HERE / folder, queue / "upstreams" / folder)
    return {path.stem: path for place in places for path in sorted(place.glob("*.toml"))}
