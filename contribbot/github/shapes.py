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
    TypeAdapter,
    ValidationError,
    create_model,
)

Text = Annotated[str, Field(min_length=1)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]


class Shape(BaseModel):
    """Something of GitHub's, with the fields that are used."""

    model_config = ConfigDict(strict=True, defer_build=True)


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


_USER: Final = _shape(login=Text)
_OBJECT: Final = _shape(sha=Sha)
_ORIGIN: Final = _shape(full_name=Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")])
_NAME: Final = _shape(name=Text)
_REPOSITORY: Final = _shape(
    _ORIGIN, default_branch=Text, node_id=Text, html_url=Text, archived=_maybe(bool),
    disabled=_maybe(bool), has_pull_requests=_maybe(bool), pull_request_creation_policy=_maybe(str),
    permissions=_maybe(dict[str, bool]), parent=_maybe(_ORIGIN), source=_maybe(_ORIGIN),
)  # fmt: skip
_ISSUE: Final = _shape(
    number=int, title=str, state=Literal["open", "closed"], html_url=Text, body=_maybe(str),
    draft=_maybe(bool), user=_USER | None, created_at=datetime, updated_at=datetime,
    pull_request=_maybe(_shape(merged_at=_maybe(datetime))),
)  # fmt: skip
_SEARCH: Final = _shape(total_count=int, incomplete_results=bool, items=_rows(_ISSUE))
_SIDE: Final = _shape(sha=Sha, ref=Text, repo=_ORIGIN | None)
#: `merge_commit_sha` is gone with the version 2026-03-10 of the API.
_PULL: Final = _shape(
    _ISSUE, node_id=Text, head=_SIDE, base=_SIDE, labels=_rows(_NAME),
    closed_at=datetime | None, merged_at=datetime | None, merge_commit_sha=_maybe(Sha),
)  # fmt: skip
_FULL_PULL: Final = _shape(_PULL, mergeable=bool | None)
_ENDING: Final = {"status": str | None, "conclusion": str | None}
_APP: Final = _shape(name=str, slug=_maybe(str))
_SUITE: Final = _shape(app=_APP | None, latest_check_runs_count=int, **_ENDING)
_STATUS: Final = _shape(context=str, state=Text)
_COMMENT: Final = _shape(
    id=int, html_url=Text, body=_maybe(str), user=_USER | None, created_at=datetime,
    updated_at=datetime,
)  # fmt: skip
_LINE_COMMENT: Final = _shape(
    _COMMENT, path=Text, diff_hunk=str, line=_maybe(int), original_line=_maybe(int),
    in_reply_to_id=_maybe(int), side=_maybe(str),
)  # fmt: skip
_REVIEW: Final = _shape(
    id=int, html_url=Text, body=str | None, state=Text, user=_USER | None,
    submitted_at=_maybe(datetime),
)  # fmt: skip
_EVENT: Final = _shape(event=Text, commit_id=Sha | None)
_FILE: Final = _shape(filename=Text, previous_filename=_maybe(str), patch=_maybe(str))
_CONTENT: Final = _shape(tree=_OBJECT, message=str)
_COMMIT: Final = _shape(_OBJECT, commit=_CONTENT)
_PROTECTION: Final = _shape(required_status_checks=_maybe(_shape(contexts=list[str])))
_BRANCH: Final = _shape(_NAME, commit=_COMMIT, protection=_maybe(_PROTECTION))
_REQUIRED: Final = _rows(_shape(context=str))
_RULE: Final = _shape(
    type=Text, parameters=_maybe(_shape(required_status_checks=_maybe(_REQUIRED)))
)
_GIT_COMMIT: Final = _shape(
    _CONTENT, sha=Sha, author=_shape(name=str, email=str, date=datetime),
    parents=_rows(_OBJECT),
)  # fmt: skip
_COMPARISON: Final = _shape(
    status=Literal["ahead", "behind", "diverged", "identical"], ahead_by=int, behind_by=int,
    base_commit=_COMMIT,
)  # fmt: skip
_TREE: Final = _shape(_OBJECT, truncated=bool, tree=_rows(_shape(path=Text, mode=Text, sha=Sha)))
_BLOB: Final = _shape(_OBJECT, encoding=str, content=str)
_REF: Final = _shape(ref=Text, object=_OBJECT)
_RUN: Final = _shape(
    id=int, html_url=Text, head_sha=Sha, path=Text, event=Text, run_attempt=int, display_title=str,
    actor=_maybe(_USER), repository=_ORIGIN, head_repository=_maybe(_ORIGIN), **_ENDING,
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
    ("GET /user", _USER),
    (f"GET {_REPO}|POST {_REPO}/forks", _REPOSITORY),
    (f"GET {_REPO}/pulls", _rows(_PULL)),
    (rf"(GET|PATCH) {_REPO}/pulls/\d+|POST {_REPO}/pulls", _FULL_PULL),
    (rf"GET {_REPO}/issues/\d+", _ISSUE),
    ("GET /search/issues", _SEARCH),
    (rf"GET {_REPO}/issues/\d+/comments", _rows(_COMMENT)),
    (rf"POST {_REPO}/issues/\d+/comments", _COMMENT),
    (rf"GET {_REPO}/pulls/\d+/comments", _rows(_LINE_COMMENT)),
    (rf"GET {_REPO}/pulls/\d+/reviews", _rows(_REVIEW)),
    (rf"GET {_REPO}/issues/\d+/events", _rows(_EVENT)),
    (rf"GET {_REPO}/pulls/\d+/files", _rows(_FILE)),
    (f"{_OF}/check-runs", _shape(check_runs=_rows(_shape(name=str, **_ENDING)))),
    (f"{_OF}/check-suites", _shape(check_suites=_rows(_SUITE))),
    (f"{_OF}/status", _shape(statuses=_rows(_STATUS))),
    (f"GET {_REPO}/commits", _rows(_COMMIT)),
    (f"GET {_REPO}/rules/branches/.+", _rows(_RULE)),
    (f"GET {_REPO}/branches/.+", _BRANCH),
    (f"GET {_REPO}/compare/.+", _COMPARISON),
    # A folder is a list.
    (f"GET {_REPO}/contents/.+", _BLOB | list[JsonValue]),
    (f"GET {_REPO}/git/blobs/.+", _BLOB),
    (f"GET {_REPO}/git/trees/.+", _TREE),
    (f"POST {_REPO}/git/(blobs|trees)", _OBJECT),
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
    # A dispatch that does not tell of its run is looked for all the same.
    if shape is None or (not body and what.endswith("/dispatches")):
        return ""
    try:
        shape.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = "no JSON" if first["type"] == "json_invalid" else first["msg"]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), problem]))
    return ""
