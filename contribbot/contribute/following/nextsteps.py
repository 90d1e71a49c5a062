"""What is next for a contribution, and for whom."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.model.follow import Followed, Step
from contribbot.model.rules import Rules

_YOU = "you"


def steps(found: Followed, rules: Rules | None, *, above: Sequence[str] = ()) -> tuple[Step, ...]:
    """Return what is next, what concerns the person first.

    Args:
        found: Where the contribution stands.
        rules: What the upstream asks, where that is known.
        above: The patches of the queue that depend on it.
    """
    if found.state in {"draft", "open"}:
        return tuple(_of_open(found, rules))
    return tuple(Step(who=_YOU, what=one) for one in _of_ended(found, above))


def _of_ended(found: Followed, above: Sequence[str]) -> list[str]:
    name = found.patch
    if found.state == "not opened":
        return [f"open the pull request on GitHub, or with contribbot open-pr {name}"]
    if not found.queued:
        return []
    if found.state in {"merged", "landed"}:
        stand = f"{', '.join(above)} {'stands' if len(above) == 1 else 'stand'} on it"
        moved = f"move the pin to a release that has it (contribbot rebase): {stand}"
        return [moved if above else f"take it out of the queue: contribbot retire {name}"]
    if found.state == "reverted":
        return [f"read why {found.reverted[:12]} took it back"]
    if found.state == "closed":
        return [f"read why it was closed; reopen it, or contribbot retire {name} --why REASON"]
    return []


def _of_open(found: Followed, rules: Rules | None) -> list[Step]:
    name = found.patch
    told = [Step(who=_YOU, what=one) for one in _yours(found, rules, name)]
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
        told.append(Step(who="maintainers", what="merge it"))
    return told


def _yours(found: Followed, rules: Rules | None, name: str) -> list[str]:
    told = []
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
