"""Opens the pull request of a test in a process of its own, so that it can be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from contribbot.contribute import open_pr
from contribbot.contribute.model import Body
from contribbot.github.client import Waits, connect
from contribbot.queue.load import Queue, load_queue
from tests.contribute.opening import written


def main() -> None:
    folder, title, body = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def text(queue: Queue, name: str) -> Body:
        del queue, name
        return written(title, body)

    open_pr.attested_text = text
    queue = load_queue(folder)
    with connect(waits=Waits(between_writes=0)) as client:
        list(open_pr.open_all(queue, ["area"], client, open_pr.OpenOptions()))


if __name__ == "__main__":
    main()
