"""Whether a pull request of somebody is the same change as a patch, or holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from contribbot.contribute.gate.ours import Ours
from contribbot.contribute.gate.patchids import patch_id, patch_ids
from contribbot.errors import RefusedError

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

#: `whole`: the same change. `within`: one of its commits is. `commit`: it has one of ours.
Same = Literal["whole", "within", "commit", ""]
#: Pull requests whose commits are read one by one, a request each.
SERIES: Final = 10
_TOO_LARGE: Final = 406


@dataclass
class Comparison:
    """Compares pull requests with a patch, the most alike first, as many as it may."""

    github: GitHub
    ours: Ours
    limits: list[str] = field(default_factory=list)
    asked: int = 0

    def same(self, repository: str, number: int, *, alone: bool) -> Same:
        """Say how much of a pull request is the patch."""
        self.asked += 1
        if self.asked > SERIES:
            return ""
        try:
            ids = patch_ids(self.github.diff(repository, number, commits=True))
            # One commit is all of it; of several, the sum is another diff.
            whole = (ids[0] if len(ids) == 1 else self._sum(repository, number)) if alone else ""
        except RefusedError as error:
            if error.status != _TOO_LARGE:
                raise
            self.limits.append(f"{repository}#{number}: no diff: {error.message}")
            return ""
        return self._judged(ids, whole)

    def _sum(self, repository: str, number: int) -> str:
        return patch_id(self.github.diff(repository, number))

    def _judged(self, ids: tuple[str, ...], whole: str) -> Same:
        ours = self.ours.ids
        if whole and whole == ours.whole:
            return "whole"
        if ours.whole in ids:
            return "within"
        return "commit" if ours.commits & {whole, *ids} else ""

    def said(self) -> list[str]:
        """Return what was not compared, a line each."""
        if self.asked <= SERIES:
            return self.limits
        return [
            *self.limits,
            f"the commits of {SERIES} of {self.asked} pull requests were compared",
        ]
