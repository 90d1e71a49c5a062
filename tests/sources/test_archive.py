from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from contribbot.errors import IntegrityError
from contribbot.git import archive
from contribbot.git.archive import import_archive
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
    assert sorted(files) == [
        "python/sub/setup.cfg",
        "python/tests/PKG-INFO",
        "python/tests/x.egg-info/PKG-INFO",
    ]


@pytest.mark.parametrize(
    ("metadata", "other"),
    [
        (b"Name: Demo\nVersion: 1.0.0\n", ""),
        (b"Name: demo\nVersion: 9.9.9\n\nVersion: 1.0\n", "demo 9.9.9"),
        (b"Name: other\nVersion: 1.0\n", "other 1.0"),
        (b"generated", "without a name without a name"),
    ],
)
def test_an_archive_is_of_the_release_that_its_pin_names(
    kit: Kit, metadata: bytes, other: str
) -> None:
    # A setup.cfg of the repository's own, to which setuptools adds its lines, stays.
    setup = b"[metadata]\nname = demo\n\n[egg_info]\ntag_build = \ntag_date = 0\n"
    archive = kit.pack({"demo-1.0/setup.cfg": setup, "demo-1.0/PKG-INFO": metadata})
    if not other:
        assert land(kit, archive) == {"setup.cfg": ("100644", setup)}
        return
    with pytest.raises(IntegrityError, match=f"says that it is {other}, and the pin names demo 1"):
        land(kit, archive)


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (entry("/etc/passwd"), "absolute"),
        (entry("demo-1.0/../../x"), "leads out"),
        (entry("elsewhere/x"), "outside the archive's top folder"),
        (entry("demo-1.0/.git/config"), "git's own"),
        (entry("demo-1.0/sub/.GiT/hooks/x"), "git's own"),
        (entry("demo-1.0/git~1/x"), "git's own"),
        (entry("demo-1.0/.git. /x"), "git's own"),
        (entry("demo-1.0/a\nb"), "control character"),
        (entry("demo-1.0/\x1b[31m"), "control character"),
        (entry("demo-1.0/pkg/a.py"), "twice"),
        (entry("demo-1.0/pkg"), "twice"),
        (entry("demo-1.0/pkg/a.py/b"), "its folder is a file"),
        (entry("demo-1.0/pkg/./a.py"), "twice"),
        (entry("demo-1.0/pkg/a.py", tarfile.DIRTYPE), "twice"),
        (entry("demo-1.0/l", tarfile.SYMTYPE, ""), "without a usable target"),
        (entry("demo-1.0/l", tarfile.SYMTYPE, "a\nb"), "without a usable target"),
        (entry("demo-1.0/dev", tarfile.CHRTYPE), "neither"),
        (entry("demo-1.0/fifo", tarfile.FIFOTYPE), "neither"),
        (entry("demo-1.0/l", tarfile.LNKTYPE, "/etc/passwd"), "neither"),
        (entry("demo-1.0/l", tarfile.SYMTYPE, "/etc/passwd"), "link out"),
        (entry("demo-1.0/l", tarfile.SYMTYPE, "../x"), "link out"),
        (entry("demo-1.0/pkg/l", tarfile.SYMTYPE, "../pkg/../../x"), "link out"),
        (entry("demo-1.0/l", tarfile.SYMTYPE, "pkg/../.git/config"), "git's own"),
        (entry("demo-1.0/" + "n/" * 2000), "path too long"),
        (entry("demo-1.0"), "in place of the top folder"),
    ],
)
def test_a_hostile_member_is_refused_by_name_and_nothing_lands(
    kit: Kit, info: tarfile.TarInfo, why: str
) -> None:
    path = kit.pack({**TREE, "hostile": info})
    with pytest.raises(IntegrityError, match=why) as caught:
        land(kit, path)
    assert caught.value.message.startswith("demo-1.0.tar.gz: '")
    assert caught.value.message.isprintable()
    assert kit.nothing_landed()


@pytest.mark.parametrize(
    ("limit", "value", "why"),
    [
        ("MAX_MEMBER", 2**20, "at most 1048576 are accepted"),
        ("MAX_TOTAL", 2**21, "unpacks to more than 2097152 bytes"),
        ("MAX_MEMBERS", 2, "more than 2 members"),
    ],
)
def test_an_archive_that_swells_is_given_up(
    kit: Kit, patch: pytest.MonkeyPatch, limit: str, value: int, why: str
) -> None:
    patch.setattr(archive, limit, value)
    for path in (kit.pack(TREE), zipped(kit, TREE)):
        with pytest.raises(IntegrityError, match=why):
            land(kit, path)
    assert kit.nothing_landed()


def test_a_header_that_asks_for_gigabytes_is_refused_before_they_are_read(kit: Kit) -> None:
    header = entry("x", tarfile.XHDTYPE, size=2**33).tobuf(format=tarfile.GNU_FORMAT)
    with pytest.raises(IntegrityError, match="not sane"):
        land(kit, kit.write(gzip.compress(header + bytes(10240))))


def test_a_negative_size_does_not_loop(kit: Kit) -> None:
    header = bytearray(entry("demo-1.0/x").tobuf())
    header[124:136] = b"\xff" * 10 + b"\xfc\x00"  # base 256: -1024
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(IntegrityError):
        land(kit, kit.write(gzip.compress(bytes(header) + bytes(10240))))
    assert kit.nothing_landed()


def test_an_archive_cut_anywhere_is_refused(kit: Kit) -> None:
    whole = kit.pack({"demo-1.0/a": b"a" * 600, "demo-1.0/b": bytes(range(256))}).read_bytes()
    content = gzip.decompress(whole)
    end = 512 * 5  # two headers, two blocks of a, one of b
    damaged = bytearray(content)
    damaged[512 * 3 + 150] ^= 1  # the check sum of the second header, which tells it from the end
    cut = [whole[:n] for n in (0, 1, 20, len(whole) // 2, len(whole) - 9, len(whole) - 1)]
    cut += [gzip.compress(content[:n]) for n in (512, 700, 512 * 2, 512 * 4 + 5, end)]
    for part in [*cut, gzip.compress(damaged)]:
        with pytest.raises(IntegrityError, match=r"demo-1\.0\.tar\.gz"):
            land(kit, kit.write(part))
    assert kit.nothing_landed()
    assert len(land(kit, kit.write(gzip.compress(content[: end + 512])))) == 2


def test_a_gzip_file_of_several_parts_and_padding_is_read_whole(kit: Kit) -> None:
    content = gzip.decompress(kit.pack(TREE).read_bytes())
    parts = gzip.compress(content[:3000]) + gzip.compress(content[3000:]) + bytes(2000)
    assert len(land(kit, kit.write(parts))) == len(TREE)


def zipped(kit: Kit, files: Mapping[str, bytes], mode: int = stat.S_IFREG | 0o644,
           packed: int = zipfile.ZIP_DEFLATED) -> Path:  # fmt: skip
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as bundle:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            bundle.writestr(info, content, packed)
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


@pytest.mark.parametrize(
    ("name", "mode", "packed", "why"),
    [
        ("demo-1.0/../../x", stat.S_IFREG, zipfile.ZIP_DEFLATED, "leads out"),
        ("demo-1.0/.git/x", stat.S_IFREG, zipfile.ZIP_DEFLATED, "git's own"),
        ("demo-1.0/l", stat.S_IFLNK, zipfile.ZIP_STORED, "link out"),
        ("demo-1.0/f", stat.S_IFIFO, zipfile.ZIP_STORED, "neither"),
        ("demo-1.0/a", stat.S_IFREG, zipfile.ZIP_BZIP2, "packed in an unusual way"),
    ],
)
def test_a_hostile_zip_is_refused(kit: Kit, name: str, mode: int, packed: int, why: str) -> None:
    with pytest.raises(IntegrityError, match=why):
        land(kit, zipped(kit, {name: b"../../etc"}, mode, packed))
    assert kit.nothing_landed()


def test_a_cut_or_changed_zip_is_refused(kit: Kit) -> None:
    whole = zipped(kit, {"demo-1.0/a": b"a" * 5000}).read_bytes()
    for damaged in (whole[:-30], whole[:40] + b"\xff" + whole[41:]):
        with pytest.raises(IntegrityError, match=r"demo-1\.0\.zip"):
            land(kit, kit.write(damaged, "demo-1.0.zip"))
    assert kit.nothing_landed()
