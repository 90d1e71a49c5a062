"""Turn a refusal by GitHub into an error that says the cause and the user's next step."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from contribbot.errors import GitHubError, NotFoundError, RateLimitError, RefusedError, TokenError

#: The errors of a refusal: where GraphQL refuses, REST may do the same.
REFUSED: Final = (NotFoundError, RefusedError, TokenError)
_LONGEST: Final = 300
_WRITING: Final = frozenset({"public_repo", "repo"})
_FINE_GRAINED: Final = r"not accessible by (personal access token|integration|fine-grained)"
#: GitHub's words if an organisation takes no classic token, or none with so long a lifetime.
_FORBIDDEN_KIND: Final = r"forbids access via a (fine-grained )?personal access token"
_WORKFLOW: Final = r"without [`'\"]?workflows?[`'\"]? (scope|permission)"
_HANDOFF: Final = (
    "a fine-grained token cannot open pull requests in repositories of others: use a classic "
    "token with the scope public_repo, or `contribbot open-pr --handoff NAME`"
)
_PERMISSION: Final = (
    "give the token the permission that {}; in repositories of others a fine-grained one "
    "gets none, and a classic one with the scope public_repo may write"
)
_INTEGRATION: Final = (
    "it is an App's or a job's of Actions: give that the permission, or use a classic token of your"
    " own with the scope public_repo"
)
_OTHER_KIND: Final = (
    "make one of the kind that it takes, at https://github.com/settings/tokens; or, to open a pull"
    " request there, `contribbot open-pr --handoff NAME`"
)
#: The next steps by status, if GitHub's words vary; else by the first pattern that fits the words.
PROXY_LOGIN: Final = "it wants a login: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
_BY_STATUS: Final = {
    407: f"the proxy: {PROXY_LOGIN}",
    451: "GitHub blocks it for legal reasons: see its page",
}
_STEPS: Final = (
    (r"\bsecret", "take the secret out of the patch and revoke it: GitHub stored nothing"),
    (r"drafts?\b.* not supported", "it takes no drafts: give open-pr --ready"),
    (r"forking is disabled|cannot fork", "it allows no forks: ask on its page how to send changes"),
    (r"pull requests (are|is) disabled", "see on its page where the project takes changes"),
    (r"\barchived\b", "its owners take no changes any more: see on its page where it went"),
    (r"\bmigrat", "GitHub moves the repository: run it again when that is done"),
    (r"no commits between", "the upstream has all of it: contribbot status --against newest"),
    (r"too quickly|too many requests", "wait some minutes and run it again"),
    (
        r"(limit|too many|maximum).*open pull requests|open pull requests.*limit",
        "the project takes no more of yours for now: close one there, or wait until one is merged",
    ),
    (r"IP allow list|IP address", "ask from an address that the organisation allows"),
    (r"two.factor|2FA", "switch it on at https://github.com/settings/security"),
    (
        r"OAuth App access",
        "ask an owner to approve the app, or make a token at https://github.com/settings/tokens",
    ),
    (r"diff exceeded|too large", "take its commits from a clone: contribbot new NAME REPO BRANCH"),
    (r"not all refs", "GitHub has not copied all of the repository yet: run it again in a minute"),
    (
        r"\bcollaborators?\b|\binteractions?\b|\bblocked\b",
        "it lets only some people write for now: wait, or ask a maintainer on another way",
    ),
    (r"email.* verif|verif.* email", "verify your address at https://github.com/settings/emails"),
    (r"suspended", "GitHub suspended the account: write to https://support.github.com"),
    (r"\blocked\b", "ask a maintainer to unlock the conversation"),
    (r"actions\b.* (disabled|not)\b", "permit Actions in the settings of the repository"),
    (r"api.version", "bring contribbot up to date: this version of GitHub's API has ended"),
    (r"already exists", "GitHub's lists lag behind what is there: run it again in a minute"),
    (r"rule violations|protected branch", "a rule of that repository forbids it: see its settings"),
)
_HINTS: Final = {
    404: "check the name; what is private or gone looks the same",
    409: "another change came between; run it again",
    410: "it was taken away, or is switched off there: see its page",
}
#: The next step for a 404 on git objects, which a new fork gives while it is being made.
_NO_OBJECTS: Final = (
    "GitHub may still be making the fork: run it again in some minutes; else check the name"
)
_REFUSED: Final = "see on its page what it allows, and whether the token may do it"
#: The next step if GitHub refuses a branch because of changed or missing workflow files.
WORKFLOW_HINT: Final = (
    "give a classic token the scopes repo and workflow (gh auth refresh --scopes repo,workflow):"
    " with public_repo alone GitHub takes no branch that touches .github/workflows, or whose fork"
    " lags behind on them"
)


def refusal(
    what: str, status: int, headers: Mapping[str, str], body: str, source: str
) -> GitHubError:
    """Return the error for a failed request; header names are in lower case."""
    reason = words_of(body)
    words = reason or f"HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED:
        return TokenError(
            f"GitHub does not accept the token from {source}: {words}",
            hint="it may have expired: make a new one, or log in again with `gh auth login`",
        )
    # After the last attempt the words are gone: the retries have read the body.
    used_up = not reason and headers.get("x-ratelimit-remaining") == "0"
    if status == HTTPStatus.TOO_MANY_REQUESTS or "rate limit" in reason.lower() or used_up:
        return RateLimitError(f"{what}: {words}", hint="wait some minutes and run it again")
    cause = _cause(what, status, headers, reason) if status in {403, 404, 422} else None
    if cause is not None:
        return TokenError(f"{what}: the token from {source} {cause[0]}", hint=cause[1])
    by_words = (hint for words, hint in _STEPS if re.search(words, reason, re.IGNORECASE))
    known = _BY_STATUS.get(status) or next(by_words, "")
    if status == HTTPStatus.NOT_FOUND:
        making = re.match("POST .*/git/", what)
        hint = known or (_NO_OBJECTS if making else _HINTS[404])
        return NotFoundError(f"{what}: {words}", hint=hint)
    hint = known or _HINTS.get(status, _REFUSED)
    return RefusedError(f"{what}: {words}", status=status, hint=hint)


def _cause(
    what: str, status: int, headers: Mapping[str, str], reason: str
) -> tuple[str, str] | None:
    """Return a fault of the token and the next step; None: the token is not the cause."""
    why = hint = ""
    if re.search(_WORKFLOW, reason, re.IGNORECASE):
        why, hint = f"lacks the scope workflow: {reason}", WORKFLOW_HINT
    elif status == HTTPStatus.FORBIDDEN and re.search(_FORBIDDEN_KIND, reason, re.IGNORECASE):
        why = f"is of a kind that the organisation does not take: {reason}"
        hint = _OTHER_KIND
    elif status == HTTPStatus.FORBIDDEN and headers.get("x-github-sso", "").startswith("required"):
        why = "is not authorised for that organisation (single sign-on)"
        hint = "authorise it at https://github.com/settings/tokens, under Configure SSO"
    elif scope := _lacking_scope(what, status, headers):
        scopes = ", ".join(sorted(_scopes(headers, "x-oauth-scopes")))
        why = f"lacks the scope {scope} (it has {clean_line(scopes, 100) or 'none'})"
        hint = f"add {scope} with `gh auth refresh --scopes {scope}`, or on GitHub's page"
    elif status == HTTPStatus.FORBIDDEN and re.search(_FINE_GRAINED, reason, re.IGNORECASE):
        needed = clean_line(headers.get("x-accepted-github-permissions", ""), 100)
        needs = f" (it would need {needed})" if needed else ""
        why = f"may not do that there{needs}: {reason}"
        opening = re.fullmatch(r"POST /repos/[^/]+/[^/]+/pulls", what)
        named = "is named" if needed else "this needs"
        hint = _HANDOFF if opening else _PERMISSION.format(named)
        hint = _INTEGRATION if "integration" in reason.lower() else hint
    return (why, hint) if why else None


def _lacking_scope(what: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Return the scope that a classic token lacks; None: no scope is known to be missing."""
    # A 404 can also mean a missing object; blame the token only if it may not write at all.
    has, accepted = _scopes(headers, "x-oauth-scopes"), _scopes(headers, "x-accepted-oauth-scopes")
    fine_grained = "x-oauth-scopes" not in headers
    enough = has & accepted or ("repo" in has and "public_repo" in accepted)
    if fine_grained or not accepted or enough:
        return None
    hidden = not has & _WRITING and accepted & _WRITING and not what.startswith("GET ")
    if status == HTTPStatus.FORBIDDEN or (status == HTTPStatus.NOT_FOUND and hidden):
        return "public_repo" if "public_repo" in accepted else clean_line(min(accepted), 50)
    return None


def _scopes(headers: Mapping[str, str], name: str) -> set[str]:
    return {scope.strip() for scope in headers.get(name, "").split(",") if scope.strip()}


def words_of(body: str) -> str:
    """Return GitHub's own words for a refusal in one clean line, or empty."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    errors = answer.get("errors")
    parts = [answer.get("message")]
    for error in errors[:5] if isinstance(errors, list) else []:
        known = error if isinstance(error, dict) else {"message": error}
        codes = (str(known[key]) for key in ("resource", "field", "code") if key in known)
        parts.append(known["message"] if "message" in known else " ".join(codes))
    return clean_line(": ".join(part for part in parts if part and isinstance(part, str)))


def clean_line(text: str, longest: int = _LONGEST) -> str:
    """Return a server's text as one printable line of limited length."""
    line = " ".join(text[: 4 * longest].split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
