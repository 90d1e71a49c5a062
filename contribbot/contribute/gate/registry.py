"""The rules of the gate, in the order in which they are shown. A new rule is one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from contribbot.contribute.gate import commits, content, needed, proof, remote
from contribbot.contribute.gate.case import Case, Finding, NotAskedError, line
from contribbot.contribute.text.templates import rules_of
from contribbot.errors import GitHubError, UsageError
from contribbot.model.gate import Gate, Row, RowState
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


@dataclass(frozen=True)
class Rule:
    """A rule."""

    name: str
    judge: Callable[[Case], Finding]
    #: Whether `open-pr` does something about it by itself.
    mended_by_opening: bool = False


RULES: Final = (
    Rule("title", commits.title),
    Rule("sign-off", commits.sign_off),
    Rule("ai-trailer", commits.ai_trailer),
    Rule("issue", content.issue),
    Rule("issue-open", content.issue_open),
    Rule("tests", content.tests),
    Rule("prose", content.prose),
    Rule("words", content.words),
    Rule("evidence", proof.evidence),
    Rule("targets", proof.targets),
    Rule("not-run", proof.not_run),
    Rule("body", content.body),
    Rule("template", content.template),
    Rule("docs", content.docs),
    Rule("labels", content.labels),
    Rule("lint", content.lint),
    Rule("ci", content.ci),
    Rule("stack", remote.stack),
    Rule("upstream", remote.upstream),
    Rule("expiry", needed.expiry),
    Rule("own-pr", needed.own_pr),
    Rule("branch", remote.branch, mended_by_opening=True),
    Rule("open-prs", remote.open_prs),
    Rule("duplicates", remote.duplicates),
)


def judge(
    queue: Queue,
    name: str,
    github: GitHub | None,
    *,
    broken: GitHubError | None = None,
    server: str = "",
    now: datetime | None = None,
) -> Gate:
    """Judge a patch by every rule of its upstream."""
    patch = queue.patch(name)
    if not patch.files:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
    case = Case(
        queue=queue,
        patch=patch,
        rules=rules_of(queue, patch.spec.upstream),
        github=github,
        broken=broken,
        server=server,
        now=now or datetime.now(UTC).replace(microsecond=0),
    )
    return Gate(
        patch=name,
        upstream=patch.upstream.name,
        repository=patch.upstream.repository,
        rows=tuple(_row(rule, case) for rule in RULES),
        candidates=remote.answered(case),
        limits=case.look.limits if case.look else (),
        looked=case.looked,
    )


def _row(rule: Rule, case: Case) -> Row:
    case.asked = False
    try:
        finding = rule.judge(case)
    except NotAskedError:
        finding = Finding(RowState.NOT_LOOKED_AT, "GitHub was not asked (--offline)")
    except GitHubError as error:
        finding = Finding(RowState.UNKNOWN, error.message, error.hint)
    return Row(
        rule=rule.name,
        state=finding.state,
        seen=line(finding.seen) or "nothing",
        next=line(finding.next),
        github=case.asked,
        mended_by_opening=rule.mended_by_opening,
        searched=finding.searched,
    )
