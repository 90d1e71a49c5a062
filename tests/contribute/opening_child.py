"""Opens the pull request of a test in a process of its own, so that it can be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from contribbot.contribute.open_pr import Opened, Tools, Wanted, open_all
from contribbot.github.client import connect
from contribbot.github.waits import Waits
from contribbot.queue.load import load_queue
from tests.contribute.opening import written


def main() -> None:
    """Open `area` of the queue that is named, with the title and body that are given."""
    folder, title, body = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    queue = load_queue(folder)
    with connect(queue.local / "github", waits=Waits(between_writes=0)) as client:
        tools = Tools(
            github=client,
            text=lambda _patch: written(title, body),
            attested=lambda _text: None,
            server=client.server.web,
        )
        told: list[Opened] = []
        open_all(queue, ["area"], tools, Wanted(), told=told.append)


if __name__ == "__main__":
    main()
