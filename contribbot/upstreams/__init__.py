"""What is known of each upstream, as data: one TOML file each.

A queue adds its own, or replaces ours, with `upstreams/NAME.toml` beside its
`queue.toml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


def files(queue: Path) -> dict[str, Path]:
    """Return the file that describes each upstream, by name.

    Args:
        queue: The folder that holds `queue.toml`.
    """
    found = {path.stem: path for path in sorted(_HERE.glob("*.toml"))}
    found.update({path.stem: path for path in sorted((queue / "upstreams").glob("*.toml"))})
    return found
