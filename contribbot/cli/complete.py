"""What the shell offers after Tab: read from queue.toml alone."""

from __future__ import annotations

from pathlib import Path

_GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
_TARGETS = ("cpu", "cuda", *_GPUS, *(f"compile:{gpu}" for gpu in _GPUS))


def _queue() -> dict[str, object]:
    """Return the queue.toml around the current folder; nothing where it cannot be read."""
    import tomllib  # noqa: PLC0415  every --help imports this module

    here = Path.cwd()
    for folder in (here, *here.parents):
        try:
            return tomllib.loads((folder / "patches/queue.toml").read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            break
    return {}


def _beginning(words: object, incomplete: str) -> list[str]:
    listed = words if isinstance(words, list | tuple) else ()
    return [str(word) for word in listed if str(word).startswith(incomplete)]


def patch_names(incomplete: str) -> list[str]:
    """Return the patches that begin so, in the queue's order."""
    return _beginning(_queue().get("order"), incomplete)


def pin_tags(incomplete: str) -> list[str]:
    """Return the tags of pins that begin so."""
    pins = _queue().get("pins")
    rows = pins if isinstance(pins, list) else []
    return _beginning([row.get("tag") for row in rows if isinstance(row, dict)], incomplete)


def target_names(incomplete: str) -> list[str]:
    """Return the usual targets that begin so."""
    return _beginning(_TARGETS, incomplete)
