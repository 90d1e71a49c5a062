"""The source `wheel`: the Python files of a release's wheel, whatever platform it is for."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.pins import Silent
from contribbot.git.pins.index import obtain
from contribbot.git.pins.sources import provide, stored_tree
from contribbot.model.patch import Pin, ReleaseRecipe, WheelSource
from tests.conftest import REAL_CACHE

from .conftest import Kit
from .index_server import Index

TAGS = "cp311-cp311-macosx_14_0_arm64"
PURE = "py3-none-any"
NAME = f"demo-1.0-{TAGS}.whl"
FILES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/sub/a.py": b"",
    "demo/_C.so": b"\x7fELF",
    "demo-1.0.dist-info/RECORD": b"",
    "other.py": b"",
    "demonstration/b.py": b"",
}


def zipped(files: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as bundle:
        for path, content in files.items():
            bundle.writestr(zipfile.ZipInfo(path), content)
    return raw.getvalue()


def source(wheel: Path, **changes: object) -> WheelSource:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    facts = {"kind": "wheel", "distribution": "demo", "version": "1.0", "sha256": digest}
    return WheelSource.model_validate({**facts, "tags": TAGS, "packages": ["demo"], **changes})


def test_the_python_files_of_another_platforms_wheel_are_imported(kit: Kit, index: Index) -> None:
    wheel = kit.write(zipped(FILES), NAME)
    index.offer(wheel)
    index.offer(kit.write(zipped({"demo/no.py": b""}), "demo-1.0-py3-none-any.whl"))
    index.offer(kit.pack({"demo-1.0/no.py": b""}))
    spec = source(wheel)
    found = kit.provide(spec)
    assert (found.kind, found.fresh) == ("wheel", True)
    assert found.detail == (f"demo 1.0 wheel {TAGS}, Python files of demo, sha256 {spec.sha256}")
    assert kit.files(found.commit) == {
        "demo/__init__.py": ("100644", b"x = 1\n"),
        "demo/sub/a.py": ("100644", b""),
    }
    again = stored_tree(kit.pin(spec), kit.upstream, kit.store)
    assert again is not None
    assert (again.commit, again.fresh) == (found.commit, False)


def test_generated_files_are_left_out(kit: Kit, find_links: Path) -> None:
    wheel = kit.write(zipped({**FILES, "demo/version.py": b"cuda = None\n"}), NAME)
    assert wheel.parent == find_links
    recipe = ReleaseRecipe(distribution="demo", generated=("demo/version.py",))
    kit.upstream = kit.upstream.model_copy(update={"release": recipe})
    assert set(kit.files(kit.provide(source(wheel)).tree)) == {"demo/__init__.py", "demo/sub/a.py"}


@pytest.mark.slow
def test_a_wheel_gives_the_python_files_that_the_source_archive_gives(
    kit: Kit, sglang_pin: Pin, sglang_archive: Path, patch: pytest.MonkeyPatch
) -> None:
    spec = WheelSource(
        kind="wheel", distribution="sglang", version="0.5.10.post1",
        sha256="a854a68b11caf6b4b55c241a44378a7cdede7ede325db85c955f131506703bc6",
        packages=("sglang",), root="python",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as context:
        context.setenv("CONTRIBBOT_CACHE", str(REAL_CACHE))
        wheel = obtain(spec, progress=Silent())
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", f"{sglang_archive.parent} {wheel.parent}")
    pins = [sglang_pin, sglang_pin.model_copy(update={"sources": (spec,)})]
    theirs, ours = (
        kit.files(provide(pin, kit.upstream, kit.store, progress=Silent()).commit) for pin in pins
    )
    python = {
        path: file
        for path, file in theirs.items()
        if path.startswith("python/sglang/") and path.endswith(".py")
    }
    assert len(ours) > 1000
    assert {path: content for path, (_, content) in ours.items()} == {
        path: content for path, (_, content) in python.items()
    }


def test_a_wheel_with_other_tags_is_not_taken(kit: Kit, index: Index) -> None:
    wheel = kit.write(zipped(FILES), NAME)
    index.offer(wheel)
    with pytest.raises(ValueError, match="tags"):
        source(wheel, tags="macosx_14_0_arm64")
    with pytest.raises(SourceError) as caught:
        kit.provide(source(wheel, tags=PURE))
    assert f"demo 1.0: no wheel {PURE} of it found: {index.url} has 1 files" in caught.value.message


@pytest.mark.parametrize(
    ("files", "packages", "words"),
    [
        ({"../demo/a.py": b""}, "demo", "outside the destination"),
        ({}, "nothing", f"{NAME}: holds no Python files under nothing"),
    ],
)  # fmt: skip
def test_a_hostile_or_wrong_wheel_is_refused_by_name(
    kit: Kit, find_links: Path, files: dict[str, bytes], packages: str, words: str
) -> None:
    wheel = kit.write(zipped({**FILES, **files}), NAME)
    assert wheel.parent == find_links
    with pytest.raises(IntegrityError, match=words):
        kit.provide(source(wheel, packages=[packages]))
    assert kit.nothing_landed()
