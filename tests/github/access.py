"""Who asks, with which token, and how often."""

from __future__ import annotations

import time
from typing import Final

from tests.github.wire import GitHubFault, Request

#: PyGithub sends none; githubkit sends one of these.
_VERSIONS: Final = ("2022-11-28", "2026-03-10")


def screen(request: Request) -> None:
    """Refuse what GitHub refuses before it looks at the path.

    Raises:
        GitHubFault: No user agent, or a version of the API that does not exist.
    """
    if "user-agent" not in request.headers:
        raise GitHubFault(403, "Request forbidden by administrative rules.")
    version = request.headers.get("x-github-api-version", _VERSIONS[0])
    if version not in _VERSIONS:
        raise GitHubFault(400, f"Invalid API version: {version}")


def authenticate(request: Request) -> None:
    """Find the user of the token.

    Raises:
        GitHubFault: 401 for a token that nobody has.
    """
    given = request.headers.get("authorization")
    if given is None:
        return
    kind, _, text = given.partition(" ")
    found = request.state.bearer(text.strip())
    if kind.lower() not in {"token", "bearer"} or found is None:
        raise GitHubFault(401, "Bad credentials")
    request.user, request.token = found


def check_scope(request: Request) -> None:
    """Check a classic token's scopes against what the route takes.

    Raises:
        GitHubFault: The scope is missing.
    """
    route, token = request.route, request.token
    if route is None or token is None or token.fine_grained or not route.scopes:
        return
    if not set(route.scopes) & set(token.scopes):
        raise GitHubFault(
            request.state.missing_scope_status,
            "Not Found"
            if request.state.missing_scope_status == 404
            else "Resource not accessible by personal access token",
        )


def rate_limit(request: Request) -> dict[str, str]:
    """Count the request and return the headers that tell of limits and scopes.

    Raises:
        GitHubFault: 403 when the primary rate limit is used up.
    """
    state, route = request.state, request.route
    headers = {"X-GitHub-Media-Type": "github.v3; format=json"}
    if route is None:
        return headers
    limit = state.rate_limits[route.resource]
    used = 1
    if request.user is not None:
        with state.lock:
            used = request.user.used.get(route.resource, 0) + 1
            request.user.used[route.resource] = min(used, limit)
    headers.update(
        {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(max(limit - used, 0)),
            "X-RateLimit-Used": str(min(used, limit)),
            "X-RateLimit-Reset": str(int(time.time()) + state.reset_after),
            "X-RateLimit-Resource": route.resource,
        }
    )
    if request.token is not None and not request.token.fine_grained:
        headers["X-OAuth-Scopes"] = ", ".join(request.token.scopes)
        headers["X-Accepted-OAuth-Scopes"] = ", ".join(route.scopes)
    if used > limit:
        who = request.user.id if request.user else 0
        raise GitHubFault(403, f"API rate limit exceeded for user ID {who}.", headers=headers)
    return headers
