"""Packs what a step names, as GitHub's action does: paths seen from what is named."""
# ruff: noqa: INP001  a script of an action, no package

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path


def main() -> int:
    """Pack it, and say how it went."""
    what, kept = Path(os.environ["WHAT"]), Path(os.environ["ARTIFACTS"])
    folder = what if what.is_dir() else what.parent
    files = sorted(one for one in what.rglob("*") if one.is_file()) if what.is_dir() else [what]
    files = [one for one in files if one.is_file()]
    if not files:
        return int(os.environ["NONE"] == "error")
    kept.mkdir(parents=True, exist_ok=True)
    with (
        # Refused where one has this name already, as GitHub refuses it.
        (kept / f"{os.environ['NAME']}.zip").open("xb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for one in files:
            archive.write(one, one.relative_to(folder).as_posix())
    return 0


if __name__ == "__main__":
    sys.exit(main())
