"""What the name of contribbot's own wheel tells, which `workflows pin` cannot open."""

from __future__ import annotations

from importlib import metadata
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

_OURS = "contribbot"


def wheel_note(url: str) -> str:
    """Say what of a wheel's name is not what is installed here; or nothing.

    All that contribbot needs is pinned as it is installed here: another version of it may need
    something else, and runners would tell so only when they install it.

    Args:
        url: Where the wheel is.
    """
    try:
        name, version, _, _ = parse_wheel_filename(unquote(urlsplit(url).path).rpartition("/")[2])
    except InvalidWheelFilename:
        return ""
    here = metadata.version(_OURS)
    if name != _OURS:
        return f"--contribbot: its name says that it is {name}, which pip will not take for {_OURS}"
    if version != Version(here):
        return (f"--contribbot: its name says {version}, and {here} is what pinned it: what it "
                "needs is pinned as this one needs it")  # fmt: skip
    return ""
