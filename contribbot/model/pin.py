"""Upstreams, pins and the sources that can provide a pinned tree."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from contribbot.model.base import (
    Line,
    Lines,
    Loose,
    Many,
    Model,
    Name,
    ObjectId,
    Pattern,
    Sha256,
    Some,
    Tag,
    TreePath,
    TreePaths,
    form,
)
from contribbot.model.checks import Environment, Seconds, Target, Version

#: The names that a build's recipe has in braces.
PLACEHOLDERS: Final = ("tree", "python", "jobs", "target", "version")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class HipifyRecipe(Model):
    """The upstream's own hipify step, given the sources' paths after the other arguments."""

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
    """How the upstream's HIP sources are compiled."""

    include: TreePaths = ()
    defines: Lines = ()
    standard: Annotated[str, form(r"^(?:c|gnu)\+\+\d\d$", "a standard such as c++20")] = "c++20"
    torch: bool = False


class BuildRecipe(Model):
    """The upstream's own way to build all of itself; `{tree}` and the like are filled in."""

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

#: The placeholder of the release in the pattern of a tag, and the characters around the release.
_VERSION: Final = "{version}"
_TAG_AROUND: Final = re.compile(r"[A-Za-z0-9._+-]*")
#: The file names by which pytest recognizes tests.
_TEST_NAME: Final = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")


class SdistSource(Model):
    """A release's source archive, from the package index that pip is configured for."""

    kind: Literal["sdist"]
    distribution: Distribution
    version: Version
    sha256: Sha256
    root: TreePath | Literal[""] = ""


class WheelSource(Model):
    """The Python files of a release's wheel, from the package index that pip is configured for."""

    kind: Literal["wheel"]
    distribution: Distribution
    version: Version
    sha256: Sha256
    tags: WheelTags = "py3-none-any"
    packages: Annotated[TreePaths, Field(min_length=1)]
    root: TreePath | Literal[""] = ""


class GitSource(Model):
    """A tag or commit of a git repository, fetched shallow."""

    kind: Literal["git"]
    remote: Line | Literal[""] = ""


class InstalledSource(Model):
    """The Python files of an installed distribution, each checked against its RECORD."""

    kind: Literal["installed"]
    distribution: Distribution
    version: Version
    packages: Annotated[TreePaths, Field(min_length=1)]


#: Sources that are files on a package index.
ReleaseSource = SdistSource | WheelSource
SourceSpec = Annotated[
    SdistSource | WheelSource | GitSource | InstalledSource, Field(discriminator="kind")
]

#: The kinds of sources, which pydantic puts into the location of an error.
SOURCE_KINDS: Final = frozenset({"sdist", "wheel", "git", "installed"})


class PinnedToolchain(Model):
    """A release of Triton that a pin ships, and the source of this fact."""

    triton: Version
    source: Line
    date: Day


class Pin(Model):
    """The exact base of patches."""

    upstream: Name
    tag: Tag
    commit: ObjectId | None = None
    sources: Some[SourceSpec]
    #: The Tritons of the pin; not in the pin's digest, since a record names its own Triton.
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
        """The upstream and the tag: `sglang v0.5.10.post1`."""
        return f"{self.upstream} {self.tag}"


class CommitRules(Model):
    """An upstream's rules for commits."""

    sign_off: bool = False
    subject_pattern: Pattern = ""
    subject_max: int = Field(default=0, ge=0, le=200)


def _names_the_version(tag: str) -> str:
    """Refuse a pattern of tags that does not have exactly one version in it."""
    if tag.count(_VERSION) != 1:
        raise ValueError(f"a tag's pattern holds {_VERSION} once")
    if not _TAG_AROUND.fullmatch(tag.replace(_VERSION, "", 1)):
        raise ValueError(f"around {_VERSION} a tag has letters, digits and . _ + - only")
    return tag


class ReleaseRecipe(Model):
    """The package index entry of an upstream's releases, and the folders that the releases hold."""

    distribution: Distribution
    tag: Annotated[str, AfterValidator(_names_the_version)] = "v{version}"
    root: TreePath | Literal[""] = ""
    packages: TreePaths = ()
    wheel_root: TreePath | Literal[""] | None = None
    generated: TreePaths = ()

    def tag_of(self, version: str) -> str:
        """Return the tag of a release."""
        return self.tag.replace(_VERSION, version)

    def version_of(self, tag: str) -> str | None:
        """Return the release that a tag names; None where tags do not look like this."""
        before, after = map(re.escape, self.tag.split(_VERSION))
        release = re.fullmatch(f"{before}(.+){after}", tag)
        return release[1] if release else None


class Upstream(Model):
    """A project that patches go to."""

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
        """Return whether a file of the tree is a test, by its folder or by its file name."""
        return path.startswith(tuple(f"{folder}/" for folder in self.tests)) or bool(
            _TEST_NAME.search(path)
        )
