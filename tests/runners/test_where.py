"""Which repository a queue is."""

from __future__ import annotations

import pytest

from contribbot.errors import UsageError
from contribbot.github.auth import Server
from contribbot.runners.actions import repository_of
from tests.runners.conftest import Ranged
from tests.toy import git


@pytest.mark.parametrize(
    ("remote", "repository"),
    [
        ("https://{host}/ada/patches.git", "ada/patches"),
        ("https://ada:secret@{host}/ada/patches", "ada/patches"),
        ("git@{host}:ada/patches.git", "ada/patches"),
        ("ssh://git@{host}/ada/patches.git", "ada/patches"),
        ("https://gitlab.example/ada/patches", None),
        ("/srv/patches", None),
        (None, None),
    ],
)
def test_which_repository_a_queue_is(
    ranged: Ranged, remote: str | None, repository: str | None
) -> None:
    git(ranged.folder, "init", "-q")
    if remote:
        git(ranged.folder, "remote", "add", "origin", remote.format(host="github.com"))
    if repository:
        assert repository_of(ranged.folder, "", Server(), {}) == repository
        return
    with pytest.raises(UsageError) as raised:
        repository_of(ranged.folder, "", Server(), {})
    assert "--repo OWNER/NAME" in raised.value.hint
