"""What is used of GitHub's answers: whatever does not fit is refused before anything reads it."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from types import GenericAlias
from typing import Annotated, Final, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    TypeAdapter,
    ValidationError,
    create_model,
)

Text = Annotated[str, Field(min_length=1)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]


class Shape(BaseModel):
    """Something of GitHub's, with the fields that are used; a default: it may be left out."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)


class AccountShape(Shape):
    """An account."""

    login: Text


class MergedShape(Shape):
    """What an issue that is a pull request says of it."""

    merged_at: datetime | None = None


class IssueShape(Shape):
    """An issue, or a pull request as one."""

    number: int
    title: str
    state: Literal["open", "closed"]
    html_url: Text
    body: str | None = None
    draft: bool = False
    user: AccountShape | None
    created_at: datetime
    updated_at: datetime
    pull_request: MergedShape | None = None


class SearchShape(Shape):
    """A page of what a search found."""

    total_count: int
    incomplete_results: bool
    items: list[IssueShape]


class CheckRunShape(Shape):
    """A check run."""

    name: str
    status: Text
    conclusion: str | None


class CheckRunsShape(Shape):
    """A page of check runs."""

    check_runs: list[CheckRunShape]


class AppShape(Shape):
    """An app."""

    name: str
    slug: str | None = None


class CheckSuiteShape(Shape):
    """What an app was asked to run, and how many check runs came of it."""

    status: str | None
    conclusion: str | None
    app: AppShape | None
    latest_check_runs_count: int


class CheckSuitesShape(Shape):
    """A page of check suites."""

    check_suites: list[CheckSuiteShape]


class StatusShape(Shape):
    """The status of a commit in a context."""

    context: str
    state: Text


class StatusesShape(Shape):
    """A page of statuses."""

    statuses: list[StatusShape]


class RequiredShape(Shape):
    """A check that must pass before a merge."""

    context: str


class ParametersShape(Shape):
    """What a rule asks for."""

    required_status_checks: list[RequiredShape] = []


class RuleShape(Shape):
    """A rule for a branch."""

    type: Text
    parameters: ParametersShape | None = None


class RulesShape(RootModel[list[RuleShape]]):
    """A page of the rules for a branch."""


class ContextsShape(Shape):
    """The checks that the protection of a branch requires."""

    contexts: list[str]


class ProtectionShape(Shape):
    """The protection of a branch."""

    required_status_checks: ContextsShape | None = None


class ObjectShape(Shape):
    """An object of git's."""

    sha: Sha


class ContentShape(Shape):
    """What a commit has."""

    tree: ObjectShape
    message: str


class CommitShape(ObjectShape):
    """A commit, as branches and comparisons show it."""

    commit: ContentShape


class CommitsShape(RootModel[list[CommitShape]]):
    """A page of commits."""


class BranchShape(Shape):
    """A branch, with what of its protection everybody may read."""

    name: Text
    commit: CommitShape
    protection: ProtectionShape | None = None


# What PyGithub's objects are made of, which read no more of it than this.


def _shape(base: type[BaseModel] = Shape, /, **fields: object) -> type[BaseModel]:
    """Return a shape; a field is a type, or one that may be left out."""
    described = {key: it if isinstance(it, tuple) else (it, ...) for key, it in fields.items()}
    return cast("type[BaseModel]", create_model("Shape", __base__=base, **described))  # type: ignore[call-overload]  # the fields are not known before


def _rows(kind: type[BaseModel]) -> GenericAlias:
    """Return a list."""
    return GenericAlias(list, (kind,))


def _maybe(kind: type | GenericAlias) -> tuple[object, None]:
    """Return what may be null or left out."""
    return kind | None, None


_ORIGIN: Final = _shape(full_name=Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")])
_NAME: Final = _shape(name=Text)
_REPOSITORY: Final = _shape(
    _ORIGIN, default_branch=Text, node_id=Text, html_url=Text, archived=_maybe(bool),
    disabled=_maybe(bool), has_pull_requests=_maybe(bool), pull_request_creation_policy=_maybe(str),
    permissions=_maybe(dict[str, bool]), parent=_maybe(_ORIGIN), source=_maybe(_ORIGIN),
)  # fmt: skip
_SIDE: Final = _shape(sha=Sha, ref=Text, repo=_ORIGIN | None)
#: `merge_commit_sha` is gone with the version 2026-03-10 of the API.
_PULL: Final = _shape(
    IssueShape, node_id=Text, head=_SIDE, base=_SIDE, labels=_rows(_NAME),
    closed_at=datetime | None, merged_at=datetime | None, merge_commit_sha=_maybe(Sha),
)  # fmt: skip
_FULL_PULL: Final = _shape(_PULL, mergeable=bool | None)
_COMMENT: Final = _shape(
    id=int, html_url=Text, body=_maybe(str), user=AccountShape | None, created_at=datetime,
    updated_at=datetime,
)  # fmt: skip
_LINE_COMMENT: Final = _shape(
    _COMMENT, path=Text, diff_hunk=str, line=_maybe(int), original_line=_maybe(int),
    in_reply_to_id=_maybe(int), side=_maybe(str),
)  # fmt: skip
_REVIEW: Final = _shape(
    id=int, html_url=Text, body=str | None, state=Text, user=AccountShape | None,
    submitted_at=_maybe(datetime),
)  # fmt: skip
_EVENT: Final = _shape(event=Text, commit_id=Sha | None)
_FILE: Final = _shape(filename=Text, previous_filename=_maybe(str), patch=_maybe(str))
_GIT_COMMIT: Final = _shape(
    ContentShape, sha=Sha, author=_shape(name=str, email=str, date=datetime),
    parents=list[ObjectShape],
)  # fmt: skip
_COMPARISON: Final = _shape(
    status=Literal["ahead", "behind", "diverged", "identical"], ahead_by=int, behind_by=int,
    base_commit=CommitShape,
)  # fmt: skip
_TREE: Final = _shape(
    ObjectShape, truncated=bool, tree=_rows(_shape(path=Text, mode=Text, sha=Sha))
)
_BLOB: Final = _shape(ObjectShape, encoding=str, content=str)
_REF: Final = _shape(ref=Text, object=ObjectShape)
_ENDING: Final = {"status": str | None, "conclusion": str | None}
_RUN: Final = _shape(
    id=int, html_url=Text, head_sha=Sha, path=Text, event=Text, run_attempt=int, display_title=str,
    actor=_maybe(AccountShape), repository=_ORIGIN, head_repository=_maybe(_ORIGIN), **_ENDING,
)  # fmt: skip
_JOB: Final = _shape(
    id=int, name=Text, run_attempt=_maybe(int), started_at=_maybe(datetime),
    completed_at=_maybe(datetime), runner_name=_maybe(str), labels=list[str],
    steps=_maybe(_rows(_shape(_NAME, **_ENDING))),
    **_ENDING,
)  # fmt: skip
_ARTIFACT: Final = _shape(
    id=int, name=Text, size_in_bytes=int, expired=bool, digest=_maybe(str),
    created_at=_maybe(datetime),
)  # fmt: skip
_DISPATCHED: Final = _shape(workflow_run_id=int, run_url=Text, html_url=Text)

_REPO: Final = "/repos/[^/]+/[^/]+"
_OF: Final = f"GET {_REPO}/commits/[^/]+"
_RUNS: Final = f"{_REPO}/actions/runs"
_WORKFLOW: Final = f"{_REPO}/actions/workflows/[^/]+"
#: What is answered to which request; None: nothing of it is read.
_ANSWERS: Final[tuple[tuple[str, object], ...]] = (
    ("GET /user", AccountShape),
    (f"GET {_REPO}|POST {_REPO}/forks", _REPOSITORY),
    (f"GET {_REPO}/pulls", _rows(_PULL)),
    (rf"(GET|PATCH) {_REPO}/pulls/\d+|POST {_REPO}/pulls", _FULL_PULL),
    (rf"GET {_REPO}/issues/\d+", IssueShape),
    ("GET /search/issues", SearchShape),
    (rf"GET {_REPO}/issues/\d+/comments", _rows(_COMMENT)),
    (rf"POST {_REPO}/issues/\d+/comments", _COMMENT),
    (rf"GET {_REPO}/pulls/\d+/comments", _rows(_LINE_COMMENT)),
    (rf"POST {_REPO}/pulls/\d+/comments/\d+/replies", _LINE_COMMENT),
    (rf"GET {_REPO}/pulls/\d+/reviews", _rows(_REVIEW)),
    (rf"GET {_REPO}/issues/\d+/events", _rows(_EVENT)),
    (rf"GET {_REPO}/pulls/\d+/files", _rows(_FILE)),
    (f"{_OF}/check-runs", CheckRunsShape),
    (f"{_OF}/check-suites", CheckSuitesShape),
    (f"{_OF}/status", StatusesShape),
    (f"GET {_REPO}/commits", CommitsShape),
    (f"GET {_REPO}/rules/branches/.+", RulesShape),
    (f"GET {_REPO}/branches/.+", BranchShape),
    (f"GET {_REPO}/compare/.+", _COMPARISON),
    # A folder is a list.
    (f"GET {_REPO}/contents/.+", _BLOB | list[JsonValue]),
    (f"GET {_REPO}/git/blobs/.+", _BLOB),
    (f"GET {_REPO}/git/trees/.+", _TREE),
    (f"POST {_REPO}/git/(blobs|trees)", ObjectShape),
    (f"(GET|POST) {_REPO}/git/commits(/.+)?", _GIT_COMMIT),
    (f"(GET|POST|PATCH) {_REPO}/git/refs?(/.+)?", _REF),
    (f"GET {_WORKFLOW}/runs", _shape(workflow_runs=_rows(_RUN))),
    (rf"GET {_RUNS}/\d+", _RUN),
    (rf"GET {_RUNS}/\d+/jobs", _shape(jobs=_rows(_JOB))),
    (rf"GET {_RUNS}/\d+/artifacts", _shape(artifacts=_rows(_ARTIFACT))),
    (f"POST {_WORKFLOW}/dispatches", _DISPATCHED),
    ("POST /graphql", _shape(data=dict[str, JsonValue])),
    (rf"POST ({_REPO}/merge-upstream|{_RUNS}/\d+/cancel)", None),
    (".*", dict[str, JsonValue] | list[JsonValue]),
)


@cache
def _shape_of(what: str) -> TypeAdapter[object] | None:
    """Return the shape of the answer to a request, such as `GET /user`."""
    shape = next(shape for route, shape in _ANSWERS if re.fullmatch(route, what))
    return None if shape is None else TypeAdapter(cast("type[object]", shape))


def misfit(what: str, body: bytes) -> str:
    """Return where the answer to a request is not what is used of it; nothing: it fits."""
    shape = _shape_of(what)
    if shape is None:
        return ""
    try:
        shape.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = "no JSON" if first["type"] == "json_invalid" else first["msg"]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), problem]))
    return ""
