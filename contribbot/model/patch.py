"""Patches, their checks, and the queue that holds them."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from contribbot.model.base import Line, Model, Name, Names, Pattern, Prose, Tag, TreePaths
from contribbot.model.pin import Pin, Upstream

#: What a check needs: hardware (`cpu`, `cuda`, a gfx target) or an importable module.
Requirement = Annotated[
    str,
    StringConstraints(
        pattern=r"^(cpu|cuda|gfx[0-9a-f]{3,5}|python:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)$"
    ),
]
#: A pytest file directly inside `checks/`.
CheckFile = Annotated[str, StringConstraints(pattern=r"^test_[A-Za-z0-9_]+\.py$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableValue = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
#: `owner/name#number`.
Reference = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+#[1-9][0-9]*$")]

#: A failure of no particular kind; a stated reason must tell itself from it.
_NO_REASON: Final = "Error: x"
Expectation = Literal["fail-to-pass", "pass-to-pass"]


class Check(Model):
    """A pytest file of a patch, run on the base tree and on the patched tree.

    Attributes:
        name: How outcomes call it.
        file: The file in `checks/`.
        expect: `fail-to-pass`: every test fails on the base for the stated
            reason and passes on the patched tree. `pass-to-pass`: every test
            passes on both.
        reason: Regular expression, searched in `ExceptionType: message` of each
            failure on the base. Only for fail-to-pass, and required there.
        requires: What must be there for it to run.
        timeout: Seconds that one run may take.
        env: Environment variables for it.
    """

    name: Name
    file: CheckFile
    expect: Expectation
    reason: Pattern = ""
    requires: Annotated[tuple[Requirement, ...], Field(strict=False, min_length=1)] = ("cpu",)
    timeout: float = Field(default=120.0, gt=0, le=86_400, strict=False)
    env: dict[VariableName, VariableValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _reason_fits(self) -> Check:
        if self.expect == "pass-to-pass":
            if self.reason:
                raise ValueError("reason: only a fail-to-pass check states why the base fails")
            return self
        if not self.reason:
            raise ValueError("reason: a fail-to-pass check must state why the base fails")
        if re.search(self.reason, "") or re.search(self.reason, _NO_REASON):
            raise ValueError("reason: matches every failure, so it states no reason")
        return self

    @model_validator(mode="after")
    def _one_target(self) -> Check:
        hardware = [need for need in self.requires if not need.startswith("python:")]
        if len(hardware) != 1:
            raise ValueError("requires: name exactly one of cpu, cuda or a gfx target")
        return self

    @property
    def target(self) -> str:
        """The hardware that it runs on: `cpu`, `cuda` or a gfx target."""
        return next(need for need in self.requires if not need.startswith("python:"))

    @property
    def modules(self) -> tuple[str, ...]:
        """The Python modules that must be importable."""
        return tuple(need[7:] for need in self.requires if need.startswith("python:"))


class Expiry(Model):
    """A condition under which a patch is no longer needed. Exactly one is given.

    Attributes:
        release: The upstream's release that carries the change.
        dependency: A requirement (PEP 508) that, once met, makes it unnecessary.
        pull_request: The upstream PR that replaces it.
    """

    release: Tag | None = None
    dependency: Line | None = None
    pull_request: Reference | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Expiry:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of release, dependency and pull_request")
        return self


class PatchSpec(Model):
    """The content of a `patch.toml`.

    Attributes:
        title: The title of the pull request.
        upstream: Which upstream.
        pin: The tag of the pin that it stands on.
        depends_on: Patches that must be applied below it.
        files: Every path that it may touch.
        related: Issues and pull requests that a reader should know.
        problem: What is wrong (Markdown).
        root_cause: Why (Markdown).
        solution: What the patch does about it (Markdown).
        expires_when: Conditions of which any makes it unnecessary.
        checks: What proves it.
    """

    title: Line
    upstream: Name
    pin: Tag
    depends_on: Names = ()
    files: Annotated[TreePaths, Field(min_length=1)]
    related: Annotated[tuple[Reference, ...], Field(strict=False)] = ()
    problem: Prose
    root_cause: Prose
    solution: Prose
    expires_when: Annotated[tuple[Expiry, ...], Field(strict=False)] = ()
    checks: Annotated[tuple[Check, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _checks_differ(self) -> PatchSpec:
        for field in ("name", "file"):
            seen: set[str] = set()
            for check in self.checks:
                value: str = getattr(check, field)
                if value in seen:
                    raise ValueError(f"checks: two checks have the {field} {value}")
                seen.add(value)
        return self


class QueueSpec(Model):
    """The content of `queue.toml`.

    Attributes:
        order: The patches, in the order in which they are applied and shown.
        pins: The bases that they stand on; several per upstream are allowed.
    """

    order: Names
    pins: Annotated[tuple[Pin, ...], Field(strict=False)]

    @model_validator(mode="after")
    def _unique(self) -> QueueSpec:
        titles = [pin.title for pin in self.pins]
        for what, names in (("pins", titles), ("order", list(self.order))):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what}: {twice[0]} is there twice")
        return self


@dataclass(frozen=True)
class PatchFile:
    """One `NNNN-*.patch`, as bytes: upstream's content need not be UTF-8.

    Attributes:
        name: File name.
        content: Its bytes.
    """

    name: str
    content: bytes


@dataclass(frozen=True)
class Patch:
    """A patch of the queue with all that it consists of.

    Attributes:
        name: Its folder's name.
        folder: Where it lies.
        spec: Its `patch.toml`.
        pin: The pin that it stands on.
        upstream: The upstream that it goes to.
        files: Its `NNNN-*.patch` files, in order.
        support: The files of `checks/` (checks and what they import), by relative path.
    """

    name: str
    folder: Path
    spec: PatchSpec
    pin: Pin
    upstream: Upstream
    files: tuple[PatchFile, ...]
    support: tuple[PatchFile, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of the patch files, in hexadecimal."""
        return digest_of(self.files)

    @property
    def checks_digest(self) -> str:
        """SHA-256 over the check files and what `patch.toml` says of the checks."""
        stated = "\n".join(check.model_dump_json() for check in self.spec.checks)
        return digest_of((*self.support, PatchFile("patch.toml:checks", stated.encode())))


def digest_of(files: tuple[PatchFile, ...]) -> str:
    """Return the SHA-256 over names and contents, in hexadecimal.

    Names and contents go in by their own digests, so that no two different sets
    of files can give the same bytes.
    """
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(os.fsencode(file.name)).digest())
        total.update(hashlib.sha256(file.content).digest())
    return total.hexdigest()
