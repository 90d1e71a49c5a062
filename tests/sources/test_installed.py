from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

import pytest

from contribbot.errors import IntegrityError, SourceError
from contribbot.model.patch import InstalledSource, ReleaseRecipe

from .conftest import Kit, record_hash

Wheel = tuple[Path, InstalledSource]


def record(wheel: Wheel) -> Path:
    return wheel[0] / "demo_dist-1.0+cpu.dist-info" / "RECORD"


def test_the_python_files_of_the_named_folders_arrive(kit: Kit, wheel: Wheel) -> None:
    found = kit.provide(wheel[1])
    assert (found.kind, found.fresh) == ("installed", True)
    assert found.detail == "installed demo-dist 1.0, Python files of demo"
    assert kit.files(found.tree) == {
        "demo/__init__.py": ("100644", b"x = 1\n"),
        "demo/sub/a.py": ("100644", b""),
    }
    assert not kit.provide(wheel[1]).fresh


def test_another_build_of_a_release_is_the_same_tree_but_for_generated_files(
    kit: Kit, wheel: Wheel
) -> None:
    site, spec = wheel
    kit.upstream = kit.upstream.model_copy(update={"release": ReleaseRecipe(
        distribution="demo-dist", generated=("demo/version.py", "demo/_init.py")
    )})  # fmt: skip
    found = []
    for build in ("cpu", "rocm7.1"):
        info = site / f"demo_dist-1.0+{build}.dist-info"
        if not info.exists():
            record(wheel).parent.rename(info)
            (info / "METADATA").write_text(f"Name: demo-dist\nVersion: 1.0+{build}\n")
        (site / "demo/version.py").write_text(build)
        with (info / "RECORD").open("a") as file:
            file.write(f"demo/version.py,{record_hash(build.encode())},3\n")
        found.append(kit.provide(spec))
    assert [one.fresh for one in found] == [True, True]
    assert found[0].commit == found[1].commit
    assert set(kit.files(found[0].tree)) == {"demo/__init__.py", "demo/sub/a.py"}


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("demo/__init__.py", b"x = 2\n", r"demo-dist: demo/__init__\.py was changed"),
        ("demo/sub/a.py", None, r"demo/sub/a\.py"),
        ("demo/sub/mine.py", b"", r"demo/sub/mine\.py is not in its RECORD"),
    ],
    ids=["changed", "missing", "unknown"],
)
def test_files_that_are_not_as_record_says_are_refused_by_name(
    kit: Kit, wheel: Wheel, path: str, content: bytes | None, words: str
) -> None:
    if content is None:
        (wheel[0] / path).unlink()
    else:
        (wheel[0] / path).write_bytes(content)
    with pytest.raises(IntegrityError, match=words):
        kit.provide(wheel[1])
    assert kit.nothing_landed()


@pytest.mark.parametrize("digest", ["", "md5=abc", "sha256=!!!", "sha256=YWJj"])
def test_an_entry_without_a_usable_digest_is_refused(kit: Kit, wheel: Wheel, digest: str) -> None:
    text = record(wheel).read_text()
    record(wheel).write_text(text.replace(record_hash(b"x = 1\n"), digest))
    with pytest.raises(IntegrityError, match=r"no sha256 for demo/__init__\.py"):
        kit.provide(wheel[1])
    record(wheel).unlink()
    with pytest.raises(IntegrityError, match="installed without a RECORD"):
        kit.provide(wheel[1])


def test_entries_that_lead_elsewhere_are_not_taken(kit: Kit, wheel: Wheel) -> None:
    with record(wheel).open("a") as file:
        file.write(f"demo/../other/b.py,{record_hash(b'y = 2')},6\n")
    assert "other/b.py" not in kit.files(kit.provide(wheel[1]).tree)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"distribution": "no-such-dist"}, "no-such-dist is not installed"),
        ({"version": "1.1"}, r"demo-dist 1\.0\+cpu is installed, not 1\.1"),
        ({"version": "1.0+rocm"}, "is installed, not"),
        ({"packages": ("nothing",)}, "no Python files under nothing"),
    ],
)
def test_what_is_not_there_is_unavailable(
    kit: Kit, wheel: Wheel, change: dict[str, str], words: str
) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        kit.provide(wheel[1].model_copy(update=change))
    assert not isinstance(caught.value, IntegrityError)
    assert caught.value.hint


def test_the_real_torch_arrives_file_for_file(kit: Kit) -> None:
    torch = importlib.metadata.distribution("torch")
    root = Path(str(torch.locate_file("")))
    spec = InstalledSource(
        kind="installed",
        distribution="torch",
        version=torch.version.partition("+")[0],
        packages=("torch", "torchgen", "functorch"),
    )
    found = kit.provide(spec)
    listed = kit.store.git("ls-tree", "-r", found.tree).stdout.decode().splitlines()
    ids = {line.partition("\t")[2]: line.split()[2] for line in listed}
    paths = sorted(path.relative_to(root).as_posix() for name in spec.packages
                   for path in (root / name).rglob("*.py"))  # fmt: skip
    assert len(paths) > 2000
    assert sorted(ids) == paths
    said = subprocess.run(
        ["git", "hash-object", "--no-filters", "--stdin-paths"],
        # Absolute: the environment may lie inside a repository, whose root git would start from.
        input="\n".join(str(root / path) for path in paths),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.split() == [ids[path] for path in paths]
