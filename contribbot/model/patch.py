"""Models of a queue's files: upstreams, pins, patch.toml, queue.toml; a patch with its files."""

from __future__ import annotations

import hashlib
import operator
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from contribbot.model.base import (
    Line,
    Lines,
    Loose,
    Many,
    Model,
    Name,
    Names,
    ObjectId,
    Pattern,
    Prose,
    Sha256,
    Some,
    Tag,
    TreePath,
    TreePaths,
    form,
    refuse_twins,
)
from contribbot.model.checks import (
    EMULATED,
    Bench,
    Build,
    Check,
    Compile,
    Emulated,
    EmulatedCheck,
    Environment,
    Hipify,
    Numerics,
    Seconds,
    Target,
    Version,
)

#: The names in braces that a build recipe may use.
PLACEHOLDERS: Final = ("tree", "python", "jobs", "target", "version")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class HipifyRecipe(Model):
    """An upstream's hipify step: a script that gets `arguments` and the sources' paths."""

    script: TreePath
    arguments: Lines = ("-p", "{project}", "-o", "{output}")
    build_file: TreePath | Literal[""] = ""
    in_tree: Pattern = ""
    project: TreePath
    suffixes: Many[Line] = (".cu",)
    cuda_sources: Many[Pattern] = ()
    renames: Many[Loose[tuple[Pattern, str]]] = ()
    module: Line = "torch.utils.hipify.hipify_python"
    timeout: Seconds = 120.0


class CompileRecipe(Model):
    """The options with which an upstream's HIP sources are compiled."""

    include: TreePaths = ()
    defines: Lines = ()
    standard: Annotated[str, form(r"^(?:c|gnu)\+\+\d\d$", "a standard such as c++20")] = "c++20"
    torch: bool = False


class BuildRecipe(Model):
    """An upstream's commands to build its whole tree; `{tree}` and the like are replaced."""

    targets: Some[Target]
    folder: TreePath | Literal["."] = "."
    commands: Some[Some[Line]]
    env: Environment = Field(default_factory=dict)
    requires: Lines = ()
    needs: TreePaths = ()
    python: Many[TreePath | Literal["."]] = (".",)
    extension: TreePath | Literal[""] = ""
    discard: TreePaths = ()
    takes: Line | Literal[""] = ""
    timeout: Seconds = 7200.0

    @model_validator(mode="after")
    def _known_placeholders(self) -> BuildRecipe:
        for text in (*(word for argv in self.commands for word in argv), *self.env.values()):
            for name in _PLACEHOLDER.findall(text):
                if name not in PLACEHOLDERS:
                    raise ValueError(f"{{{name}}}: not one of {', '.join(PLACEHOLDERS)}")
        return self


#: The name of a distribution on a package index (PyPA name specification).
Distribution = Annotated[
    str, form(r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$", "the name of a distribution")
]
Day = Annotated[str, form(r"^\d{4}-\d\d-\d\d$", "a day such as 2026-11-29")]
#: The Python, ABI and platform tags in a wheel's file name.
WheelTags = Annotated[
    str, form(r"^[A-Za-z0-9._]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+$", "tags such as py3-none-any")
]

#: The placeholder for the version in a tag's pattern, and the text allowed around the version.
_VERSION: Final = "{version}"
_TAG_AROUND: Final = re.compile(r"[A-Za-z0-9._+-]*")
#: A pattern of paths that pytest collects as tests, or of `conftest.py`.
_TEST_NAME: Final = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")


class SdistSource(Model):
    """A release's source archive on pip's package indexes."""

    kind: Literal["sdist"]
    distribution: Distribution
    version: Version
    sha256: Sha256
    root: TreePath | Literal[""] = ""


class WheelSource(Model):
    """The Python files of a release's wheel on pip's package indexes."""

    kind: Literal["wheel"]
    distribution: Distribution
    version: Version
    sha256: Sha256
    tags: WheelTags = "py3-none-any"
    packages: Annotated[TreePaths, Field(min_length=1)]
    root: TreePath | Literal[""] = ""


class GitSource(Model):
    """A tag or commit of a git repository, fetched without history."""

    kind: Literal["git"]
    remote: Line | Literal[""] = ""


class InstalledSource(Model):
    """The Python files of an installed distribution, each checked against its RECORD."""

    kind: Literal["installed"]
    distribution: Distribution
    version: Version
    packages: Annotated[TreePaths, Field(min_length=1)]


#: A source that is a file on a package index.
ReleaseSource = SdistSource | WheelSource
SourceSpec = Annotated[
    SdistSource | WheelSource | GitSource | InstalledSource, Field(discriminator="kind")
]

#: The kinds of sources, which pydantic adds to the location of an error.
SOURCE_KINDS: Final = frozenset({"sdist", "wheel", "git", "installed"})


class PinnedToolchain(Model):
    """A release of Triton that belongs to a pin, and where that is stated."""

    triton: Version
    source: Line
    date: Day


class Pin(Model):
    """An upstream's tag or commit on which patches are based, and sources for the tree."""

    upstream: Name
    tag: Tag
    commit: ObjectId | None = None
    sources: Some[SourceSpec]
    #: Releases of Triton for the pin; not in the pin's digest, as a record names its Triton.
    toolchains: Many[PinnedToolchain] = Field(default=(), exclude=True)

    @model_validator(mode="after")
    def _of_one_release(self) -> Pin:
        for source in self.sources:
            version = None if isinstance(source, GitSource) else source.version
            if version is not None and version.partition("+")[0] not in self.tag:
                raise ValueError(f"tag {self.tag} does not name {source.kind} version {version}")
        return self

    @property
    def title(self) -> str:
        """The upstream and the tag, such as `sglang v0.5.10.post1`."""
        return f"{self.upstream} {self.tag}"


class CommitRules(Model):
    """An upstream's rules for commit messages."""

    sign_off: bool = False
    subject_pattern: Pattern = ""
    subject_max: int = Field(default=0, ge=0, le=200)


def _names_the_version(tag: str) -> str:
    """Raise ValueError for a pattern of tags without exactly one `{version}`."""
    if tag.count(_VERSION) != 1:
        raise ValueError(f"a tag's pattern holds {_VERSION} once")
    if not _TAG_AROUND.fullmatch(tag.replace(_VERSION, "", 1)):
        raise ValueError(f"around {_VERSION} a tag has letters, digits and . _ + - only")
    return tag


class ReleaseRecipe(Model):
    """The distribution and the tags of an upstream's releases, and folders in the releases."""

    distribution: Distribution
    tag: Annotated[str, AfterValidator(_names_the_version)] = "v{version}"
    root: TreePath | Literal[""] = ""
    packages: TreePaths = ()
    wheel_root: TreePath | Literal[""] | None = None
    generated: TreePaths = ()

    def tag_of(self, version: str) -> str:
        """Return the tag for a release's version."""
        return self.tag.replace(_VERSION, version)

    def version_of(self, tag: str) -> str | None:
        """Return the version that a tag names; None: the tag does not match the pattern."""
        before, after = map(re.escape, self.tag.split(_VERSION))
        release = re.fullmatch(f"{before}(.+){after}", tag)
        return release[1] if release else None


class Upstream(Model):
    """A project to which patches are proposed, and how its tree is laid out and built."""

    name: Name
    repository: Annotated[str, form(r"^[\w.-]+/[\w.-]+$", "OWNER/REPOSITORY")]
    python_roots: Many[TreePath | Literal["."]] = (".",)
    tests: TreePaths = ()
    commits: CommitRules = CommitRules()
    overlay: TreePaths = ()
    hipify: HipifyRecipe | None = None
    compile: CompileRecipe = CompileRecipe()
    build: BuildRecipe | None = None
    release: ReleaseRecipe | None = Field(default=None, exclude=True)

    def is_test(self, path: str) -> bool:
        """Return whether a path of the tree is a test, by folder or by file name."""
        return path.startswith(tuple(f"{folder}/" for folder in self.tests)) or bool(
            _TEST_NAME.search(path)
        )


def _no_lock(name: str) -> str:
    """Return a branch's name; raise ValueError if a part ends with `.lock`, which git refuses."""
    if any(part.endswith(".lock") for part in name.split("/")):
        raise ValueError("no part of a branch's name may end with .lock")
    return name


#: An issue or pull request on GitHub, such as `ROCm/aiter#42`.
Reference = Annotated[str, form(r"^[\w.-]+/[\w.-]+#[1-9][0-9]*$", "OWNER/REPOSITORY#NUMBER")]
#: A branch's name that is valid in git (git-check-ref-format) and needs no escape in a URL.
BranchName = Annotated[
    str,
    form(
        r"^[A-Za-z0-9_][A-Za-z0-9_-]*(?:[./][A-Za-z0-9_][A-Za-z0-9_-]*)*$",
        "a branch's name of letters, digits and . _ / -",
        max_length=200,
    ),
    AfterValidator(_no_lock),
]
#: A web address that is a link in Markdown without escapes.
Address = Annotated[
    str,
    form(
        r"^https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._~%+:=-]+)*/?$",
        "an address that begins with https://, without ? and #",
        max_length=400,
    ),
]
#: The keys of `patch.toml` with the entries that prove the patch.
PROOF: Final = ("checks", "hipify", "compile", "build", "numerics", "bench", "emulated")
#: The first word of a hint in a new patch, in place of text that a person must write.
TODO: Final = "TODO: "


class Expiry(Model):
    """A condition under which a patch is no longer needed; exactly one of its fields is set."""

    release: Tag | None = None
    pull_request: Reference | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Expiry:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of release and pull_request")
        return self


class Person(Model):
    """The person who answers for a contribution, and the command and record they rely on."""

    name: Line
    email: Line
    ran: Line
    record: TreePath


class Contribution(Model):
    """The texts for a pull request; changes of this table make no record outdated."""

    issue: Reference | None = None
    branch: BranchName | None = None
    labels: Lines = ()
    docs: Prose | Literal[""] = ""
    ai: Prose | Literal[""] = ""
    words: Prose | Literal[""] = ""
    breaking: Prose | Literal[""] = ""
    different: dict[Reference, Prose] = Field(default_factory=dict)
    # Empty keys of later releases are left out, so that the digest in attestations stays.
    records: Address | Literal[""] = Field(default="", exclude_if=operator.not_)
    model_evaluation: Prose | Literal[""] = Field(default="", exclude_if=operator.not_)
    summary: Prose | Literal[""] = Field(default="", exclude_if=operator.not_)
    claims: Many[Prose] = Field(default=(), exclude_if=operator.not_)
    # By entry: the test of the upstream that the entry runs, such as `tests/test_it.py::test_it`.
    tests: dict[Name, Line] = Field(default_factory=dict, exclude_if=operator.not_)
    # A script by which a maintainer can see the fault without contribbot.
    reproducer: Prose | Literal[""] = Field(default="", exclude_if=operator.not_)
    person: Person | None = Field(default=None, exclude_if=operator.not_)

    @property
    def documents(self) -> bool:
        """Whether `docs` names documents, rather than saying that none are needed."""
        return bool(self.docs) and not re.match(r"none needed\b", self.docs.strip(), re.IGNORECASE)


class PatchSpec(Model):
    """The content of a `patch.toml`; an unfinished patch may lack files, prose and proof."""

    title: Line
    upstream: Name
    pin: Tag
    depends_on: Names = ()
    files: TreePaths = ()
    related: Many[Reference] = ()
    # Another person's pull request with these commits, so that the patch must not be proposed.
    pull: Reference | None = Field(default=None, exclude_if=operator.not_)
    # Another person's issue, which checks without a change reproduce or show to be fixed.
    reproduces: Reference | None = Field(default=None, exclude_if=operator.not_)
    problem: Prose | Literal[""] = ""
    root_cause: Prose | Literal[""] = ""
    solution: Prose | Literal[""] = ""
    expires_when: Many[Expiry] = ()
    # Why the patch stays although its upstream has the change; not in the digest of checks.
    kept: Prose | Literal[""] = Field(default="", exclude_if=operator.not_)
    # Where the upstream turned the change down, and why; not in the digest of checks.
    turned_down: Prose | Literal[""] = Field(default="", exclude_if=operator.not_)
    checks: Many[Check] = ()
    hipify: Hipify | None = None
    compile: Many[Compile] = ()
    build: Many[Build] = ()
    numerics: Many[Numerics] = ()
    bench: Many[Bench] = ()
    # Left out if empty, so that the digest of checks stays as before this key.
    emulated: Many[Emulated] = Field(default=(), exclude_if=operator.not_)
    contribution: Contribution = Contribution()

    @property
    def entries(self) -> dict[str, Sequence[Check | Compile | Build | Bench | Emulated]]:
        """The entries that have names, by their table in `patch.toml`, in the order of stages."""
        return {
            "compile": self.compile,
            "build": self.build,
            "checks": self.checks,
            "numerics": self.numerics,
            "emulated": self.emulated,
            "bench": self.bench,
        }

    @model_validator(mode="after")
    def _names_differ(self) -> PatchSpec:
        for table, entries in self.entries.items():
            refuse_twins(table, [entry.name for entry in entries])
        files = [entry.file for entry in (*self.checks, *self.numerics)]
        refuse_twins("checks" if self.checks else "numerics", files)
        return self

    @model_validator(mode="after")
    def _named_entries_exist(self) -> PatchSpec:
        builds = {build.name: build for build in self.build}
        users: tuple[Check | Bench, ...] = (*self.checks, *self.numerics, *self.bench)
        for name, build in ((user.name, user.build) for user in users if user.build):
            if build not in builds:
                raise ValueError(f"{name}: build names {build}, and there is no such build")
            if builds[build].expect == "fail-to-pass":
                raise ValueError(
                    f"{name}: the build {build} fails on the base, which leaves nothing to load"
                    " there"
                )
        codes = {entry.name: entry for entry in self.compile}
        for entry in self.emulated:
            name, code = f"emulated: {entry.name}", entry.compile
            if code and code not in codes:
                raise ValueError(f"{name}: compile names {code}, and there is no such [[compile]]")
            for target in entry.targets if code else ():
                if target not in codes[code].targets:
                    raise ValueError(f"{name}: {target} is not among the targets of {code}")
        return self

    def runs(self) -> tuple[Check | Bench | Emulated, ...]:
        """Return the entries that run a file in `checks/`."""
        return (*self.checks, *self.numerics, *self.bench, *self.emulated)

    @property
    def theirs(self) -> str:
        """The other person's pull request or issue that the patch is about; empty: none."""
        return self.pull or self.reproduces or ""

    @property
    def units(self) -> tuple[tuple[str, str, str], ...]:
        """Stage, name and target of each entry for each of its targets."""
        stages = {"checks": "reproduce", "emulated": "emulate"}
        return tuple(
            (
                stages.get(table, table),
                entry.name,
                f"{EMULATED}{target}" if table == "emulated" else target,
            )
            for table, entries in self.entries.items()
            for entry in entries
            for target in entry.targets
        )

    @property
    def unproved(self) -> bool:
        """Whether the patch has no entry that could prove the patch."""
        proving = any(entries for table, entries in self.entries.items() if table != "bench")
        return not (proving or self.hipify or any(bench.at_least > 1 for bench in self.bench))

    @property
    def only_holds(self) -> bool:
        """Whether no check, compile, build or emulated entry states that the base fails."""
        entries = (*self.checks, *self.compile, *self.build, *self.emulated)
        return all(entry.expect == "pass-to-pass" for entry in entries)

    @property
    def unwritten(self) -> tuple[str, ...]:
        """The keys of texts that are missing or still have the hint of a new patch."""
        texts = {key: str(getattr(self, key)) for key in ("problem", "root_cause", "solution")}
        return tuple(
            key for key, text in texts.items() if not text or text.lstrip().startswith(TODO)
        )

    def needed_files(self) -> Iterator[tuple[str, str]]:
        """Yield words for each entry that needs a file in `checks/`, and the file's name."""
        for entry in self.runs():
            yield f"the check {entry.name}", entry.file
        for build in self.build:
            if build.binding:
                yield f"the build {build.name}", build.binding


class QueueSpec(Model):
    """The content of `queue.toml`."""

    order: Names
    pins: Many[Pin] = ()

    @model_validator(mode="after")
    def _unique(self) -> QueueSpec:
        refuse_twins("pins", [pin.title for pin in self.pins])
        refuse_twins("order", self.order)
        return self


@dataclass(frozen=True)
class PatchFile:
    """The name and bytes of a patch file or check file; a patch need not be UTF-8."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Patch:
    """A patch of a queue: its `patch.toml`, pin, patch files and check files."""

    name: str
    folder: Path
    spec: PatchSpec
    pin: Pin
    upstream: Upstream
    files: tuple[PatchFile, ...]
    support: tuple[PatchFile, ...]
    #: The paths that the patch touches, as listed in patch.toml or else in the diffs.
    paths: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the patch files' names and contents, in hexadecimal."""
        return digest_of(self.files)

    @cached_property
    def checks_digest(self) -> str:
        """The SHA-256 of the check files and the proving entries in `patch.toml`."""
        stated = self.spec.model_dump_json(include={"files", *PROOF})
        return digest_of((*self.support, PatchFile("patch.toml:checks", stated.encode())))

    def triton_for(self, entry: Compile | EmulatedCheck) -> str:
        """Return the release of Triton for an entry; empty: neither entry nor pin states one."""
        if isinstance(entry, Compile) and entry.kind == "hip":
            return ""
        return entry.triton or next((each.triton for each in self.pin.toolchains), "")

    def files_for(self, entry: Check | Bench) -> tuple[PatchFile, ...]:
        """Return the files in `checks/` that an entry's run gets, without other entries' files."""
        # Another entry's file is included if an included file has its name, as in an import.
        others = {other.file for other in self.spec.runs()} - {entry.file}
        while True:
            files = tuple(file for file in self.support if file.name not in others)
            named = {
                name
                for name in others
                if any(name.removesuffix(".py").encode() in file.content for file in files)
            }
            if not named:
                return files
            others -= named


def units_of(patch: Patch) -> tuple[tuple[str, str, str], ...]:
    """Return stage, label and target of each part of a patch's verification."""
    hipified = patch.upstream.hipify is not None or patch.spec.hipify is not None
    return (
        ("source", "", "any"),
        ("apply", "", "any"),
        ("style", "", "any"),
        *((("hipify", "", "any"),) if hipified else ()),
        *patch.spec.units,
    )


def digest_of(files: tuple[PatchFile, ...]) -> str:
    """Return the SHA-256 of files' names and contents, in hexadecimal."""
    # Hash each name and content first, so that different files cannot give the same bytes.
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(os.fsencode(file.name)).digest())
        total.update(hashlib.sha256(file.content).digest())
    return total.hexdigest()
