"""Edits of queue.toml and patch.toml change what they must, and not a byte beside it."""

from __future__ import annotations

import difflib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from contribbot.errors import QueueError
from contribbot.model.patch import GitSource, PatchSpec, Pin, QueueSpec, SdistSource, WheelSource
from contribbot.queue.toml_edit import (
    remove_from_order,
    set_order,
    set_patch,
    set_pin,
)

ROOT = Path(__file__).parent.parent
REAL = (ROOT / "patches" / "queue.toml").read_bytes()
GIT = GitSource(kind="git")
SDIST = SdistSource(kind="sdist", distribution="x", version="2", sha256="b" * 64, root="python")
WHEEL = WheelSource(kind="wheel", distribution="x", version="2", sha256="c" * 64, packages=("x",))
SMALL = b"""\
# What is applied.
order = [
    "one",  # the first
    "two",
]

[[pins]]
upstream = "x"  # upstream's name
tag = "v1"      # moves

# From the index.
[[pins.sources]]
kind = "sdist"
distribution = "x"
version = "1"
sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

# From the server.
[[pins.sources]]
kind = "git"
"""


def spec_of(content: bytes) -> QueueSpec:
    return QueueSpec.model_validate(tomllib.loads(content.decode()))


def changes(before: bytes, after: bytes) -> list[str]:
    """Return the lines that went, in order, and then those that came."""
    rows = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
    return sorted((row for row in rows if row[0] in "+-"), key=lambda row: row[0] == "+")


def test_a_pin_moves_and_comments_stay() -> None:
    (old,) = spec_of(SMALL).pins
    new = Pin(upstream="x", tag="v2", commit="d" * 40, sources=(SDIST, GIT))
    edited = set_pin(SMALL, old, new)
    assert spec_of(edited).pins == (new,)
    assert changes(SMALL, edited) == [
        '- tag = "v1"      # moves',
        '- version = "1"',
        f'- sha256 = "{"a" * 64}"',
        '+ tag = "v2"      # moves',
        f'+ commit = "{"d" * 40}"',
        '+ version = "2"',
        f'+ sha256 = "{"b" * 64}"',
        '+ root = "python"',
    ]
    # And back: what came goes again.
    assert set_pin(edited, new, old) == SMALL


@pytest.mark.parametrize("place", range(4))
def test_each_pin_of_the_real_queue_moves_and_the_others_stay(place: int) -> None:
    spec = spec_of(REAL)
    old = spec.pins[place]
    new = Pin(upstream=old.upstream, tag="v2", sources=(WHEEL, GIT))
    edited = set_pin(REAL, old, new)
    expected = (*spec.pins[:place], new, *spec.pins[place + 1 :])
    assert spec_of(edited) == QueueSpec(order=spec.order, pins=expected)
    # Those before it are the same bytes.
    head = REAL.split(b"[[pins]]")[: place + 1]
    assert edited.startswith(b"[[pins]]".join(head))
    assert spec_of(set_pin(REAL, old, None)).pins == (*spec.pins[:place], *spec.pins[place + 1 :])


@pytest.mark.parametrize("place", range(3))
def test_a_pin_goes_with_its_own_comments(place: int) -> None:
    rows = [
        f'\n[[pins]]\nupstream = "{name}"  # {tag} of {name}\ntag = "{tag}"  # {tag} alone\n'
        'sources = [{ kind = "git" }]\n'
        for name, tag in (("x", "v1"), ("y", "v1"), ("x", "v2"))
    ]
    content = "".join(["order = []\n", *rows])
    edited = set_pin(content.encode(), spec_of(content.encode()).pins[place], None).decode()
    del rows[place]
    assert edited.rstrip() == "".join(["order = []\n", *rows]).rstrip()


def test_a_pin_is_added_at_the_end() -> None:
    new = Pin(upstream="y", tag="v2", sources=(SDIST, GIT))
    edited = set_pin(SMALL, None, new)
    assert spec_of(edited).pins == (*spec_of(SMALL).pins, new)
    assert edited.startswith(SMALL)
    assert edited[len(SMALL) :].startswith(b'\n[[pins]]\nupstream = "y"\ntag = "v2"\n\n[[pins.s')
    assert edited.endswith(b'kind = "git"\n')
    assert set_pin(edited, new, None).rstrip() == SMALL.rstrip()


@pytest.mark.parametrize(
    "content",
    [
        b"order = []\npins = []\n",
        b'order = []\n[[pins]]\nupstream = "x"\ntag = "v1"\nsources = [{ kind = "git" }]\n',
        b'pins = [{ upstream = "x", tag = "v1", sources = [{ kind = "git" }] }]\norder = []\n',
        b"order = []\npins = []\n".replace(b"\n", b"\r\n"),
        SMALL.replace(b"\n", b"\r\n"),
        SMALL.rstrip(),
    ],
    ids=["empty", "braces in a table", "braces", "empty, CRLF", "CRLF", "no end of line"],
)
def test_every_way_to_write_it_is_edited(content: bytes) -> None:
    spec = spec_of(content)
    new = Pin(upstream="x", tag="v2", commit="d" * 40, sources=(SDIST, GIT))
    assert spec_of(set_pin(content, None, new)).pins == (*spec.pins, new)
    for old in spec.pins:
        assert spec_of(set_pin(content, old, new)).pins == (new,)
    assert spec_of(set_order(content, [*spec.order, "new"])).order == (*spec.order, "new")
    if b"\r\n" in content:
        edited = set_pin(set_order(content, [*spec.order, "new"]), next(iter(spec.pins), None), new)
        assert edited.count(b"\n") - edited.count(b"\r\n") == 0


def test_a_patch_comes_into_the_order_and_goes() -> None:
    edited = set_order(SMALL, ["one", "two", "new"])
    assert changes(SMALL, edited) == ['+     "new",']
    assert remove_from_order(edited, "new") == SMALL
    assert set_order(SMALL, ["one", "two"]) == remove_from_order(SMALL, "nobody") == SMALL
    # One line gives way to one a patch, which git can merge.
    line = b'order = ["rmsnorm"]\n'
    assert changes(line, set_order(line, ["rmsnorm", "new"]))[1:4] == [
        "+ order = [", '+     "rmsnorm",', '+     "new",',
    ]  # fmt: skip


def test_a_patch_toml_changes_where_it_must() -> None:
    before = (ROOT / "patches" / "rmsnorm" / "patch.toml").read_bytes()
    spec = PatchSpec.model_validate(tomllib.loads(before.decode()))
    files = ("added.py", *spec.files[1:])
    edited = set_patch(before, pin="v9", files=files, depends_on=["below"])
    assert PatchSpec.model_validate(tomllib.loads(edited.decode())) == spec.model_copy(
        update={"pin": "v9", "files": files, "depends_on": ("below",)}
    )
    assert changes(before, edited) == [
        f'- pin = "{spec.pin}"', "- depends_on = []", f'-     "{spec.files[0]}",',
        '+ pin = "v9"', '+ depends_on = ["below"]', '+     "added.py",',
    ]  # fmt: skip
    assert set_patch(before) == before
    assert set_patch(before, pin=spec.pin, files=spec.files, depends_on=[]) == before
    reordered = set_patch(before, files=spec.files[::-1])
    assert tuple(tomllib.loads(reordered.decode())["files"]) == spec.files[::-1]
    without = before.replace(b"depends_on = []\n", b"")
    added = set_patch(without, depends_on=["below"])
    assert changes(without, added) == ['+ depends_on = ["below"]']


def test_what_cannot_be_read_or_would_say_something_else_is_for_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for bad in (b"order = [", b"\xff", b"order = 1\n"):
        with pytest.raises(QueueError):
            set_pin(bad, spec_of(SMALL).pins[0], None)
    with pytest.raises(QueueError, match="pins: there is no x v7"):
        set_pin(SMALL, Pin(upstream="x", tag="v7", sources=(GIT,)), spec_of(SMALL).pins[0])
    monkeypatch.setattr("tomlkit.dumps", lambda _document: 'order = ["other"]\n')
    with pytest.raises(QueueError, match="order: laid out in a way that cannot") as raised:
        set_order(SMALL, ["new"])
    assert raised.value.hint == "edit it by hand: queue.toml, order"


def test_commands_that_only_read_do_not_pay_for_it() -> None:
    code = (
        "import sys, contribbot.cli.show, contribbot.cli.verify\n"
        "print(sorted({'tomlkit', 'filelock'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
