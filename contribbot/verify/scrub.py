"""Taking the folders of this machine out of what is kept."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from contribbot.workspace import cache_folder

#: A folder's name that is no part of a longer one: `/root` is neither in `/rootfs` nor in
#: `src/root`, but in `-I/root/x`, in `../../root/x` and behind the `\\n` of a string that was
#: printed quoted.
_BEFORE_FOLDER: Final = r"(?:(?<![\w.-])|(?<=-[A-Za-z])|(?<=\\[nrt])|(?<=\.\.))"
_AFTER_FOLDER: Final = r"(?![\w-]|\.\w)"


class Scrub:
    """Takes the folders of this machine out of what a check wrote."""

    def __init__(self, tree: Path, folder: Path, *more: Path) -> None:
        named = [
            *((str(one), "<tree>") for one in more),
            (str(tree), "<tree>"),
            (str(folder), "<run>"),
            (str(cache_folder()), "<cache>"),
            (sys.prefix, "<python>"),
            (sys.base_prefix, "<python>"),
            (str(Path(__file__).parents[2]), "<contribbot>"),
            (str(Path.home()), "<home>"),
        ]
        # `/` is no folder worth hiding. Of a folder with two names the first counts.
        self._named = {name: text for name, text in reversed(named) if len(name) > 1}
        # The longest first: one may lie in another.
        names = "|".join(re.escape(name) for name in sorted(self._named, key=len, reverse=True))
        self._pattern = re.compile(f"{_BEFORE_FOLDER}(?:{names}){_AFTER_FOLDER}")

    def __call__(self, text: str) -> str:
        """Return the text with a placeholder for each folder."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            # A flood of output may be one long line without any folder.
            if "/" in line:
                lines[number] = self._pattern.sub(lambda found: self._named[found[0]], line)
        return "\n".join(lines)
