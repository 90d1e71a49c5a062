"""The routes that the local GitHub may serve, under the names of GitHub's own description.

A row says only what the description lacks in Python: which statuses mean success, and which
models a body may be. Everything else (path, parameters, models of answers and of errors) is
asked of the generated client when the row is first used; `tests/github/test_validate.py` sees
that the rows agree with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

REPO: Final = "/repos/{owner}/{repo}"


@dataclass(frozen=True)
class Row:
    """One operation.

    Attributes:
        operation: GitHub's own identifier, such as `pulls/create`.
        method: The HTTP method.
        path: The path's template. A parameter is one segment, except `ref`, `path` and
            `basehead` at the end, and `branch`, which may hold slashes.
        success: Statuses with the described answer (204: with none).
        body: Names of the models that a body may be; empty: no body is allowed.
            `None`: it may be left out. `list[str]`: an array of strings.
        plain: Further statuses which the description tells in words, and which carry
            GitHub's plain error.
        also: Models of items that GitHub lists too and that its description forgot. Lists
            of events hold `closed`, `reopened`, `merged` and `referenced`, which only the
            timeline's description has.
        nullable: Keys that GitHub gives as null though its description forgot to say so: a
            comment on a line that has changed since has no line any more.
        media: Whether another media type (a diff, the raw content) can be asked for.
    """

    operation: str
    method: str
    path: str
    success: tuple[int, ...] = (200,)
    body: tuple[str, ...] = ()
    plain: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    media: bool = False
    #: The model of an answer that the generated client says nothing of.
    answer: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The path's template as an expression."""
        parts = re.split(r"\{(\w+)\}", self.path)
        text = ""
        for number, part in enumerate(parts):
            if number % 2 == 0:
                text += re.escape(part)
            else:
                text += "(.*)" if part in _SLASHES else "([^/]+)"
        return re.compile(text)


_SLASHES: Final = frozenset({"ref", "path", "basehead", "branch"})

_GIT: Final = (
    Row("git/create-blob", "POST", f"{REPO}/git/blobs", (201,),
        ("ReposOwnerRepoGitBlobsPostBody",)),
    Row("git/get-blob", "GET", f"{REPO}/git/blobs/{{file_sha}}", media=True),
    Row("git/create-tree", "POST", f"{REPO}/git/trees", (201,),
        ("ReposOwnerRepoGitTreesPostBody",)),
    Row("git/get-tree", "GET", f"{REPO}/git/trees/{{tree_sha}}"),
    Row("git/create-commit", "POST", f"{REPO}/git/commits", (201,),
        ("ReposOwnerRepoGitCommitsPostBody",)),
    Row("git/get-commit", "GET", f"{REPO}/git/commits/{{commit_sha}}"),
    Row("git/create-ref", "POST", f"{REPO}/git/refs", (201,), ("ReposOwnerRepoGitRefsPostBody",)),
    Row("git/get-ref", "GET", f"{REPO}/git/ref/{{ref}}"),
    Row("git/update-ref", "PATCH", f"{REPO}/git/refs/{{ref}}", (200,),
        ("ReposOwnerRepoGitRefsRefPatchBody",)),
)  # fmt: skip

_REPOS: Final = (
    Row("users/get-authenticated", "GET", "/user"),
    Row("repos/get", "GET", REPO),
    Row("repos/create-fork", "POST", f"{REPO}/forks", (202,),
        ("ReposOwnerRepoForksPostBody", "None")),
    Row("repos/merge-upstream", "POST", f"{REPO}/merge-upstream", (200,),
        ("ReposOwnerRepoMergeUpstreamPostBody",), plain=(409, 422)),
    Row("repos/get-branch", "GET", f"{REPO}/branches/{{branch}}"),
    Row("repos/get-content", "GET", f"{REPO}/contents/{{path}}", media=True),
    Row("repos/compare-commits", "GET", f"{REPO}/compare/{{basehead}}", media=True),
    Row("repos/get-combined-status-for-ref", "GET", f"{REPO}/commits/{{ref}}/status"),
    Row("checks/list-for-ref", "GET", f"{REPO}/commits/{{ref}}/check-runs"),
    Row("search/issues-and-pull-requests", "GET", "/search/issues"),
)  # fmt: skip

_ISSUE: Final = f"{REPO}/issues/{{issue_number}}"
_PULL: Final = f"{REPO}/pulls/{{pull_number}}"

_TALK: Final = (
    Row("issues/list-for-repo", "GET", f"{REPO}/issues"),
    Row("issues/create", "POST", f"{REPO}/issues", (201,), ("ReposOwnerRepoIssuesPostBody",)),
    Row("issues/get", "GET", _ISSUE),
    Row("issues/update", "PATCH", _ISSUE, (200,), ("ReposOwnerRepoIssuesIssueNumberPatchBody",)),
    Row("issues/list-comments", "GET", f"{_ISSUE}/comments"),
    Row("issues/create-comment", "POST", f"{_ISSUE}/comments", (201,),
        ("ReposOwnerRepoIssuesIssueNumberCommentsPostBody",)),
    Row("issues/list-events", "GET", f"{_ISSUE}/events",
        also=("StateChangeIssueEvent",)),
)  # fmt: skip

_OUTDATED: Final = ("line", "position")

_PULLS: Final = (
    Row("pulls/list", "GET", f"{REPO}/pulls"),
    Row("pulls/create", "POST", f"{REPO}/pulls", (201,), ("ReposOwnerRepoPullsPostBody",)),
    Row("pulls/get", "GET", _PULL, media=True),
    Row("pulls/update", "PATCH", _PULL, (200,), ("ReposOwnerRepoPullsPullNumberPatchBody",)),
    Row("pulls/list-files", "GET", f"{_PULL}/files"),
    Row("pulls/list-reviews", "GET", f"{_PULL}/reviews"),
    Row("pulls/list-review-comments", "GET", f"{_PULL}/comments", nullable=_OUTDATED),
    Row("pulls/create-review-comment", "POST", f"{_PULL}/comments", (201,),
        ("ReposOwnerRepoPullsPullNumberCommentsPostBody",)),
    Row("pulls/create-reply-for-review-comment", "POST",
        f"{_PULL}/comments/{{comment_id}}/replies", (201,),
        ("ReposOwnerRepoPullsPullNumberCommentsCommentIdRepliesPostBody",),
        nullable=_OUTDATED),
)  # fmt: skip

_RUN: Final = f"{REPO}/actions/runs/{{run_id}}"
_WORKFLOW: Final = f"{REPO}/actions/workflows/{{workflow_id}}"

_ACTIONS: Final = (
    Row("actions/create-workflow-dispatch", "POST", f"{_WORKFLOW}/dispatches", (200, 204),
        answer="WorkflowDispatchResponse", body=
        ("ReposOwnerRepoActionsWorkflowsWorkflowIdDispatchesPostBody",), plain=(422,)),
    Row("actions/list-workflow-runs", "GET", f"{_WORKFLOW}/runs"),
    Row("actions/get-workflow-run", "GET", _RUN),
    Row("actions/cancel-workflow-run", "POST", f"{_RUN}/cancel", (202,)),
    Row("actions/list-jobs-for-workflow-run", "GET", f"{_RUN}/jobs"),
    Row("actions/list-workflow-run-artifacts", "GET", f"{_RUN}/artifacts"),
    Row("actions/download-artifact", "GET",
        f"{REPO}/actions/artifacts/{{artifact_id}}/{{archive_format}}", (302,)),
)  # fmt: skip

ROWS: Final = (*_GIT, *_REPOS, *_TALK, *_PULLS, *_ACTIONS)


def find(method: str, path: str) -> Row | None:
    """Return the row of a request: of several that match, the one with the most fixed text."""
    if path.endswith("/contents"):  # the root: a path that is empty, its slash left out
        path += "/"
    fits = [row for row in ROWS if row.method == method and row.pattern.fullmatch(path)]
    return max(fits, key=lambda row: len(re.sub(r"\{\w+\}", "", row.path)), default=None)
