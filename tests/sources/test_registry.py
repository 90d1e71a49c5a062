from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.pins import Silent, ref_for
from contribbot.git.pins.sources import provide, stored_tree
from contribbot.model.patch import GitSource, InstalledSource

from .conftest import Kit

pytestmark = pytest.mark.usefixtures("find_links")

TREE = {"demo-1.0/a.py": b"print(1)\n"}
Wheel = tuple[Path, InstalledSource]


def test_the_next_source_serves_and_says_what_failed_before(
    kit: Kit, find_links: Path, wheel: Wheel
) -> None:
    archive = kit.pack(TREE)
    spec = kit.sdist(archive)
    archive.unlink()
    pin = kit.pin(spec, GitSource(kind="git", remote="file:///nowhere"), wheel[1])
    found = provide(pin, kit.upstream, kit.store, progress=Silent())
    assert found.kind == "installed"
    assert [line.split(":")[0] for line in found.failures] == ["sdist", "git"]
    assert f"{find_links} has no files" in found.failures[0]
    assert all("\n" not in line for line in found.failures)
    again = stored_tree(pin, kit.upstream, kit.store)
    assert again is not None
    assert (again.kind, again.commit, again.fresh) == ("installed", found.commit, False)


def test_when_all_fail_one_line_names_each(kit: Kit) -> None:
    archive = kit.pack(TREE, "other-1.0.tar.gz")
    with pytest.raises(SourceError) as caught:
        kit.provide(kit.sdist(archive), GitSource(kind="git", remote="file:///nowhere"))
    message = caught.value.message
    assert message.startswith("demo v1.0: no source can provide it: sdist: demo 1.0: no source")
    assert "; git: file:///nowhere: " in message
    assert "\n" not in message
    assert caught.value.hint


def test_a_hostile_source_is_not_passed_over(kit: Kit, wheel: Wheel) -> None:
    archive = kit.pack({**TREE, "demo-1.0/../../x": b""})
    with pytest.raises(IntegrityError):
        kit.provide(kit.sdist(archive), wheel[1])
    assert kit.nothing_landed()


def test_what_decides_the_tree_decides_the_ref(kit: Kit) -> None:
    spec = kit.sdist(kit.pack(TREE))
    base = ref_for(kit.pin(spec), spec, kit.upstream)
    assert base.startswith("refs/pins/v1.0/sdist-")
    moved = spec.model_copy(update={"root": "python"})
    others = {
        ref_for(kit.pin(moved), moved, kit.upstream),
        ref_for(kit.pin(spec, commit="0" * 40), spec, kit.upstream),
        ref_for(kit.pin(spec, tag="v1.0.post1"), spec, kit.upstream),
    }
    assert len(others | {base}) == 4


def test_a_store_that_lost_its_objects_is_filled_again(kit: Kit) -> None:
    pin = kit.pin(kit.sdist(kit.pack(TREE)))
    first = provide(pin, kit.upstream, kit.store, progress=Silent())
    for path in (kit.store.path / "objects" / "pack").iterdir():
        path.unlink()
    assert stored_tree(pin, kit.upstream, kit.store) is None
    second = provide(pin, kit.upstream, kit.store, progress=Silent())
    assert (second.commit, second.fresh) == (first.commit, True)
    assert kit.files(second.tree)
