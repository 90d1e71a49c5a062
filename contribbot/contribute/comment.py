"""The comment to leave at somebody else's pull request: what was run, and how to repeat it."""

from __future__ import annotations

from typing import Final

from contribbot.contribute.body import rules_of, template_environment, visible_words
from contribbot.contribute.figures import Evidence, facts_of, gather, grid_of, not_run
from contribbot.contribute.model import Comment
from contribbot.git.touched import patch_id
from contribbot.markdown import JOINER, fence
from contribbot.model.patch import PatchFile
from contribbot.queue.load import Queue

#: Lines of a check that a reader may be shown; a longer one is named.
_LINES: Final = 60


def make_comment(queue: Queue, name: str) -> Comment:
    """Make the comment from fresh evidence; nothing of the pull request's own text is in it."""
    evidence = gather(queue, name, prose=False)
    patch = evidence.patch
    facts, _ = facts_of(evidence)
    grid = grid_of(evidence, rules_of(queue, patch.spec.upstream))
    emulated = any(figure.tells for figure in evidence.of("emulate"))
    names = {
        "evidence": evidence, "facts": facts, "upstream": patch.upstream, "tag": patch.pin.tag,
        "patch": patch.name, "records": patch.spec.contribution.records,
        "ids": [patch_id(file.content)[:12] for file in patch.files],
        "checks": [(file.name, _code(file)) for file in _red_checks(evidence)],
        "emulated": emulated, "not_run": not_run(grid),
    }  # fmt: skip
    text = template_environment(queue).get_template("comment.md.j2").render(names).strip() + "\n"
    return Comment(
        patch=patch.name, repository=patch.upstream.repository, text=text,
        words=visible_words(text), records=evidence.records,
    )  # fmt: skip


def _red_checks(evidence: Evidence) -> list[PatchFile]:
    """Return the short ones among the files of checks that went from red to green."""
    patch = evidence.patch
    red = {figure.name for figure in evidence.figures if figure.red}
    files = {entry.file for entry in patch.spec.runs() if entry.name in red}
    short = (file for file in patch.support if file.content.count(b"\n") <= _LINES)
    return [file for file in short if file.name in files]


def _code(file: PatchFile) -> str:
    # It is copied from there; and a comment, unlike a body, never becomes a commit's message.
    text = file.content.decode("utf-8", "replace")
    return fence(text, language="python").replace(JOINER, "")
