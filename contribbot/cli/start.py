"""`contribbot init` and `pin add`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Final

from contribbot.cli.command import Reply, argument, command, live_lines, open_queue
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, Code
from contribbot.queue.new import AddedPin, BegunQueue, add_pin, init_queue


@command("init my-queue")
def init(
    folder: Annotated[
        Path | None,
        argument("DIR", "An empty folder, or a repository.", default="the current folder"),
    ] = None,
) -> Reply:
    """Begin a queue: patches/queue.toml, runners.toml, .gitignore."""
    place = folder or current_settings().queue or Path()
    begun = BegunQueue(folder=str(place.resolve()), written=tuple(init_queue(place)))
    lines: list[Block] = [f"{begun.folder}: an empty queue, with {', '.join(begun.written)}"]
    if place.resolve() != Path.cwd():
        lines.append(Code(f"  cd {shlex.quote(str(place))}"))
    if not any((above / ".git").exists() for above in (place.resolve(), *place.resolve().parents)):
        lines.append(
            "  not in git: after `git init`, each operation on it is logged and can be undone"
        )
    lines.append("  pin a release: contribbot pin add sglang VERSION (or newest; or vllm, torch)")
    return Reply(begun, lines)


@command("pin add sglang newest")
def pin_add(
    upstream: Annotated[str, argument("UPSTREAM", "Its name: sglang, vllm, torch, ….")],
    release: Annotated[str, argument("RELEASE", "The version, its tag, or newest.")],
) -> Reply:
    """Pin a release: look it up at pip's package index, check it, write it into queue.toml."""
    queue = open_queue()
    with live_lines() as lines:
        added = add_pin(queue, upstream, release, progress=lines.download())
    return Reply(added, pin_lines(added))


_DIGESTS: Final = {
    "sdist": "computed from the file",
    "wheel": "computed from the file",
    "installed": "from the index; the tree is that of the installed package",
}


def pin_lines(added: AddedPin) -> list[Block]:
    """Return a pin and the source of its digest."""
    lines: list[Block] = [f"{added.upstream} {added.tag}: pinned in patches/queue.toml"]
    if added.file:
        lines += [
            f"  file    {added.file}",
            f"  from    {added.place}",
            f"  sha256  {added.sha256} ({_DIGESTS.get(added.kind, 'from the index')})",
            "  From now on any other file is refused; that this one is genuine, the index says.",
        ]
        if added.file.endswith(".whl"):
            lines.append("  A wheel of any platform will do: it is read, not installed.")
    return [*lines, f"  begin a patch: contribbot new NAME --title T --pin {added.tag}"]
