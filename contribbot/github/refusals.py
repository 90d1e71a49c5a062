"""What a refusal of GitHub's means, and what a person can do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from contribbot.errors import GitHubError, NotFoundError, RefusedError, TokenError

_LONGEST: Final = 300
#: Scopes that let a classic token write to public repositories.
_WRITING: Final = frozenset({"public_repo", "repo"})
#: What a fine-grained token, or one of an app, is told.
_FINE_GRAINED: Final = re.compile(
    r"not accessible by (personal access token|integration|fine-grained)", re.IGNORECASE
)
#: What a classic one is told where its kind is not taken, or for too long.
_FORBIDDEN_KIND: Final = re.compile(
    r"forbids access via a (fine-grained )?personal access token", re.IGNORECASE
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
_OTHER_KIND: Final = (
    "make one of the kind that it takes, at https://github.com/settings/tokens; or, to open a pull"
    " request there, `contribbot open-pr --handoff`"
)
_HINTS: Final = {
    409: "another change came between; run it again",
    451: "GitHub blocks it for legal reasons",
}
#: A branch of a fork is held back where it has, or lacks, changes of workflows.
WORKFLOW_HINT: Final = (
    "give a classic token the scopes repo and workflow (gh auth refresh --scopes repo,workflow):"
    " with public_repo alone GitHub takes no branch that touches .github/workflows, or whose fork"
    " lags behind on them"
)


def refusal(
    what: str, status: int, headers: Mapping[str, str], body: str, source: str
) -> GitHubError:
    """Return the error for an answer (header names in lower case) that is not a success."""
    said = words_of(body)
    words = said or f"HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED:
        return TokenError(
            f"GitHub does not accept the token from {source}: {words}",
            hint="it may have expired: make a new one, or log in again with `gh auth login`",
        )
    for holds, why, hint in _causes(what, status, headers, said):
        if holds and status in {403, 404, 422}:
            return TokenError(f"{what}: the token from {source} {why}", hint=hint)
    if status == HTTPStatus.NOT_FOUND:
        return NotFoundError(
            f"{what}: {words}", hint="check the name; what is private or gone looks the same"
        )
    return RefusedError(f"{what}: {words}", status=status, hint=_HINTS.get(status, ""))


def _causes(
    what: str, status: int, headers: Mapping[str, str], said: str
) -> tuple[tuple[bool, str, str], ...]:
    """Return whether each thing that a token may lack is why, in words, with what to do."""
    forbidden, lacking = status == HTTPStatus.FORBIDDEN, _lacking_scope(what, status, headers)
    scopes = clean_line(", ".join(sorted(_scopes(headers, "x-oauth-scopes"))), 100) or "none"
    wanted = clean_line(headers.get("x-accepted-github-permissions", ""), 100)
    needs = f" (it would need {wanted})" if wanted else ""
    permission = _PERMISSION if wanted else _ANY_PERMISSION
    return (
        (bool(_WORKFLOW.search(said)), f"lacks the scope workflow: {said}", WORKFLOW_HINT),
        (
            forbidden and bool(_FORBIDDEN_KIND.search(said)),
            f"is of a kind that the organisation does not take: {said}",
            _OTHER_KIND,
        ),
        (
            forbidden and headers.get("x-github-sso", "").startswith("required"),
            "is not authorised for that organisation (single sign-on)",
            "authorise it at https://github.com/settings/tokens, under Configure SSO",
        ),
        (
            bool(lacking),
            f"lacks the scope {lacking} (it has {scopes})",
            f"add {lacking} with `gh auth refresh --scopes {lacking}`, or on GitHub's page",
        ),
        (
            forbidden and bool(_FINE_GRAINED.search(said)),
            f"may not do that there{needs}: {said}",
            _HANDOFF if _OPENING.fullmatch(what) else permission,
        ),
    )


def _lacking_scope(what: str, status: int, headers: Mapping[str, str]) -> str:
    """Return the scope that a classic token lacks, or nothing.

    GitHub hides behind a 404 what a token may not write. But a 404 also says that an object
    is not there, so it is put down to the token only where no public write could succeed.
    """
    if "x-oauth-scopes" not in headers:
        return ""  # a fine-grained token
    has, accepted = _scopes(headers, "x-oauth-scopes"), _scopes(headers, "x-accepted-oauth-scopes")
    if not accepted or has & accepted or ("repo" in has and "public_repo" in accepted):
        return ""
    hidden = not has & _WRITING and accepted & _WRITING and not what.startswith("GET ")
    if status == HTTPStatus.FORBIDDEN or (status == HTTPStatus.NOT_FOUND and hidden):
        return "public_repo" if "public_repo" in accepted else clean_line(min(accepted), 50)
    return ""


def _scopes(headers: Mapping[str, str], name: str) -> set[str]:
    return {one.strip() for one in headers.get(name, "").split(",") if one.strip()}


def words_of(body: str) -> str:
    """Return GitHub's words for a refusal, in one clean line; may be empty."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict):
        return ""
    parts = [told["message"]] if isinstance(told.get("message"), str) else []
    errors = told.get("errors")
    for error in errors[:5] if isinstance(errors, list) else []:
        if isinstance(error, str):
            parts.append(error)
        elif isinstance(error, dict) and isinstance(error.get("message"), str):
            parts.append(error["message"])
        elif isinstance(error, dict):
            parts.append(" ".join(str(error[key]) for key in ("resource", "field", "code")
                                  if key in error))  # fmt: skip
    return clean_line(": ".join(part for part in parts if part))


def clean_line(text: str, longest: int = _LONGEST) -> str:
    """Return a text of a server as one printable line of bounded length."""
    line = " ".join(text[: 4 * longest].split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
