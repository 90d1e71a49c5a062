from __future__ import annotations

from collections.abc import Iterator

import pytest

from contribbot.errors import CommandError
from contribbot.git.repository import Mode, import_tree

from .conftest import Kit


def test_paths_arrive_byte_for_byte(kit: Kit) -> None:
    paths = ["plain", 'q"u', "back\\slash", " lead", "trail ", "new\nline", "\u00e4/\u65e5", "#a",
             "tab\t", "a'b"]  # fmt: skip
    with kit.store.exclusive(), import_tree(kit.store, ref="refs/x", message="m") as tree:
        for path in paths:
            tree.add(path, Mode.FILE, 1, (b"x",))
    assert sorted(kit.files("refs/x")) == sorted(paths)


def test_content_in_pieces_equals_content_in_one(kit: Kit) -> None:
    with kit.store.exclusive(), import_tree(kit.store, ref="refs/x", message="m") as tree:
        tree.add("pieces", Mode.FILE, 5, iter((b"ab", b"", b"c\n", b"\n")))
        tree.add("none", Mode.EXECUTABLE, 0, ())
        tree.copy("pieces", "copy")
    files = kit.files("refs/x")
    assert files == {
        "pieces": ("100644", b"abc\n\n"),
        "none": ("100755", b""),
        "copy": ("100644", b"abc\n\n"),
    }


def test_content_of_another_length_stops_the_import(kit: Kit) -> None:
    with (
        pytest.raises(ValueError, match="announced 5 bytes, got 2"),
        kit.store.exclusive(),
        import_tree(kit.store, ref="refs/x", message="m") as tree,
    ):
        tree.add("short", Mode.FILE, 5, (b"ab",))
    assert kit.nothing_landed()


def test_an_error_inside_leaves_nothing(kit: Kit) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(10**6)
        raise KeyError("the archive is damaged")

    with (
        pytest.raises(KeyError),
        kit.store.exclusive(),
        import_tree(kit.store, ref="refs/x", message="m") as tree,
    ):
        tree.add("big", Mode.FILE, 2 * 10**6, pieces())
    assert kit.nothing_landed()


def test_what_git_refuses_is_an_error_of_ours(kit: Kit) -> None:
    with (
        pytest.raises(CommandError, match="fast-import"),
        kit.store.exclusive(),
        import_tree(kit.store, ref="refs/x", message="m") as tree,
    ):
        tree.copy("never-written", "copy")
    assert kit.store.resolve("refs/x") is None
