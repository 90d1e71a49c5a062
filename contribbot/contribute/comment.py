"""The comment to leave at somebody else's pull request: what was run, and how to repeat it."""

from __future__ import annotations

from typing import Final

from contribbot.contribute.body import rules_of, template_environment, visible_words
from contribbot.contribute.figures import facts_of, gather, grid_of, not_run
from contribbot.contribute.model import GITHUB_LIMIT, Comment
from contribbot.errors import OpeningError, QueueError, UsageError, install
from contribbot.git.patch_format import commit_of, patch_id
from contribbot.markdown import JOINER, fence
from contribbot.model.history import VersionEvent
from contribbot.model.patch import PROOF, Patch, PatchFile
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.superseded import superseded
from contribbot.queue.toml_edit import stated_proof

#: Lines of a check that a reader may be shown; a longer one is named. Words in sight.
_LINES: Final = 60
_WORDS: Final = 120


def make_comment(queue: Queue, name: str) -> Comment:
    """Make the comment from fresh evidence; nothing of the pull request's own text is in it."""
    patch = queue.patch(name)
    if patch.spec.pull is None:
        raise UsageError(
            f"{name}: nothing says of which pull request of somebody else's it is",
            hint=f'write `pull = "OWNER/REPO#N"` below `title` in {patch.folder / "patch.toml"}',
        )
    if found := superseded(queue, name):
        hint = f"nothing is to be said there; take it out: contribbot queue retire {name}"
        raise OpeningError(f"{name}: {found.words}", hint=hint)
    evidence = gather(queue, name, prose=False)
    facts, _ = facts_of(evidence)
    grid = grid_of(evidence, rules_of(queue, patch.spec.upstream))
    extras = ("compile", "emulate") if patch.spec.emulated else ("compile",)
    stated = patch.spec.model_dump(mode="json", include={*PROOF}, exclude_defaults=True)
    names = {
        "evidence": evidence, "facts": facts, "upstream": patch.upstream, "tag": patch.pin.tag,
        "patch": patch.name, "pull": patch.spec.pull, "count": len(patch.files),
        "commit": _commit(queue, patch), "records": patch.spec.contribution.records,
        "ids": [patch_id(file.content)[:12] for file in patch.files],
        "checks": [(file.name, _code(file)) for file in patch.support],
        "stated": fence(stated_proof(stated), language="toml").replace(JOINER, ""),
        "install": install(",".join(extras)),
        "emulated": any(figure.tells for figure in evidence.of("emulate")),
        "not_run": not_run(grid),
    }  # fmt: skip
    text = template_environment(queue).get_template("comment.md.j2").render(names).strip() + "\n"
    words = visible_words(text)
    for number, most, what in (
        (words, _WORDS, "words in sight"), (len(text), GITHUB_LIMIT, "characters"),
    ):  # fmt: skip
        if number > most:
            why = f"{name}: the comment has {number:,} {what}, and {most:,} is the most"
            raise QueueError(why, hint="state fewer checks, targets or patches below it")
    return Comment(
        patch=patch.name, repository=patch.upstream.repository, text=text, words=words,
        records=evidence.records,
    )  # fmt: skip


def _commit(queue: Queue, patch: Patch) -> str:
    """Return the pull request's last commit, if the files are still those that were taken."""
    taken = {
        event.digest
        for event in history.read(queue.folder, patch.name)
        if isinstance(event, VersionEvent) and event.why == "import"
    }
    commits = [commit_of(file.content) for file in patch.files]
    return commits[-1] if patch.digest in taken and all(commits) else ""


def _code(file: PatchFile) -> str:
    if (lines := file.content.count(b"\n")) > _LINES:
        return f"(not shown: it has {lines} lines)"
    # It is copied from there; and a comment, unlike a body, never becomes a commit's message.
    text = file.content.decode("utf-8", "replace")
    language = "python" if file.name.endswith(".py") else ""
    return fence(text, language=language).replace(JOINER, "")
