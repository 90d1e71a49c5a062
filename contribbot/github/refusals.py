"""What a refusal of GitHub's means, and what a person can do about it."""

from __future__ import annotations

import re
from typing import Final

from contribbot.errors import GitHubError, MovedError, NotFoundError, RefusedError, TokenError
from contribbot.github.answer import Answer, clean_line

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_UNPROCESSABLE: Final = 422
_REFUSALS: Final = range(400, 500)
#: Scopes that let a classic token write to public repositories.
_WRITING: Final = frozenset({"public_repo", "repo"})
#: What a fine-grained token, or one of an app, is told.
_FINE_GRAINED: Final = re.compile(
    r"not accessible by (personal access token|integration|fine-grained)", re.IGNORECASE
)
_WORKFLOW: Final = re.compile(r"without [`'\"]?workflows?[`'\"]? (scope|permission)", re.IGNORECASE)
_OPENING: Final = re.compile(r"POST /repos/[^/]+/[^/]+/pulls")
_HANDOFF: Final = (
    "a fine-grained token cannot open pull requests in repositories of others: use a classic "
    "token with the scope public_repo, or `contribbot open-pr --handoff`"
)
_PERMISSION: Final = (
    "give the token the permission that is named; in repositories of others a fine-grained one "
    "gets none, and a classic one with the scope public_repo may write"
)
_ANY_PERMISSION: Final = _PERMISSION.replace("that is named", "that this needs")
_HINTS: Final = {
    409: "another change came between; run it again",
    451: "GitHub blocks it for legal reasons",
}


def moved(what: str) -> MovedError:
    """Return the error for a write that GitHub would send elsewhere."""
    return MovedError(
        f"{what}: GitHub says that it has moved, and contribbot writes nowhere else",
        hint="the repository was renamed: an upstream's name is `repository` in"
        " upstreams/NAME.toml of the queue (a copy of ours, where it has none); the queue's"
        " own is that of its git remote origin, or --repo OWNER/NAME",
    )


def refusal(answer: Answer, source: str) -> GitHubError:
    """Return the error for an answer that is not a success."""
    said = answer.said()
    words = said or f"HTTP {answer.status}"
    if answer.status == _UNAUTHORIZED:
        return TokenError(
            f"GitHub does not accept the token from {source}: {words}",
            hint="it may have expired: make a new one, or log in again with `gh auth login`",
        )
    about_token = _about_token(answer, said, source)
    if about_token is not None:
        return about_token
    if answer.status == _NOT_FOUND:
        return NotFoundError(
            f"{answer.what}: {words}",
            hint="check the name; what is private or gone looks the same",
        )
    if answer.status in _REFUSALS:
        return RefusedError(
            f"{answer.what}: {words}", status=answer.status, hint=_HINTS.get(answer.status, "")
        )
    return GitHubError(
        f"{answer.what}: GitHub answers with HTTP {answer.status}",
        hint="see https://www.githubstatus.com, and run it again later",
    )


def _about_token(answer: Answer, said: str, source: str) -> TokenError | None:
    """Return the error for a token that may not do this, where that is why."""
    if answer.status not in {_FORBIDDEN, _NOT_FOUND, _UNPROCESSABLE}:
        return None
    if _WORKFLOW.search(said):
        return TokenError(
            f"{answer.what}: the token from {source} lacks the scope workflow: {said}",
            hint="the patch touches .github/workflows: add the scope workflow to the token",
        )
    sso = answer.headers.get("x-github-sso", "")
    if answer.status == _FORBIDDEN and sso.startswith("required"):
        return TokenError(
            f"{answer.what}: the token from {source} is not authorised for that organisation "
            "(single sign-on)",
            hint="authorise it at https://github.com/settings/tokens, under Configure SSO",
        )
    lacking = _lacking_scope(answer)
    if lacking:
        return TokenError(
            f"{answer.what}: the token from {source} lacks the scope {lacking}"
            f" (it has {_scopes_text(answer)})",
            hint=f"add {lacking} at https://github.com/settings/tokens, or "
            f"`gh auth refresh --scopes {lacking}`",
        )
    if answer.status == _FORBIDDEN and _FINE_GRAINED.search(said):
        wanted = clean_line(answer.headers.get("x-accepted-github-permissions", ""), 100)
        needs = f" (it would need {wanted})" if wanted else ""
        return TokenError(
            f"{answer.what}: the token from {source} may not do that there{needs}: {said}",
            hint=_hint(answer.what, named=bool(wanted)),
        )
    return None


def _hint(what: str, *, named: bool) -> str:
    """Return what to do about a token that may not do what was asked, `METHOD /path`."""
    if _OPENING.fullmatch(what):
        return _HANDOFF
    return _PERMISSION if named else _ANY_PERMISSION


def _lacking_scope(answer: Answer) -> str:
    """Return the scope that a classic token lacks, or nothing.

    GitHub hides behind a 404 what a token may not write. But a 404 also says that an object
    is not there, so it is put down to the token only where no public write could succeed.
    """
    if "x-oauth-scopes" not in answer.headers:
        return ""  # a fine-grained token
    has, accepted = _scopes(answer, "x-oauth-scopes"), _scopes(answer, "x-accepted-oauth-scopes")
    if not accepted or has & accepted or ("repo" in has and "public_repo" in accepted):
        return ""
    if answer.status == _FORBIDDEN or (
        answer.status == _NOT_FOUND
        and not has & _WRITING
        and accepted & _WRITING
        and not answer.what.startswith("GET ")
    ):
        return "public_repo" if "public_repo" in accepted else clean_line(min(accepted), 50)
    return ""


def _scopes(answer: Answer, header: str) -> set[str]:
    return {name.strip() for name in answer.headers.get(header, "").split(",") if name.strip()}


def _scopes_text(answer: Answer) -> str:
    return clean_line(", ".join(sorted(_scopes(answer, "x-oauth-scopes"))), 100) or "none"
