"""The way `extension`: only the changed kernels, with torch's cpp_extension."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.git.patch_format import export
from contribbot.git.repository import Store
from contribbot.hardware import extension_child
from contribbot.hardware.build_cache import Launcher
from contribbot.hardware.full_build import Ran, private_folders, run_commands
from contribbot.hardware.toolchain import BuildTools
from contribbot.model.checks import Build
from contribbot.model.patch import PatchFile, digest_of
from contribbot.process import remove_tree

#: contribbot's own files in the folder where a tree's sources are compiled.
_OWN: Final = ".contribbot"
_LIBRARY: Final = "extension.so"
#: What a binding may include, of the files of `checks/`.
_CODE: Final = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp", ".inc", ".inl")


@dataclass(frozen=True)
class Layout:
    """What is compiled, in a folder."""

    sources: tuple[str, ...]
    include: tuple[str, ...]


def code_of(support: Iterable[PatchFile]) -> tuple[PatchFile, ...]:
    """Return the files of `checks/` that a compiler may see."""
    return tuple(file for file in support if file.name.endswith(_CODE))


def absent(store: Store, tree: str, build: Build) -> str:
    """Return a path that a build names and a tree does not hold, or nothing."""
    named = (*build.sources, *build.include)
    return next((path for path in named if store.resolve(f"{tree}:{path}") is None), "")


def roots_of(store: Store, tree: str, build: Build) -> dict[str, str]:
    """Return the folders of a tree that a build may read, all at its top or itself: path and id."""
    paths = (*build.sources, *build.include)
    if any("/" not in path for path in build.sources):
        return {".": tree}
    tops = sorted({path.partition("/")[0] for path in paths})
    return {top: store.resolve(f"{tree}:{top}") or "" for top in tops}


def inputs_of(
    store: Store, tree: str, build: Build, *, support: Sequence[PatchFile], tools: BuildTools
) -> JsonValue:
    """Return everything that the library depends on."""
    stated = {"way", "sources", "binding", "include", "defines", "flags"}
    return {
        "build": build.model_dump(mode="json", include=stated),
        "roots": {**roots_of(store, tree, build)},
        "absent": absent(store, tree, build),
        "code": digest_of(code_of(support)),
        "tools": [tools.kind, *tools.identity],
    }


def lay_out(store: Store, tree: str, build: Build, folder: Path, *, scratch: Path) -> Layout:
    """Write the folders that a build may read, to be changed at will."""
    for number, (top, tree_id) in enumerate(roots_of(store, tree, build).items()):
        export(store, tree_id, folder / top, index=scratch / f"{number}.index")
    return Layout(build.sources, build.include)


def lay_over(layout: Layout, folder: Path, hipified: Path, outputs: Mapping[str, Path]) -> Layout:
    """Put what a hipify step wrote over the sources that were laid out."""
    shutil.copytree(hipified, folder, symlinks=True, dirs_exist_ok=True)
    sources = tuple(
        outputs[source].relative_to(hipified).as_posix() if source in outputs else source
        for source in layout.sources
    )
    return Layout(sources, layout.include)


def compile_extension(
    build: Build,
    lay: Callable[[Path], Layout],
    *,
    support: Sequence[PatchFile],
    tools: BuildTools,
    launcher: Launcher | None,
    jobs: int,
    folder: Path,
    into: Path,
    timeout: float,
    scrub: Callable[[str], str],
) -> Ran:
    """Compile one side of a build and see that it loads."""
    sources = folder / "sources"
    sources.mkdir()
    layout = lay(sources)
    own = sources / _OWN
    (own / "checks").mkdir(parents=True)
    for file in code_of(support):
        target = own / "checks" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    # What `extension_child` is told, with paths relative to the sources' folder.
    spec = {
        "kind": tools.kind,
        "sources": [
            *layout.sources,
            *([f"{_OWN}/checks/{build.binding}"] if build.binding else []),
        ],
        "include": [*layout.include, f"{_OWN}/checks"],
        "defines": build.defines,
        "flags": build.flags,
        "launcher": [str(launcher.program)] if launcher else [],
        "jobs": jobs,
        "out": f"{_OWN}/out",
    }
    (own / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    environment = {
        **tools.env,
        **(launcher.env if launcher else {}),
        **private_folders(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # torch 2.13 and newer put ccache in front by themselves; it is there already.
        "TORCH_NO_COMPILER_WRAPPER": "1",
    }
    ran = run_commands(
        [[sys.executable, "-P", extension_child.__file__, f"{_OWN}/spec.json"]],
        cwd=sources,
        env=process.clean_environment(environment),
        timeout=timeout,
        scrub=lambda text: scrub(text).replace(f"{_OWN}/checks/", "checks/"),
    )
    if not (ran.error or ran.lacking or ran.crash):
        shutil.copyfile(own / "out" / _LIBRARY, into / _LIBRARY)
    # It may hold a whole tree, and the run goes on.
    with contextlib.suppress(OSError):
        remove_tree(sources)
    return ran
