"""What an upstream asks of a contribution, as data that a user can edit.

None of it is part of an `Upstream`: that goes into the digests of evidence, and a new
label or another wording of a template proves nothing less.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from contribbot.model.base import Line, Lines, Model, Name, Pattern, Prose, TreePath, TreePaths

#: What GitHub takes as the text of a pull request or of a comment, in characters.
GITHUB_LIMIT: Final = 65_536
#: A target as `verify --require` names it: `cpu`, `gfx942`, `compile:gfx90a`.
Need = Annotated[
    str, StringConstraints(pattern=r"^(?:(?:compile|build):)?(?:cpu|cuda|gfx[0-9a-f]{3,5})$")
]
Needs = Annotated[tuple[Need, ...], Field(strict=False)]
#: The version of a template: the release or the short commit that it was read at.
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=40)]
#: What makes the content of a section; `contribute/text/sections.py` has one function each.
Block = Literal[
    "words", "problem", "cause", "solution", "related", "issue", "claims", "commands", "tests",
    "numerics", "compile", "witness", "speed", "grid", "evaluation", "duplicates", "breaking",
    "ai", "checklist", "records", "docs", "waits",
]  # fmt: skip
Blocks = Annotated[tuple[Block, ...], Field(strict=False)]
#: What ticks an item of a checklist. `person`: nobody but the one who opens the pull request.
Tick = Literal["ai", "tests", "benchmarks", "docs", "person"]


class Question(Model):
    """Something that a person must answer before a pull request is opened.

    Attributes:
        name: What the answer is kept under.
        text: The question.
        answer: `yes`: nothing but yes will do; `text`: in the person's own words.
    """

    name: Name
    text: Line
    answer: Literal["yes", "text"] = "yes"


class CiRules(Model):
    """How an upstream's CI is started and read.

    Attributes:
        start: What a person does to start it, in words.
        targets: For each target, what the names of its CI jobs look like.
        current: Whether the branch must not be behind its base.
    """

    start: Prose = "It starts by itself."
    targets: dict[Need, Pattern] = Field(default_factory=dict)
    current: bool = False


class AiRules(Model):
    """What must be said of machine-written work.

    Attributes:
        disclosed: Whether the text of the pull request must say that AI was used.
        contained: Whether machine-written text stands under a heading that says so, apart
            from the person's own words, which must be there.
        trailer: A regular expression; where AI was used, a trailer of each commit must match
            it. Empty: no such rule.
    """

    disclosed: bool = False
    contained: bool = False
    trailer: Pattern = ""


class BodyRules(Model):
    """How the text of a pull request is made.

    Attributes:
        template: The version of the template that is in force.
        live: Where the template lies in the upstream's repository.
        budget: Characters that the text should keep within. Long lists become counts
            until it does.
        duplicates: Whether the text says that no duplicate was found, where none was; why it
            is different from those that were is said in any case.
    """

    template: Version
    live: TreePath
    budget: Annotated[int, Field(ge=500, le=GITHUB_LIMIT)] = 10_000
    duplicates: bool = False

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked(
        self, dump: SerializerFunctionWrapHandler
    ) -> dict[str, JsonValue]:
        """Leave a later key out where it asks nothing: attestations are bound to the digest."""
        fields: dict[str, JsonValue] = dump(self)
        if not self.duplicates:
            fields.pop("duplicates", None)
        return fields


class Rules(Model):
    """What an upstream asks of a pull request.

    Attributes:
        upstream: The upstream.
        source: Where these rules were read, and when.
        title: A regular expression that the title must match, or empty.
        title_hint: How a title looks, for the message.
        sign_off: Whether each commit needs a `Signed-off-by` of its author.
        issue: Whether a pull request must name the issue that it fixes.
        issue_first: Whether the issue is opened and discussed before the pull request.
        tests: Folders of which one must hold a test that the pull request touches. None: no
            such rule.
        require: Targets that must be proved, beside those that the person asks for.
        targets: Hardware that the text always speaks of: what did not run there is said.
        open_prs: Open pull requests that an author without write access may have; 0: any number.
        labels: Labels that the pull request should have.
        label_hint: Labels that a person must choose, in words; or empty.
        lint: The command that checks style, for a person to run.
        questions: What the person is asked.
        ci: Its CI.
        ai: What is said of machine-written work.
        body: The text of the pull request.
    """

    upstream: Name
    source: Prose
    title: Pattern = ""
    title_hint: Line | Literal[""] = ""
    sign_off: bool = False
    issue: Literal["required", "optional"] = "optional"
    issue_first: bool = False
    tests: TreePaths = ()
    require: Needs = ()
    targets: Needs = ()
    open_prs: Annotated[int, Field(ge=0)] = 0
    labels: Lines = ()
    label_hint: Line | Literal[""] = ""
    lint: Line | Literal[""] = ""
    questions: Annotated[tuple[Question, ...], Field(strict=False, min_length=1)]
    ci: CiRules = CiRules()
    ai: AiRules = AiRules()
    body: BodyRules

    @model_validator(mode="after")
    def _questions_differ(self) -> Rules:
        names = [one.name for one in self.questions]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"questions: two have the name {twice[0]}")
        return self


class Item(Model):
    """An item of a checklist.

    Attributes:
        text: What it says (Markdown).
        tick: What ticks it. Only what is known is ticked.
    """

    text: Line
    tick: Tick = "person"


class Section(Model):
    """A section of a template.

    Attributes:
        heading: The upstream's heading, with its number signs; or empty.
        text: Fixed words at its start (Markdown).
        blocks: What follows, in this order.
        summary: The title of what is folded away.
        folded: What is folded away under it.
        items: Its checklist, for the block `checklist`.
    """

    heading: Annotated[str, StringConstraints(pattern=r"^(?:#{1,6} \S[^\x00-\x1f]*)?$")] = ""
    text: Prose | Literal[""] = ""
    blocks: Blocks = ()
    summary: Line | Literal[""] = ""
    folded: Blocks = ()
    items: Annotated[tuple[Item, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _has_its_title(self) -> Section:
        if bool(self.summary) != bool(self.folded):
            raise ValueError("summary and folded: give both or none")
        return self


class Template(Model):
    """The sections of an upstream's pull request template, of one version.

    Attributes:
        upstream: The upstream.
        version: The release or commit at which it was read.
        source: Where it was read.
        above: Headings that the upstream's file has and a pull request does not keep.
        machine: The heading above machine-written text, where the upstream wants it apart.
        sections: The sections, in order.
    """

    upstream: Name
    version: Version
    source: Prose
    above: Lines = ()
    machine: Line | Literal[""] = ""
    sections: Annotated[tuple[Section, ...], Field(strict=False, min_length=1)]

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the upstream's file, in order."""
        return (*self.above, *(one.heading for one in self.sections if one.heading))
