"""What opening a pull request uses, put together: the body, the attestation, the branch's name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from contribbot.contribute.attest import require
from contribbot.contribute.attested import searched
from contribbot.contribute.opening.branch import branch_of
from contribbot.contribute.opening.opened import Tools
from contribbot.contribute.opening.updating import Text
from contribbot.contribute.text.body import make_body
from contribbot.git.source import Progress
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


def tools_for(queue: Queue, github: GitHub, *, web: str, progress: Progress) -> Tools:
    """Return what opening the pull requests of a queue uses."""

    def text(patch: Patch) -> Text:
        made = make_body(queue, patch.name, searched=searched(queue, patch.name))
        return Text(made.title, made.text)

    def attested(patch: Patch, written: Text) -> None:
        require(queue, patch, written)

    return Tools(
        github=github,
        text=text,
        attested=attested,
        branch=branch_of,
        server=os.environ.get("GITHUB_SERVER_URL") or web,
        progress=progress,
    )
