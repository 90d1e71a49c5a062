"""The runners of a queue, as `runners.toml` describes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from contribbot.errors import QueueError, UsageError
from contribbot.model.base import Model, form, refuse_twins
from contribbot.model.checks import GfxTarget
from contribbot.queue.load import did_you_mean, read_model

RUNNERS_FILE: Final = "runners.toml"
HOSTED: Final = "hosted"
#: Container options that give a job access to the GPU.
GPU_FLAGS: Final = ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video")


def _by_digest(image: str) -> str:
    """Refuse an image without a digest: a tag can move."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", image):
        raise ValueError(
            "name the image by its digest, as REGISTRY/NAME@sha256:…; "
            "`docker buildx imagetools inspect IMAGE` shows it"
        )
    return image


RocmVersion = Annotated[str, form(r"^[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}$", "a release such as 7.1")]
#: The kind of a job: code is compiled for a target, or runs on the target's GPU.
Kind = Literal["compile", "gpu"]
Label = Annotated[
    str, form(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "a label of letters, digits and . _ -")
]
Labels = Annotated[tuple[Label, ...], Field(strict=False, min_length=1, max_length=20)]
Image = Annotated[str, StringConstraints(max_length=500), AfterValidator(_by_digest)]
Flag = Annotated[str, form(r"^[A-Za-z0-9=:/._,-]{1,200}$", "a word of a container option")]
Flags = Annotated[tuple[Flag, ...], Field(strict=False, max_length=40)]


class RocmImage(Model):
    """A ROCm version, with the container image in which a set of GPU runners offers it."""

    version: RocmVersion
    image: Image
    flags: Flags = GPU_FLAGS


class HostedImage(Model):
    """A ROCm version, with the container image in which hosted runners compile for targets."""

    flags: ClassVar[tuple[str, ...]] = ()
    version: RocmVersion
    image: Image
    targets: Annotated[tuple[GfxTarget, ...], Field(strict=False, min_length=1)]


class RunnerSet(Model):
    """A set of runners with the same labels and the same GPU."""

    kind: ClassVar[Kind] = "gpu"
    name: Annotated[str, form(r"^[a-z0-9][a-z0-9.-]{0,39}$", "a short name without underscores")]
    target: GfxTarget
    labels: Labels
    minutes_limit: Annotated[int, Field(ge=5, le=7200)] = 120
    rocm: Annotated[tuple[RocmImage, ...], Field(strict=False, min_length=1)]

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """The targets and ROCm versions of the set."""
        return tuple((self.target, image.version) for image in self.rocm)

    @model_validator(mode="after")
    def _sound(self) -> RunnerSet:
        if self.name == HOSTED:
            raise ValueError(f"name: {HOSTED} is the set that compiles")
        refuse_twins("rocm", [image.version for image in self.rocm])
        return self


class Hosted(Model):
    """The set of runners that compile, without a GPU."""

    name: ClassVar[str] = HOSTED
    kind: ClassVar[Kind] = "compile"
    target: ClassVar[Literal[""]] = ""
    labels: Labels
    #: GitHub's own runners end a job after 360 minutes.
    minutes_limit: Annotated[int, Field(ge=5, le=360)] = 120
    rocm: Annotated[tuple[HostedImage, ...], Field(strict=False, min_length=1)]

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """The targets and ROCm versions of the set."""
        return tuple((target, image.version) for image in self.rocm for target in image.targets)

    @model_validator(mode="after")
    def _sound(self) -> Hosted:
        refuse_twins("rocm", [image.version for image in self.rocm])
        return self


class Runners(Model):
    """The content of `runners.toml`."""

    runners: Annotated[tuple[RunnerSet, ...], Field(strict=False, max_length=100)] = ()
    hosted: Hosted | None = None

    @model_validator(mode="after")
    def _sound(self) -> Runners:
        refuse_twins("runners", [each.name for each in self.runners])
        return self

    @property
    def sets(self) -> tuple[RunnerSet | Hosted, ...]:
        """All sets of runners: the hosted set first, then the sets with a GPU."""
        return (*((self.hosted,) if self.hosted else ()), *self.runners)

    @property
    def versions(self) -> tuple[str, ...]:
        """Every ROCm version of the file, oldest first."""
        versions = {version for each in self.sets for _, version in each.offers}
        return tuple(sorted(versions, key=lambda version: [*map(int, version.split("."))]))


def is_version(wanted: str, machine: str) -> bool:
    """Return whether the ROCm version of a machine is the wanted release."""
    return machine == wanted or machine.startswith((f"{wanted}.", f"{wanted}-"))


@dataclass(frozen=True)
class Fleet:
    """The runners of a queue, and the digest of `runners.toml`."""

    path: Path
    runners: Runners
    sha256: str


def load_fleet(folder: Path, *, needed: bool = True) -> Fleet:
    """Read a queue's `runners.toml`; a missing or empty file is an error only if `needed`."""
    path = folder / RUNNERS_FILE
    if not path.is_file():
        if not needed:
            return Fleet(path, Runners(), hashlib.sha256(b"").hexdigest())
        raise QueueError(f"{path}: no such file", hint="write it as docs/runners.md shows")
    runners = read_model(path, Runners)
    if needed and not runners.sets:
        raise QueueError(
            f"{path}: it names no runners", hint="add a [[runners]] or a [hosted] table"
        )
    return Fleet(path, runners, hashlib.sha256(path.read_bytes()).hexdigest())


def restricted(fleet: Fleet, names: Sequence[str]) -> Runners:
    """Return the runners that match any of the names: of a set, target or label; no names: all."""
    runners = fleet.runners
    if not names:
        return runners
    words = {
        each.name: {each.name.casefold(), each.target, *map(str.casefold, each.labels)} - {""}
        for each in runners.sets
    }
    for name in names:
        known = set[str]().union(*words.values())
        if name.casefold() not in known:
            near = did_you_mean(name.casefold(), known)
            raise UsageError(
                f"--on {name}: no set of {fleet.path} has this name, target or label{near}",
                hint=f"it has {', '.join(words)}",
            )
    wanted = {name.casefold() for name in names}
    chosen = {name for name, own in words.items() if own & wanted}
    return Runners(
        runners=tuple(each for each in runners.runners if each.name in chosen),
        hosted=runners.hosted if HOSTED in chosen else None,
    )
