"""The content of `runners.toml`: which runners there are, and in what they run things."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from contribbot.model.base import Model, Name
from contribbot.model.checks import GfxTarget

#: The file, in the queue's folder.
RUNNERS_FILE: Final = "runners.toml"
#: The set that compiles.
HOSTED: Final = "hosted"
#: What a container is given that is to reach a GPU.
GPU_FLAGS: Final = ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video")
#: GitHub's own runners have labels that start so.
_GITHUBS: Final = re.compile(r"^(?:ubuntu|windows|macos)-", re.IGNORECASE)
_SIZE: Final = (r"[0-9]{1,15}(?:[bkmgBKMG])?", "bytes, or a number with k, m or g")
_NUMBERS: Final = (r"[0-9,-]{1,100}", "numbers, as in 0-7,16")
#: Options of a container that Actions takes and that open nothing of the host but its GPUs: what
#: each value may be, and how that is said; None: it has none. All others are refused, not only
#: those known to be bad: a word that is no option takes the place of the image, and short options
#: can be written together.
_OPTIONS: Final[Mapping[str, tuple[str, str] | None]] = {
    "--cap-add": ("SYS_PTRACE", "SYS_PTRACE"),
    "--cpus": (r"[0-9]{1,4}(?:\.[0-9]{1,3})?", "a number"),
    "--cpuset-cpus": _NUMBERS,
    "--cpuset-mems": _NUMBERS,
    "--device": (
        r"/dev/(?:kfd|dri(?:/(?:card|renderD)[0-9]{1,4})?)",
        "/dev/kfd, /dev/dri, /dev/dri/cardN or /dev/dri/renderDN",
    ),
    "--group-add": (r"video|render|[1-9][0-9]{0,9}", "video, render, or the number of a group"),
    "--init": None,
    "--ipc": (
        "none|private|shareable",
        "none, private or shareable; for more shared memory there is --shm-size",
    ),
    "--memory": _SIZE,
    "--security-opt": (
        "seccomp=unconfined|no-new-privileges",
        "seccomp=unconfined or no-new-privileges",
    ),
    "--shm-size": _SIZE,
    "--ulimit": (r"[a-z]{1,20}=-?[0-9]{1,19}(?::-?[0-9]{1,19})?", "NAME=SOFT or NAME=SOFT:HARD"),
    "--user": (r"root|[0-9]{1,10}(?::[0-9]{1,10})?", "root, or numbers as in 1000:1000"),
}

#: A release of ROCm, such as `7.1` or `7.1.1`.
RocmVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}$")]
#: A label of runners.
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Labels = Annotated[tuple[Label, ...], Field(strict=False, min_length=1, max_length=20)]
Minutes = Annotated[int, Field(ge=5, le=7200)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]
Count = Annotated[int, Field(ge=1, le=1000)]


def _by_digest(image: str) -> str:
    """Refuse an image that another may take the place of."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", image):
        raise ValueError(
            "name the image by its digest, as REGISTRY/NAME@sha256:…; "
            "`docker buildx imagetools inspect IMAGE` shows it"
        )
    return image


#: A container image by its digest.
Image = Annotated[str, StringConstraints(max_length=500), AfterValidator(_by_digest)]


def _harmless(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse all but the options that a container may be given, each with a value that it may have.

    A value may be the next word, so one word says nothing without the others.
    """
    words = iter(flags)
    for word in words:
        option, joined, value = word.partition("=")
        if option not in _OPTIONS:
            raise ValueError(f"{option} is not one of {', '.join(_OPTIONS)}: no other is taken")
        takes = _OPTIONS[option]
        if takes is None:
            if joined:
                raise ValueError(f"{option} takes no value")
            continue
        value = value if joined else next(words, "")
        pattern, meant = takes
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{option} {value or 'without a value'}: it takes {meant}")
    return flags


def _in_names_of_jobs(name: str) -> str:
    """Refuse a name that the name of a job, and of its artifact, cannot hold."""
    if "_" in name:
        raise ValueError("no underscore: the name becomes part of names of jobs; write a dash")
    return name


Flags = Annotated[tuple[str, ...], Field(strict=False, max_length=40), AfterValidator(_harmless)]


class RocmImage(Model):
    """A ROCm version that runners of a set offer.

    Attributes:
        version: The release.
        image: The container image, by digest.
        flags: Options of the container, of a short list.
    """

    version: RocmVersion
    image: Image
    flags: Flags = GPU_FLAGS


class RunnerSet(Model):
    """Runners with the same labels and the same GPU.

    Attributes:
        name: How people call it.
        target: Its GPU.
        labels: A job goes to a runner that has all of them.
        count: How many runners there are.
        minutes_limit: Minutes that one job may take.
        jobs_limit: Jobs that one runner gets in one run.
        cost: What an hour costs, in any unit; where several sets can run a cell, the
            cheapest gets it.
        rocm: What they offer.
    """

    name: Annotated[Name, StringConstraints(max_length=40), AfterValidator(_in_names_of_jobs)]
    target: GfxTarget
    labels: Labels
    count: Count = 1
    minutes_limit: Minutes = 120
    jobs_limit: Annotated[int, Field(ge=1, le=256)] = 32
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)] = 1.0
    rocm: Annotated[tuple[RocmImage, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _sound(self) -> RunnerSet:
        if self.name == HOSTED:
            raise ValueError(f"name: {HOSTED} is the set that compiles")
        for label in self.labels:
            if _GITHUBS.match(label):
                raise ValueError(
                    f"labels: {label} is a label of GitHub's runners, which have no GPU"
                )
        differ("rocm", [one.version for one in self.rocm])
        return self


class HostedImage(Model):
    """A ROCm version that hosted runners compile with.

    Attributes:
        version: The release.
        image: The development container, by digest.
        targets: What its compiler is used for.
    """

    version: RocmVersion
    image: Image
    targets: Annotated[tuple[GfxTarget, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _targetsdiffer(self) -> HostedImage:
        differ("targets", self.targets)
        return self


class Hosted(Model):
    """The runners that compile; they have no GPU.

    Attributes:
        labels: Their labels.
        count: Jobs that run at the same time (GitHub's free plan: 20).
        minutes_limit: Minutes that one job may take (GitHub's own runners: at most 360).
        rocm: What they compile with.
    """

    labels: Labels
    count: Count = 20
    minutes_limit: Annotated[int, Field(ge=5, le=360)] = 120
    rocm: Annotated[tuple[HostedImage, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _labelsmeet(self) -> Hosted:
        githubs = {label.casefold() for label in self.labels if _GITHUBS.match(label)}
        if len(githubs) > 1:
            raise ValueError(
                f"labels: no runner has all of {', '.join(sorted(githubs))}: each is another of "
                "GitHub's"
            )
        return self

    @model_validator(mode="after")
    def _versionsdiffer(self) -> Hosted:
        differ("rocm", [one.version for one in self.rocm])
        return self


class Runners(Model):
    """The content of `runners.toml`.

    Attributes:
        runners: Sets of runners with a GPU.
        hosted: What compiles; None: nothing does.
    """

    runners: Annotated[tuple[RunnerSet, ...], Field(strict=False, max_length=100)] = ()
    hosted: Hosted | None = None

    @model_validator(mode="after")
    def _setsdiffer(self) -> Runners:
        differ("runners", [one.name for one in self.runners])
        for one, other in combinations(self.runners, 2):
            both = [{label.casefold() for label in which.labels} for which in (one, other)]
            if both[0] == both[1]:
                raise ValueError(f"runners: {one.name} and {other.name} have the same labels")
            # A runner takes every job whose labels it has all of.
            inside = both[0] < both[1] or both[1] < both[0]
            if inside and one.target != other.target:
                raise ValueError(
                    f"runners: all labels of one of {one.name} and {other.name} are among those "
                    f"of the other, so that a job for {one.target} could land on {other.target}: "
                    "give each a label of its own"
                )
        hosted = {label.casefold() for label in self.hosted.labels} if self.hosted else {""}
        for one in self.runners:
            labels = {label.casefold() for label in one.labels}
            if hosted <= labels:
                raise ValueError(
                    f"hosted.labels: {one.name} has all of them, so that what compiles could land "
                    "on a machine with a GPU"
                )
            if labels < hosted:
                raise ValueError(
                    f"hosted.labels: all labels of {one.name} are among them, so that what needs "
                    "a GPU could land on a machine without one"
                )
        return self

    @property
    def versions(self) -> tuple[str, ...]:
        """Every ROCm version that is named, oldest first."""
        named = {one.version for each in self.runners for one in each.rocm}
        named |= {one.version for one in (self.hosted.rocm if self.hosted else ())}
        return tuple(sorted(named, key=version_key))


def version_key(version: str) -> tuple[int, ...]:
    """Return what puts versions in order."""
    return tuple(int(part) for part in version.split("."))


def is_version(wanted: str, seen: str) -> bool:
    """Say whether what a machine calls its ROCm is a version that was asked for."""
    return seen == wanted or seen.startswith((f"{wanted}.", f"{wanted}-"))


def differ(what: str, names: Sequence[str]) -> None:
    """Refuse a list in which a name stands twice."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ValueError(f"{what}: {twice[0]} is there twice")
