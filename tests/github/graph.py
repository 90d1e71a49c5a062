"""Where a pull request stands, as GraphQL tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from tests.github import render
from tests.github.state import PUSHERS, Comment, Event, Job, Json, Pull, State

_EVENTS: Final = {
    "referenced": "ReferencedEvent",
    "closed": "ClosedEvent",
    "merged": "MergedEvent",
    "added_to_merge_queue": "AddedToMergeQueueEvent",
    "removed_from_merge_queue": "RemovedFromMergeQueueEvent",
}
_PAGE: Final = 100


def _page(nodes: Sequence[JsonValue], after: JsonValue) -> Json:
    start = int(str(after or 0))
    end = min(start + _PAGE, len(nodes))
    info: Json = {"hasNextPage": end < len(nodes), "endCursor": str(end)}
    return {"nodes": [*nodes[start:end]], "pageInfo": info}


def opinions(pull: Pull) -> dict[str, str]:
    """Return the last verdict of each reviewer who may write."""
    return {
        review.user.login: review.state
        for review in pull.reviews
        if review.state not in {"COMMENTED", "PENDING"}
        and pull.base.permission(review.user) in PUSHERS
        and review.user is not pull.issue.user
    }


def _decision(pull: Pull) -> str | None:
    """Return the decision, which only a rule for reviews makes."""
    if not pull.base.requires_review:
        return None
    verdicts, words = {*opinions(pull).values()}, ("CHANGES_REQUESTED", "APPROVED")
    return next((word for word in words if word in verdicts), "REVIEW_REQUIRED")


def _jobs(pull: Pull) -> list[Json]:
    """Return the jobs of the head commit, and the required jobs that have not begun."""
    where, sha = pull.base, pull.head_sha
    jobs = {job.name: job for job in where.jobs if job.sha == sha}
    for name in sorted({*where.required} - jobs.keys()):
        jobs[name] = Job(sha, name, "expected", "", is_status=True)
    written: list[Json] = []
    for name, job in jobs.items():
        word, required = job.word.upper() if job.word else None, name in where.required
        kind: Json = {"__typename": "StatusContext", "state": word}
        if not job.is_status:
            kind = {"__typename": "CheckRun", "conclusion": word, "startedAt": job.started_at,
                    "checkSuite": {"workflowRun": None}}  # fmt: skip
        written.append({**kind, "name": name, "isRequired": required})
    return written


def merge_state(pull: Pull, mergeable: bool | None) -> str:
    """Return GitHub's state of a merge."""
    return pull.merge_state or {True: "CLEAN", False: "DIRTY", None: "UNKNOWN"}[mergeable]


def _event(pull: Pull, event: Event) -> Json:
    git, sha = pull.base.git, event.commit_id
    message = git.commit(sha).message.rstrip("\n") if sha else ""
    commit: Json | None = {"__typename": "Commit", "oid": sha, "message": message} if sha else None
    written: Json = {"__typename": _EVENTS[event.event]}
    more: dict[str, Json] = {
        "referenced": {"commit": commit}, "closed": {"commit": commit},
        "removed_from_merge_queue": {"reason": event.reason},
    }  # fmt: skip
    return written | more.get(event.event, {})


def _said(pull: Pull, thing: Comment, anchor: str) -> Json:
    """Return a comment or a review with the field names of GraphQL."""
    return {
        "fullDatabaseId": str(thing.id),
        # GitHub gives no author where the account was deleted.
        "author": None if thing.user.login == "ghost"
        else {"__typename": "User", "login": thing.user.login},
        "authorAssociation": render.association(pull.base, thing.user), "body": thing.body,
        "createdAt": thing.created_at, "updatedAt": thing.updated_at,
        "url": f"{pull.issue.page}#{anchor}{thing.id}",
    }  # fmt: skip


def _thread(pull: Pull, root: Comment) -> Json:
    answers = [it for it in pull.review_comments if it is root or it.reply_to is root]
    nodes: list[JsonValue] = [_said(pull, it, "discussion_r") for it in answers]
    return {
        "isResolved": root.id in pull.resolved, "path": root.path, "line": root.line,
        "originalLine": root.line, "comments": {"nodes": nodes},
    }  # fmt: skip


def pull_state(state: State, pull: Pull, after: Json) -> Json:
    """Return the answer to the query of a pull request; `after`: the cursors of its pages."""
    issue, mergeable = pull.issue, state.mergeable(pull)
    threads: list[JsonValue] = [_thread(pull, root) for root in pull.review_comments
                                if root.reply_to is None]  # fmt: skip
    comments: list[JsonValue] = [_said(pull, it, "issuecomment-") for it in issue.comments]
    judged: list[JsonValue] = [
        _said(pull, it, "pullrequestreview-") | {"state": it.state} for it in pull.reviews
    ]
    jobs = _jobs(pull)
    suites: list[JsonValue] = [
        {"conclusion": suite.conclusion.upper() if suite.conclusion else None,
         "app": {"name": suite.app, "slug": suite.app.lower().replace(" ", "-")},
         "checkRuns": {"totalCount": 0}}
        for suite in pull.base.check_suites if suite.head_sha == pull.head_sha
    ]  # fmt: skip
    reviews: list[JsonValue] = [
        {"state": verdict, "author": {"__typename": "User", "login": login}}
        for login, verdict in opinions(pull).items()
    ]
    events: list[JsonValue] = [_event(pull, event) for event in issue.events
                               if event.event in _EVENTS]  # fmt: skip
    words = {True: "MERGEABLE", False: "CONFLICTING", None: "UNKNOWN"}
    ended = "MERGED" if pull.merged_at else issue.state.upper()
    queue = [event.event for event in issue.events if event.event.endswith("merge_queue")]
    written: Json = {
        "number": issue.number, "url": issue.page, "title": issue.title, "state": ended,
        "isDraft": pull.draft, "baseRefName": pull.base_ref, "headRefOid": pull.head_sha,
        "mergeable": words[mergeable],
        "mergeStateStatus": merge_state(pull, mergeable),
        "isInMergeQueue": queue[-1:] == ["added_to_merge_queue"],
        "reviewDecision": _decision(pull),
        "author": {"__typename": "User", "login": issue.user.login},
        "mergeCommit": {"oid": pull.merge_commit} if pull.merge_commit else None,
        "latestOpinionatedReviews": {"nodes": reviews},
        "statusCheckRollup": {"contexts": _page(jobs, after.get("jobs"))} if jobs else None,
        "commits": {"nodes": [{"commit": {"checkSuites": {"nodes": suites}}}]},
        "reviewThreads": _page(threads, after.get("threads")),
        "comments": _page(comments, after.get("comments")),
        "reviews": _page(judged, after.get("reviews")),
        "timelineItems": {"nodes": events[-_PAGE:]},
    }  # fmt: skip
    where = pull.base
    if after.get("compared"):
        behind = len(where.git.between(pull.head_sha, where.git.tip(pull.base_ref)))
        written["baseRef"] = {"compare": {"behindBy": behind}}
    return {"repository": {"isArchived": where.archived, "pullRequest": written,
                           "defaultBranchRef": {"name": where.default_branch}}}  # fmt: skip
