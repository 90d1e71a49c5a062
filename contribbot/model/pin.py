"""Models of upstreams, pins, and the sources of a pin's tree."""

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
