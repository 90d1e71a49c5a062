"""The releases of an upstream, and a pin at another one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.errors import SourceError, UsageError
from contribbot.git.pins import Silent
from contribbot.git.pins.index import Release, releases, resolve
from contribbot.git.pins.sources import provide
from contribbot.model.evidence import pin_digest
from contribbot.model.patch import (
    GitSource,
    InstalledSource,
    Pin,
    ReleaseRecipe,
    SdistSource,
    SourceSpec,
    Upstream,
    WheelSource,
)
from contribbot.queue.load import Queue, load_queue

from .conftest import Kit
from .index_server import Index
from .test_wheel import zipped

QUEUE = Path(__file__).parent.parent.parent
GIT = GitSource(kind="git", remote="https://localhost/demo")
PURE = "py3-none-any"
LINUX = "cp311-cp311-manylinux_2_28_x86_64"
MAC = "cp311-cp311-macosx_14_0_arm64"
WIN = "cp311-cp311-win_amd64"


def upstream(**recipe: object) -> Upstream:
    facts = {"distribution": "demo", "packages": ["demo"], **recipe}
    release = ReleaseRecipe.model_validate(facts)
    return Upstream(name="demo", repository="owner/demo", release=release)


UPSTREAM = upstream()


def pin(*sources: SourceSpec, tag: str = "v0.1") -> Pin:
    old = SdistSource(kind="sdist", distribution="demo", version=tag[1:], sha256="0" * 64)
    return Pin(upstream="demo", tag=tag, commit="1" * 40, sources=sources or (old, GIT))


def offer(index: Index, *names: str) -> None:
    """Offer files; each is as long as its name, twice."""
    for name in names:
        index.files[name] = name.encode() * 2


def wheels(index: Index, version: str, *tags: str) -> None:
    """Offer wheels."""
    offer(index, *(f"demo-{version}-{tag}.whl" for tag in tags))


def announced(index: Index, name: str) -> str:
    return hashlib.sha256(index.files[name]).hexdigest()


def chosen(index: Index, found: Pin) -> str:
    """Return the name of the file that a pin names."""
    (sha256,) = (one.sha256 for one in found.sources if isinstance(one, SdistSource | WheelSource))
    (name,) = (name for name in index.files if announced(index, name) == sha256)
    return name


def tags(found: list[Release]) -> list[str]:
    return [release.tag for release in found]


@pytest.fixture
def second(index: Index, patch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Give another index, which pip asks after the first."""
    assert index.host
    with Index() as server:
        patch.setenv("PIP_EXTRA_INDEX_URL", server.url)
        yield server


def test_releases_are_listed_in_their_own_order_with_one_request(index: Index) -> None:
    offer(index, "demo-0.10.0.tar.gz", "demo-0.9.0.zip", "demo-0.9.0.post1.tar.gz",
          "demo-0.11.0rc1.tar.gz", "demo-0.11.0.dev3.tar.gz", "demo-0.9.0+cpu.tar.gz",
          "demo-1!0.1.tar.gz", "demo-0.8.0.tar.bz2", "another-7.0.tar.gz")  # fmt: skip
    wheels(index, "0.10.0", LINUX, MAC)
    wheels(index, "0.9.1", PURE)
    listed = [
        (release.tag, *(file.tags or "sdist" for file in release.files))
        for release in releases(pin(), UPSTREAM)
    ]
    assert listed == [
        ("v0.9.0", "sdist"), ("v0.9.0.post1", "sdist"), ("v0.9.1", PURE),
        ("v0.10.0", MAC, LINUX, "sdist"),
    ]  # fmt: skip
    assert (index.pages, index.downloads) == (1, 0)
    known = releases(pin(), UPSTREAM, also=("v0.11.0.dev3", "v0.11.0rc1", "v7"))
    assert tags(known)[-3:] == ["v0.10.0", "v0.11.0.dev3", "v0.11.0rc1"]


@pytest.mark.parametrize("reason", ["", "broken"])
def test_a_withdrawn_release_is_found_by_its_tag_alone(index: Index, reason: str) -> None:
    offer(index, "demo-1.0.tar.gz", "demo-1.1.tar.gz", "demo-1.1-py3-none-any.whl")
    index.yanked = dict.fromkeys(["demo-1.1.tar.gz", "demo-1.1-py3-none-any.whl"], reason)
    assert tags(releases(pin(), UPSTREAM)) == ["v1.0"]
    assert tags(releases(pin(), UPSTREAM, also=("v1.1",))) == ["v1.0", "v1.1"]
    assert resolve(pin(), UPSTREAM, "newest").tag == "v1.0"
    assert chosen(index, resolve(pin(), UPSTREAM, "v1.1")) == "demo-1.1.tar.gz"
    # One file is not the release, and is passed over for those that stand.
    del index.yanked["demo-1.1-py3-none-any.whl"]
    found = resolve(pin(), UPSTREAM, "newest")
    assert found.tag == "v1.1"
    assert chosen(index, found) == "demo-1.1-py3-none-any.whl"


def test_a_source_archive_is_preferred_and_its_pin_provides_the_tree(
    kit: Kit, index: Index
) -> None:
    archive = kit.pack({"demo-1.2/a.py": b"x = 1\n"}, "demo-1.2.tar.gz")
    index.offer(archive)
    offer(index, "demo-1.2.zip", "demo-1.2-py3-none-any.whl", "demo-1.3rc1.tar.gz")
    there = upstream(root="python")
    found = resolve(pin(), there, "newest")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == Pin(
        upstream="demo", tag="v1.2", commit=None, sources=(
            SdistSource(kind="sdist", distribution="demo", version="1.2", sha256=digest,
                        root="python"),
            GIT,
        ),
    )  # fmt: skip
    assert found == resolve(pin(), there, "v1.2")
    assert resolve(found, there, "v1.2") is resolve(found, there, "newest") is found
    named = resolve(pin(), upstream(tag="release-{version}"), "release-1.2")
    assert named.tag == "release-1.2"
    assert index.downloads == 0
    provided = provide(found, there, kit.store, progress=Silent())
    assert provided.kind == "sdist"
    assert kit.files(provided.commit) == {"python/a.py": ("100644", b"x = 1\n")}


@pytest.mark.parametrize(
    ("recipe", "folder"),
    [({}, ""), ({"root": "python"}, "python/"), ({"root": "x", "wheel_root": ""}, ""),
     ({"wheel_root": "src"}, "src/")],
)  # fmt: skip
def test_a_wheel_serves_where_no_archive_is_and_provides_its_python_files(
    kit: Kit, index: Index, recipe: dict[str, object], folder: str
) -> None:
    index.offer(kit.write(zipped({"demo/a.py": b"x = 1\n", "demo/c.so": b""}),
                          f"demo-1.2-{LINUX}.whl"))  # fmt: skip
    there = upstream(**recipe)
    found = resolve(pin(), there, "newest")
    assert found.commit is None
    assert [source.kind for source in found.sources] == ["wheel", "git"]
    assert index.downloads == 0
    provided = provide(found, there, kit.store, progress=Silent())
    assert (provided.kind, set(kit.files(provided.commit))) == ("wheel", {f"{folder}demo/a.py"})


@pytest.mark.parametrize(
    ("tags", "chosen_tags"),
    # A wheel for Windows may have other line ends than the repository.
    [((LINUX, MAC, PURE), PURE), ((LINUX, MAC), MAC), ((WIN, LINUX), LINUX), ((WIN,), WIN)],
)
def test_the_choice_among_wheels_is_the_same_on_every_machine(
    index: Index, tags: tuple[str, ...], chosen_tags: str
) -> None:
    wheels(index, "1.0", *tags)
    assert chosen(index, resolve(pin(), UPSTREAM, "v1.0")) == f"demo-1.0-{chosen_tags}.whl"


def test_a_digest_that_nobody_announces_is_asked_for(index: Index) -> None:
    offer(index, "demo-1.0.tar.gz")
    index.announce = False
    with pytest.raises(SourceError, match=r"demo-1\.0\.tar\.gz: .* does not announce its sha256"):
        resolve(pin(), UPSTREAM, "v1.0")


def test_a_folder_of_files_serves_without_an_index(kit: Kit, find_links: Path) -> None:
    archive = kit.pack({"demo-1.0/a.py": b""})
    assert archive.parent == find_links
    kit.write(b"wheel", f"demo-1.1-{LINUX}.whl")
    assert tags(releases(pin(), UPSTREAM)) == ["v1.0", "v1.1"]
    found = resolve(pin(), UPSTREAM, "newest").sources[0]
    assert isinstance(found, WheelSource)
    assert found.tags == LINUX
    assert found.sha256 == hashlib.sha256(b"wheel").hexdigest()
    assert provide(
        resolve(pin(), UPSTREAM, "v1.0"), UPSTREAM, kit.store, progress=Silent()
    ).fresh  # fmt: skip


def test_what_is_installed_comes_first_where_it_is_that_release(
    index: Index, wheel: tuple[Path, InstalledSource]
) -> None:
    _, installed = wheel
    offer(index, "demo-1.0.tar.gz", "demo-2.0.tar.gz")
    here = installed.model_copy(update={"version": "0.1"})
    old = pin(here, GIT)
    found = resolve(old, UPSTREAM, "v1.0")
    assert found.sources[0] == installed, "1.0+cpu is a build of 1.0"
    assert [source.kind for source in found.sources] == ["installed", "sdist", "git"]
    assert [source.kind for source in resolve(old, UPSTREAM, "v2.0").sources] == ["sdist", "git"]


@pytest.mark.parametrize(
    ("tag", "hint"),
    [
        ("v1.1", "name v1.0; "),
        ("newest", "name v2.0rc1; "),
        ("main", "name v2.0rc1; "),
    ],
)
def test_a_tag_without_a_release_is_named_with_the_next_step(
    index: Index, tag: str, hint: str
) -> None:
    offer(index, "demo-1.0.tar.gz", "demo-2.0rc1.tar.gz")
    index.yanked = {"demo-1.0.tar.gz": ""} if tag == "newest" else {}
    with pytest.raises(UsageError) as caught:
        resolve(pin(), UPSTREAM, tag)
    assert caught.value.message == f"demo {tag}: no such release of demo"
    assert caught.value.hint.startswith(hint)
    assert index.url not in caught.value.hint


def test_a_version_names_its_tag(index: Index) -> None:
    offer(index, "demo-1.0.tar.gz", "demo-2.0.tar.gz")
    assert resolve(pin(), UPSTREAM, "1.0").tag == "v1.0"


def test_a_project_that_no_place_has_is_named_with_the_places(
    index: Index, patch: pytest.MonkeyPatch
) -> None:
    words = f"demo.*: no .*release of demo.*: {index.url} has no files"
    with pytest.raises(SourceError, match=words) as caught:
        releases(pin(), UPSTREAM)
    assert "pip config list" in caught.value.hint
    patch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SourceError, match="no-index and without find-links"):
        resolve(pin(), UPSTREAM, "v1.0")


@pytest.mark.parametrize(
    ("described", "words", "hint"),
    [
        (
            Upstream(name="demo", repository="owner/demo"),
            "demo: upstreams/demo.toml",
            "[release]",
        ),
        (upstream(packages=[]), "demo v1.0: there are only wheels", "packages"),
    ],
)
def test_an_upstream_that_does_not_say_enough_says_what_to_add(
    index: Index, described: Upstream, words: str, hint: str
) -> None:
    wheels(index, "1.0", PURE)
    with pytest.raises(SourceError, match=re.escape(words)) as caught:
        resolve(pin(), described, "v1.0")
    assert hint in caught.value.hint


@pytest.mark.parametrize("trouble", ["401", "503", "garbled"])
def test_a_place_that_cannot_be_asked_is_said_and_the_others_serve(
    index: Index, second: Index, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    for server in (index, second):
        offer(server, "demo-1.0.tar.gz")
    if trouble == "401":
        index.credentials = "me:s3cret"
    index.page_faults = [trouble] * 9 if trouble == "503" else []
    index.garbled = trouble == "garbled"
    assert resolve(pin(), UPSTREAM, "newest").tag == "v1.0"
    (said,) = [line for line in caplog.messages if "are not seen" in line]
    assert index.url in said
    second.files.clear()
    with pytest.raises(SourceError) as caught:
        resolve(pin(), UPSTREAM, "newest")
    assert index.url in caught.value.message
    assert f"{second.url} has no files" in caught.value.message


@pytest.mark.parametrize("tag", ["1.0", "v{version}{version}", "a/{version}"])
def test_a_pattern_that_makes_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match=r"tag's pattern|around"):
        ReleaseRecipe(distribution="demo", tag=tag)


def test_what_is_said_of_releases_leaves_evidence_as_it_is() -> None:
    bare = Upstream(name="demo", repository="owner/demo")
    assert pin_digest(pin(), UPSTREAM) == pin_digest(pin(), bare)


def test_the_upstreams_real_releases_resolve() -> None:
    queue = load_queue(QUEUE)
    found = real(queue, "vllm", "v0.33.0", "v0.23.0")
    assert found.commit is None
    first, last = found.sources
    assert isinstance(first, SdistSource)
    assert first.sha256 == "760269db3d9611e12e524681df1bca0977d5d2f5fcb4481cc34d33efc4ae7ff5"
    assert last.kind == "git"
    # The pin that a person wrote by hand is what it finds, but for the Triton of its images.
    stated = queue.pin("vllm", "v0.33.0")
    assert stated is not None
    again = resolve(found, queue.upstreams["vllm"], "v0.33.0")
    assert again == stated.model_copy(update={"toolchains": ()})


def real(queue: Queue, name: str, old: str, tag: str) -> Pin:
    """Move a pin of our own queue; the index is the one that pip is configured for."""
    pinned = queue.pin(name, old)
    assert pinned is not None
    return resolve(pinned, queue.upstreams[name], tag)
