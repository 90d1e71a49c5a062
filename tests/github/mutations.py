"""What the GraphQL side can change, as mappings from field to what it does."""

from __future__ import annotations

from typing import Final, cast

from pydantic import JsonValue

from tests.github import pulling
from tests.github.connections import Arguments, Node, RefusalError
from tests.github.gitdata import GitRefusedError
from tests.github.githistory import is_ancestor
from tests.github.nodes import pull_node, thread_id, thread_node, threads
from tests.github.state import PUSHERS, Pull, Repository, ReviewComment, User, node_id
from tests.github.wire import Request, UnmodelledError

_NOTHING: Final = "0" * 40


def mutation_root(request: Request) -> Node:
    """Return what a mutation starts from."""

    def settle(arguments: Arguments, *, resolved: bool) -> Node:
        asked = arguments.within("input")
        asked.only("threadId", "clientMutationId")
        wanted = asked.text("threadId") or ""
        for pull, root in _roots(request):
            if thread_id(root) != wanted:
                continue
            if request.user is not pull.issue.user and not _may_write(pull, request.user):
                raise _forbidden(request)
            (pull.resolved.add if resolved else pull.resolved.discard)(root.id)
            return {
                "clientMutationId": asked.text("clientMutationId"),
                "thread": thread_node(pull, root),
            }
        raise _unknown(wanted)

    return {
        "resolveReviewThread": lambda arguments: settle(arguments, resolved=True),
        "unresolveReviewThread": lambda arguments: settle(arguments, resolved=False),
        "markPullRequestReadyForReview": lambda arguments: _mark_ready(request, arguments),
        "updateRefs": lambda arguments: _update_refs(request, arguments),
    }


def _mark_ready(request: Request, arguments: Arguments) -> Node:
    asked = arguments.within("input")
    asked.only("pullRequestId", "clientMutationId")
    wanted = asked.text("pullRequestId") or ""
    for repository in _visible(request):
        for pull in repository.pulls():
            if node_id("PullRequest", pull.id) != wanted:
                continue
            if request.user is not pull.issue.user and not _may_write(pull, request.user):
                raise _forbidden(request)
            pull.draft = False
            return {
                "clientMutationId": asked.text("clientMutationId"),
                "pullRequest": pull_node(pull),
            }
    raise _unknown(wanted)


def _update_refs(request: Request, arguments: Arguments) -> Node:
    """Move one branch that has the commit that is named."""
    asked = arguments.within("input")
    asked.only("repositoryId", "refUpdates", "clientMutationId")
    wanted = asked.text("repositoryId") or ""
    found = [one for one in _visible(request) if node_id("Repository", one.id) == wanted]
    if not found:
        raise _unknown(wanted)
    (repository,), updates = found, asked.given["refUpdates"]
    if repository.permission(request.user) not in PUSHERS:
        raise _forbidden(request)
    if not isinstance(updates, list) or len(updates) != 1:
        raise UnmodelledError(f"{asked.field}: other than one update of a ref")
    one = Arguments(f"{asked.field}.refUpdates", cast("dict[str, JsonValue]", updates[0]))
    one.only("name", "beforeOid", "afterOid", "force")
    name, new, old = (one.text(key) or "" for key in ("name", "afterOid", "beforeOid"))
    if _NOTHING in {new, old} or not old:
        raise UnmodelledError(f"{one.field}: a ref that is made, deleted or moved unasked")
    git = repository.git
    now = git.ref(name)
    if now != old:
        raise RefusalError("UNPROCESSABLE", f"{name} does not point to {old}")
    if git.kind(new) != "commit" or (not one.given.get("force") and not is_ancestor(git, old, new)):
        raise RefusalError("UNPROCESSABLE", f"{name} cannot be moved to {new}")
    try:
        git.set_ref(name, new)
    except GitRefusedError:
        raise RefusalError("UNPROCESSABLE", f"{name} cannot be moved") from None
    pulling.settle(request.state, repository)
    return {"clientMutationId": asked.text("clientMutationId")}


def _forbidden(request: Request) -> RefusalError:
    words = f"{request.signed_in().login} does not have the correct permissions"
    return RefusalError("FORBIDDEN", words)


def _unknown(wanted: str) -> RefusalError:
    words = f"Could not resolve to a node with the global id of '{wanted}'"
    return RefusalError("NOT_FOUND", words)


def _visible(request: Request) -> list[Repository]:
    return [
        one for one in request.state.repositories.values()
        if one.permission(request.user) is not None
    ]  # fmt: skip


def _may_write(pull: Pull, who: User | None) -> bool:
    return pull.base.permission(who) in PUSHERS


def _roots(request: Request) -> list[tuple[Pull, ReviewComment]]:
    """Return the first comments of all threads that the user may see."""
    return [
        (pull, root)
        for repository in _visible(request)
        for pull in repository.pulls()
        for root in threads(pull)
    ]
