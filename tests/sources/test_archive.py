from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from contribbot.errors import IntegrityError
from contribbot.git.pins.sources import import_archive
from tests.tools import unpack

from .conftest import Kit, git

TREE = {
    "demo-1.0/pkg/a.py": b"print(1)\n",
    "demo-1.0/pkg/empty": b"",
    "demo-1.0/big.bin": bytes(range(256)) * 9000,  # more than one piece
    'demo-1.0/odd "name" \\ with\u00e4 spaces.txt': b"\r\n",
    "demo-1.0/ lead/#a'b": b"\n\n",
}


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644,
          size: int = 0) -> tarfile.TarInfo:  # fmt: skip
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, target, mode, size
    return info


def land(kit: Kit, path: Path, root: str = "") -> dict[str, tuple[str, bytes]]:
    job = kit.job(kit.sdist(path, root=root))
    with job.store.exclusive():
        import_archive(job, path)
    return kit.files(job.ref)


def test_modes_links_and_odd_names_arrive_as_git_would_add_them(kit: Kit, tmp_path: Path) -> None:
    path = kit.pack(
        {
            **TREE,
            "run": entry("demo-1.0/run.sh", mode=0o755),
            "link": entry("demo-1.0/pkg/link", tarfile.SYMTYPE, "../big.bin"),
            "dir": entry("demo-1.0/emptydir", tarfile.DIRTYPE),
        }
    )
    files = land(kit, path)
    assert files["run.sh"] == ("100755", b"")
    assert files["pkg/link"] == ("120000", b"../big.bin")
    assert files['odd "name" \\ with\u00e4 spaces.txt'] == ("100644", b"\r\n")
    unpack(path, tmp_path / "out")
    unpacked = tmp_path / "out" / "demo-1.0"
    git(unpacked, "init", "-q")
    git(unpacked, "add", "-A", "-f")
    job = kit.job(kit.sdist(path))
    assert kit.store.tree_of(job.ref) == git(unpacked, "write-tree")


def test_generated_files_are_left_out_and_the_root_is_put_before(kit: Kit) -> None:
    files = land(
        kit,
        kit.pack(
            {
                "demo-1.0/PKG-INFO": b"Name: demo\nVersion: 1.0\n",
                "demo-1.0/demo.egg-info/PKG-INFO": b"generated",
                "demo-1.0/src/demo.egg-info/SOURCES.txt": b"generated",
                "./demo-1.0/setup.cfg": b"[egg_info]\ntag_build = \ntag_date = 0\n\n",
                "demo-1.0/tests/PKG-INFO": b"the repository's own",
                "demo-1.0/tests/x.egg-info/PKG-INFO": b"the repository's own",
                "demo-1.0/sub/setup.cfg": b"[egg_info]\ntag_build = \n",
            }
        ),
        root="python",
    )
    # A setup.cfg of the repository stays, with the lines that setuptools adds.
    setup = b"[metadata]\nname = demo\n\n[egg_info]\ntag_build = \ntag_date = 0\n"
    assert land(kit, kit.pack({"demo-1.0/setup.cfg": setup})) == {"setup.cfg": ("100644", setup)}
    assert sorted(files) == [
        "python/sub/setup.cfg",
        "python/tests/PKG-INFO",
        "python/tests/x.egg-info/PKG-INFO",
    ]


@pytest.mark.parametrize(
    "info",
    [
        entry("demo-1.0/../../x"),
        entry("demo-1.0/dev", tarfile.CHRTYPE),
        entry("demo-1.0/l", tarfile.SYMTYPE, "/etc/passwd"),
    ],
)
def test_a_hostile_member_is_refused_by_name_and_nothing_lands(
    kit: Kit, info: tarfile.TarInfo
) -> None:
    path = kit.pack({**TREE, "hostile": info})
    with pytest.raises(IntegrityError, match="outside the destination") as caught:
        land(kit, path)
    assert caught.value.message.startswith("demo-1.0.tar.gz: cannot be unpacked: ")
    assert kit.nothing_landed()


def test_what_is_no_archive_is_refused_by_name(kit: Kit) -> None:
    whole = kit.pack(TREE).read_bytes()
    for content in (b"", whole[: len(whole) // 2], zipped(kit, TREE, 0).read_bytes()[:-30]):
        with pytest.raises(IntegrityError, match=r"demo-1\.0\.tar\.gz: cannot be unpacked"):
            land(kit, kit.write(content))
    assert kit.nothing_landed()


def zipped(kit: Kit, files: Mapping[str, bytes], mode: int) -> Path:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as bundle:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            bundle.writestr(info, content, zipfile.ZIP_DEFLATED)
    return kit.write(raw.getvalue(), "demo-1.0.zip")


@pytest.mark.parametrize(
    ("mode", "content", "kept"),
    [
        (stat.S_IFREG | 0o644, b"", "100644"),
        (stat.S_IFREG | 0o755, b"#!\n", "100755"),
        (stat.S_IFLNK | 0o777, b"../big.bin", "120000"),
    ],
)
def test_a_zip_arrives_like_a_tar(kit: Kit, mode: int, content: bytes, kept: str) -> None:
    names = dict.fromkeys((name for name in TREE if "/pkg/" in name), content)
    files = land(kit, zipped(kit, {"demo-1.0/dir/": b"", **names}, mode))
    assert files == {name.removeprefix("demo-1.0/"): (kept, content) for name in names}
