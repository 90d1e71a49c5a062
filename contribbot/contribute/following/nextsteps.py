"""What is next for a contribution, and for whom."""

from __future__ import annotations

from typing import Final

from contribbot.contribute.following.subject import Subject
from contribbot.model.follow import Followed, Step

_YOU: Final = "you"
_SHORT: Final = 12


def steps(found: Followed, subject: Subject, head: str) -> tuple[Step, ...]:
    """Return what is next, what concerns the person first."""
    if found.state not in {"draft", "open"}:
        return tuple(Step(who=_YOU, what=one) for one in _of_ended(found, subject))
    if not found.queued:
        return (Step(who=_YOU, what="close it on its page, or see it through there"),)
    return tuple(_of_open(found, subject, head))


def _of_ended(found: Followed, subject: Subject) -> list[str]:
    name, above = found.patch, subject.above
    if found.state == "not opened":
        return [f"open the pull request on GitHub, or with contribbot open-pr {name}"]
    if not found.queued:
        return []
    if found.state in {"merged", "landed"}:
        stand = f"{', '.join(above)} {'stands' if len(above) == 1 else 'stand'} on it"
        moved = f"move the pin to a release that has it (contribbot rebase): {stand}"
        return [moved if above else f"take it out of the queue: contribbot retire {name}"]
    if found.state == "reverted":
        return [f"read why {found.reverted[:_SHORT]} took it back"]
    if found.state == "closed":
        return [f"read why it was closed; reopen it, or contribbot retire {name} --why REASON"]
    return []


def _of_open(found: Followed, subject: Subject, head: str) -> list[Step]:
    told = [Step(who=_YOU, what=one) for one in _yours(found, subject, head)]
    if found.start:
        waiting = ", ".join(one.target for one in found.ci if one.state == "not started")
        told.append(Step(who="anyone entitled", what=f"start CI for {waiting}: {found.start}"))
    if any(one.running for one in (*found.ci, *([found.other] if found.other else []))):
        told.append(Step(who="CI", what="end its jobs"))
    if found.state == "draft":
        return told
    if found.decision == "none":
        told.append(Step(who="reviewers", what="review it"))
    elif found.decision == "approved" and not told:
        # Its branch holds the commits of those below it too.
        on = f"; it stands on {', '.join(subject.waits)}" if subject.waits else ""
        told.append(Step(who="maintainers", what=f"merge it{on}"))
    return told


def _yours(found: Followed, subject: Subject, head: str) -> list[str]:
    name, rules = found.patch, subject.rules
    told = []
    if not subject.is_ours(head):
        where = f"{head[:_SHORT]} on {subject.known.branch}"
        told.append(f"look at {where}, which contribbot did not make: nothing here proves it")
    if found.mergeable == "no":
        told.append(f"bring it onto {found.base}, with which it conflicts")
    elif found.behind and rules is not None and rules.ci.current:
        told.append(f"bring it up to date: CI refuses a branch behind {found.base}")
    if found.threads.open:
        count = found.threads.open
        what = "thread" if count == 1 else "threads"
        told.append(f"answer {count} open {what}: contribbot reviews {name}")
    if found.decision == "changes requested":
        told.append(f"see to the changes that {', '.join(found.by)} asked for")
    broken = [one.target for one in found.ci if one.state == "failed"]
    if found.other is not None and found.other.state == "failed":
        broken.append("other jobs")
    if broken:
        told.append(f"see why CI failed: {', '.join(broken)}")
    if found.state == "draft" and not told:
        told.append("mark it ready for review, when it is")
    return told
