from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.errors import SourceError
from contribbot.git.pins.index import PipConfig, read_pip_config


def config_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_file_gives_everything(bare_pip: Path, patch: pytest.MonkeyPatch) -> None:
    path = bare_pip / "pip.conf"
    config_file(
        path,
        "[global]\n"
        "index-url = https://me:p%%40ss=w'ord@one.invalid/simple\n"
        "extra-index-url =\n    https://two.invalid/simple\n    https://three.invalid/simple\n"
        "find-links = folder-a folder-b\n"
        "trusted-host = one.invalid two.invalid:8080\n"
        "cert = /c.pem\nclient-cert = /k.pem\nproxy = http://proxy.invalid:1\ntimeout = 7\n"
        "[install]\nno-index = true\n"
        "[list]\nindex-url = https://other.invalid/\n",
    )
    patch.setenv("PIP_CONFIG_FILE", str(path))
    found = read_pip_config()
    assert "p%%40ss" not in f"{found} {found!r}"
    assert found == PipConfig(
        index_url="https://me:p%%40ss=w'ord@one.invalid/simple",
        extra_index_url=("https://two.invalid/simple", "https://three.invalid/simple"),
        find_links=("folder-a", "folder-b"),
        no_index=False,
        trusted_host=("one.invalid", "two.invalid:8080"),
        cert="/c.pem",
        client_cert="/k.pem",
        proxy="http://proxy.invalid:1",
        timeout=7.0,
    )


def test_the_download_section_and_then_the_environment_win(
    bare_pip: Path, patch: pytest.MonkeyPatch
) -> None:
    path = bare_pip / "pip.conf"
    assert read_pip_config() == PipConfig()
    config_file(
        path,
        "[download]\nindex-url = https://download.invalid/\nno-index = yes\ntimeout = 3\n"
        "[global]\nindex-url = https://global.invalid/\nfind-links = folder\n",
    )
    patch.setenv("PIP_CONFIG_FILE", str(path))
    found = read_pip_config()
    assert (found.index_url, found.no_index) == ("https://download.invalid/", True)
    patch.setenv("PIP_INDEX_URL", "https://env.invalid/")
    patch.setenv("PIP_NO_INDEX", "0")
    patch.setenv("PIP_FIND_LINKS", "")
    found = read_pip_config()
    assert (found.index_url, found.no_index) == ("https://env.invalid/", False)
    assert found.find_links == ("folder",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[download]\ntimeout = soon\n", "timeout: "),
        ("[global\nindex-url = https://me:s3cret@one.invalid/\n",
         "pip is not installed, or cannot read its configuration"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_without_its_content(
    bare_pip: Path, patch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    config_file(bare_pip / "pip.conf", text)
    patch.setenv("PIP_CONFIG_FILE", str(bare_pip / "pip.conf"))
    with pytest.raises(SourceError, match=words) as caught:
        read_pip_config()
    assert "s3cret" not in str(caught.value)
