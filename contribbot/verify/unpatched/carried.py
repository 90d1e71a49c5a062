"""What a patch's entries name, as another release of its upstream has it: files move."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from contribbot.model.patch import Patch, PatchSpec
from contribbot.store.repository import Store
from contribbot.verify.hipified import is_source
from contribbot.verify.memo import Memo

#: What git calls a rename by itself, in per cent of a file that stayed.
_ALIKE: Final = 50
#: What is one as well where the file's name stayed and no other file is as much alike.
_SAME_NAME: Final = 25
_renames: Final[Memo[dict[str, str]]] = Memo()


def renames(store: Store, old: str, new: str) -> Mapping[str, str]:
    """Return where the files of a tree went that another tree lacks; asked once a process."""
    return _renames.get(f"{store.path} {old} {new}", lambda: _find(store, old, new))


def _find(store: Store, old: str, new: str) -> dict[str, str]:
    # -l0: without it git gives up where thousands of files changed, which releases do.
    raw = store.git(
        "diff-tree", "-r", "-z", f"-M{_SAME_NAME}%", "-l0", "--diff-filter=R", old, new
    ).stdout
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    found = {}
    for head, before, after in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        alike = int(head.rpartition("R")[2])
        if alike >= _ALIKE or Path(before).name == Path(after).name:
            found[before] = after
    return found


def named_paths(patch: Patch, there: frozenset[str]) -> list[str]:
    """Return the files of the tree that a patch touches or its entries name."""
    spec = patch.spec
    named = [
        *spec.files,
        *(spec.hipify.sources if spec.hipify else ()),
        *(entry.source for entry in spec.compile),
        *(source for build in spec.build for source in build.sources),
        *(value for check in (*spec.checks, *spec.numerics) for value in check.env.values()),
    ]
    return [path for path in dict.fromkeys(named) if path in there]


def files_of(store: Store, tree: str) -> frozenset[str]:
    """Return the paths of a tree's files."""
    listed = store.git("ls-tree", "-r", "-z", "--name-only", tree).stdout
    return frozenset(listed.decode("utf-8", "surrogateescape").split("\0")) - {""}


def carried_over(patch: Patch, moved: Mapping[str, str]) -> PatchSpec:
    """Return what a patch states, with the paths of another release.

    The sources that the patch touches are declared with the others: without the patch
    nothing touches them, and they are hipified all the same.
    """

    def now(path: str) -> str:
        return moved.get(path, path)

    spec, recipe = patch.spec, patch.upstream.hipify
    hipify = spec.hipify
    if hipify is not None and recipe is not None:
        touched = [
            path
            for path in spec.files
            if is_source(recipe, path)
            and not any(re.search(pattern, path) for pattern in recipe.cuda_sources)
        ]
        sources = dict.fromkeys(now(path) for path in (*hipify.sources, *touched))
        hipify = hipify.model_copy(update={"sources": tuple(sources)})
    update = {
        "hipify": hipify,
        "compile": tuple(
            one.model_copy(update={"source": now(one.source)}) for one in spec.compile
        ),
        "build": tuple(
            one.model_copy(update={"sources": tuple(map(now, one.sources))}) for one in spec.build
        ),
        "checks": tuple(
            one.model_copy(update={"env": {name: now(value) for name, value in one.env.items()}})
            for one in spec.checks
        ),
        "numerics": tuple(
            one.model_copy(update={"env": {name: now(value) for name, value in one.env.items()}})
            for one in spec.numerics
        ),
    }
    return spec.model_copy(update=update)
