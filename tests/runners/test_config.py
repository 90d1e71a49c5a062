"""`runners.toml`: what is wrong with it is said, with file, key and the next step."""

from __future__ import annotations

import pytest

from contribbot.errors import ExitCode, QueueError, UsageError
from contribbot.runners.documents import is_version, load_fleet
from tests.runners.conftest import DIGEST, HOSTED, MI300, Ranged, run_matrix

OTHER = MI300.replace("mi300", "other").replace('"gfx942"]', '"gfx942", "big"]')


def test_it_is_read(ranged: Ranged) -> None:
    fleet = load_fleet(ranged.folder)
    each = fleet.runners.runners[0]
    assert (each.count, each.minutes_limit, each.cost) == (2, 120, 1.0)
    assert " ".join(each.rocm[0].flags) == "--device /dev/kfd --device /dev/dri --group-add video"
    assert fleet.runners.versions == ("7.1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MI300.replace(f"@sha256:{DIGEST}", ":latest"), "rocm[0].image: name the image by its dig"),
        (MI300[: MI300.index("[[runners.rocm]]")], "runners[0].rocm: Field required"),
        (HOSTED.replace(f'image = "example.com/rocm/dev@sha256:{DIGEST}"\n', ""),
         "hosted.rocm[0].image: Field required"),
        (MI300 + MI300, "runners: mi300 is there twice"),
        (MI300 + MI300.replace("mi300", "other"), "mi300 and other have the same labels"),
        (MI300 + OTHER.replace("gfx942", "gfx950").replace('"gfx950", "big"', '"gfx942", "big"'),
         "a job for gfx942 could run on gfx950"),
        (MI300 + MI300[MI300.index("[[runners.rocm]]"):], "rocm: 7.1 is there twice"),
        (MI300.replace('"self-hosted", "gfx942"', ""), "runners[0].labels: "),
        (MI300.replace('"self-hosted", "gfx942"', '"ubuntu-24.04"'), "is a label of GitHub's"),
        (MI300 + HOSTED.replace("ubuntu-24.04", "GFX942"),
         "mi300 has all labels of hosted, so that a job for no GPU could run on"),
        (MI300.replace('"self-hosted", "gfx942"', '"self-hosted"')
         + HOSTED.replace('"ubuntu-24.04"', '"self-hosted", "cpu"'),
         "hosted has all labels of mi300, so that a job for gfx942 could run on no GPU"),
        (MI300.replace('"mi300"', '"mi300_1"'), "runners[0].name: no underscore: "),
        (HOSTED.replace('"gfx90a"', '"gfx942"'), "targets: gfx942 is there twice"),
        (MI300.replace("count = 2", "count = 0"), "runners[0].count: "),
        (MI300.replace("count = 2", "cuont = 2"), "runners[0].cuont: there is no such key"),
        (MI300.replace('"gfx942"\nlabels', '"mi300x"\nlabels'), "runners[0].target: "),
        (MI300.replace('"7.1"', '"7.1; echo"'), "runners[0].rocm[0].version: "),
        (MI300.replace("target =", "targte ="), "targte: there is no such key (and 1 more)"),
        (MI300.replace('name = "mi300"', 'name = "hosted"'), "hosted is the set that compiles"),
        (MI300 + HOSTED.replace("ubuntu-24.04", "windows-latest"),
         "hosted.labels[0]: windows-latest is a label that no runner with Linux has"),
        (MI300 + HOSTED.replace("ubuntu-24.04", "ubuntu-25.10"), "hosted.labels[0]: ubuntu-25.10"),
        (MI300.replace('"self-hosted", "gfx942"', '"self-hosted", "Windows"'),
         "runners[0].labels[1]: Windows is a label that no runner with Linux has"),
        (MI300 + HOSTED.replace('"ubuntu-24.04"', '"ubuntu-24.04", "Ubuntu-22.04"'),
         "hosted: labels: no runner has all of ubuntu-22.04, ubuntu-24.04"),
        ("[[runners]\n", "not TOML"),
        ("\N{BYTE ORDER MARK}" + MI300, "runners.toml:1: it begins with a byte order mark"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_key(ranged: Ranged, text: str, said: str) -> None:
    path = ranged.put(text)
    done = run_matrix(ranged.folder)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert str(path) in done.err
    assert said in done.err
    steps = ("docs/", "add a [[runners]]", "not TOML", "of your own", "UTF-8 without one")
    assert any(step in done.err for step in steps)


@pytest.mark.parametrize(
    "flags",
    [
        "--device /dev/kfd --device /dev/dri --group-add video --group-add render",
        "--device=/dev/kfd --device=/dev/dri/renderD128 --device /dev/dri/card1 --group-add=109",
        "--cap-add=SYS_PTRACE --security-opt seccomp=unconfined --shm-size 64G --init",
        "--ulimit memlock=-1 --ulimit=stack=67108864 --memory 200g --cpus 7.5 --ipc private",
        "--user root --cpuset-cpus 0-15,32 --security-opt=no-new-privileges",
    ],
)
def test_what_containers_with_a_gpu_need_is_taken(ranged: Ranged, flags: str) -> None:
    ranged.put(MI300 + f"flags = {flags.split()}\n")
    assert load_fleet(ranged.folder).runners.runners[0].rocm[0].flags == tuple(flags.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--privileged", "--privileged is not one of --cap-add, "),
        ("-v/:/host", "-v/:/host is not one of"),
        ("--cidfile=/etc/cron.d/x", "--cidfile is not one of"),
        # The first word that is no option would be the image.
        ("evil.example/image:latest", "evil.example/image:latest is not one of"),
        ("--init evil.example/image:latest", "evil.example/image:latest is not one of"),
        ("--init=", "--init takes no value"),
        ("-- x", "-- is not one of"),
        ("--cap-add ALL", "--cap-add ALL: it takes SYS_PTRACE"),
        ("--device /dev/sda", "--device /dev/sda: it takes /dev/kfd, /dev/dri"),
        ("--device=/dev/kfd:/x", "--device /dev/kfd:/x: it takes"),
        ("--device /dev/dri/../sda", "--device /dev/dri/../sda: it takes"),
        ("--device --privileged", "--device --privileged: it takes"),
        ("--device", "--device without a value: it takes"),
        ("--group-add docker", "--group-add docker: it takes video, render"),
        ("--group-add 0", "--group-add 0: it takes"),
        ("--ipc=host", "--ipc host: it takes none, private or shareable; for more shared memory"),
        ("--security-opt=apparmor=unconfined", "--security-opt apparmor=unconfined: it takes"),
        ("--user $(id)", "--user $(id): it takes"),
    ],
)
def test_no_other_flag_is_taken(ranged: Ranged, flags: str, said: str) -> None:
    path = ranged.put(MI300 + f"flags = {flags.split()}\n")
    done = run_matrix(ranged.folder)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert f"{path}:9: runners[0].rocm[0].flags: {said}" in done.err


def test_without_the_file_the_next_step_is_said(ranged: Ranged) -> None:
    (ranged.folder / "runners.toml").unlink()
    for words in ("no such file", "not a file"):
        with pytest.raises(QueueError, match=rf"runners\.toml: {words}") as raised:
            load_fleet(ranged.folder)
        assert "docs/runners.md" in raised.value.hint
        (ranged.folder / "runners.toml").mkdir(exist_ok=True)


def test_a_label_that_no_set_has(ranged: Ranged) -> None:
    with pytest.raises(UsageError, match=r"gfx94: no set of .*did you mean gfx942") as raised:
        ranged.plan(on=("gfx94",))
    assert raised.value.hint == "it has hosted, mi300"


def test_a_target_that_is_no_label_means_its_sets(ranged: Ranged) -> None:
    path = ranged.folder / "runners.toml"
    path.write_text(path.read_text().replace('"gfx942"]', '"pool-a"]'))
    assert "gfx942" not in {
        label for each in load_fleet(ranged.folder).runners.runners for label in each.labels
    }
    assert {job.kind for job in ranged.plan(on=("gfx942",)).jobs} == {"gpu"}


def test_only_some_sets(ranged: Ranged) -> None:
    assert {job.kind for job in ranged.plan(on=("GFX942",)).jobs} == {"gpu"}
    assert {job.kind for job in ranged.plan(on=("hosted",)).jobs} == {"compile"}
    # What the others could run is neither planned nor called open.
    assert ranged.plan(on=("hosted",)).open == ()


@pytest.mark.parametrize(
    ("wanted", "seen", "same"),
    [
        ("7.1", "7.1.0-84", True), ("7.1", "7.1", True), ("7.1.1", "7.1.1-12", True),
        ("7.1", "7.10.0-1", False), ("7.1.1", "7.1.0-84", False), ("7.1", "", False),
        ("7.1", "17.1.0", False),
    ],
)  # fmt: skip
def test_versions(wanted: str, seen: str, same: bool) -> None:
    assert is_version(wanted, seen) is same
