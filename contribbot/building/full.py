"""The way `full`: the upstream's own recipe, run in a copy of the tree."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.building.caches import Launcher
from contribbot.building.commands import Ran, run_commands
from contribbot.building.toolchain import target_environment
from contribbot.model.machine import Machine
from contribbot.model.recipes import PLACEHOLDERS, BuildRecipe
from contribbot.store.repository import Store
from contribbot.store.trees import export

_MODULE: Final = "python:"
_PLACEHOLDER: Final = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
#: The copy of the tree in a product's folder.
COPY: Final = "tree"


def missing_for(recipe: BuildRecipe | None, target: str, upstream: str) -> str:
    """Say what this machine lacks for an upstream's recipe, or nothing."""
    if recipe is None:
        return f"upstreams/{upstream}.toml has no [build]"
    if target not in recipe.targets:
        return f"the recipe of {upstream} builds for {', '.join(recipe.targets)}, not {target}"
    for need in recipe.requires:
        if need.startswith(_MODULE):
            name = need.removeprefix(_MODULE)
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return f"the Python module {name} is not installed, which the recipe needs"
        elif shutil.which(need) is None:
            return f"no {need} on this machine, which the recipe of {upstream} needs"
    return ""


def lacks(store: Store, tree: str, recipe: BuildRecipe) -> str:
    """Return a path that a recipe needs and a tree does not hold, or nothing."""
    folder = () if recipe.folder == "." else (recipe.folder,)
    needed: tuple[str, ...] = (*folder, *recipe.needs)
    for path in needed:
        if store.resolve(f"{tree}:{path}") is None:
            return path
    return ""


def inputs_of(
    tree: str, recipe: BuildRecipe, target: str, *, machine: Machine, version: str
) -> JsonValue:
    """Return what a build by the recipe depends on, as far as it can be known."""
    return {
        "way": "full",
        "tree": tree,
        "recipe": recipe.model_dump(mode="json", exclude={"takes", "timeout"}),
        "target": target,
        "version": version,
        # Not known are the headers and libraries that it finds: the machine stands for them.
        "machine": machine.fingerprint,
        "programs": [shutil.which(need) for need in recipe.requires],
    }


def run_recipe(
    recipe: BuildRecipe,
    *,
    store: Store,
    tree: str,
    values: Mapping[str, str],
    machine: Machine,
    launcher: Launcher | None,
    timeout: float,
    folder: Path,
    into: Path,
    scrub: Callable[[str], str],
) -> Ran:
    """Build a tree in a copy of its own, which stays as the product."""
    copy = into / COPY
    export(store, tree, copy, index=folder / "index")
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    filled = _filled(recipe, {**values, "tree": str(copy), "python": sys.executable})
    environment = {
        **target_environment(values["target"], machine),
        "MAX_JOBS": values["jobs"],
        "PYTHONUNBUFFERED": "1",
        **(_cached(launcher, copy) if launcher else {}),
        **_places(folder, into),
        **filled.env,
    }
    ran = run_commands(
        filled.commands,
        cwd=copy / recipe.folder,
        env=process.clean_environment(environment),
        timeout=timeout,
        script=folder / "commands.json",
        scrub=scrub,
    )
    for path in recipe.discard:
        process.remove_tree(copy / path)
    return ran


def _filled(recipe: BuildRecipe, known: Mapping[str, str]) -> BuildRecipe:
    """Return a recipe with what its placeholders stand for."""

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: known[found[1]], text)

    return recipe.model_copy(
        update={
            "commands": tuple(tuple(map(fill, argv)) for argv in recipe.commands),
            "env": {name: fill(value) for name, value in recipe.env.items()},
        }
    )


def _places(folder: Path, into: Path) -> dict[str, str]:
    """Return the variables that keep a build within its own folders."""
    return {
        # A version is not read from whatever repository the cache lies in.
        "GIT_CEILING_DIRECTORIES": str(into),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }


def _cached(launcher: Launcher, copy: Path) -> dict[str, str]:
    # Paths below the copy are taken as relative: each copy lies elsewhere.
    base = {"CCACHE_BASEDIR": str(copy)} if launcher.name == "ccache" else {}
    return {**launcher.env, **launcher.cmake_environment, **base}


def missing_product(recipe: BuildRecipe, into: Path) -> str:
    """Return a path that a recipe promises and did not make, or nothing."""
    made: tuple[str, ...] = (*recipe.python, *((recipe.extension,) if recipe.extension else ()))
    for path in made:
        if not (into / COPY / path).exists():
            return path
    return ""
