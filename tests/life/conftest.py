"""An upstream with a history of releases, each of which does something else to the patch."""

from __future__ import annotations

import pytest

from tests.toy import AREA, Toy, contents, git

#: Lines before the change: the patch applies at another place.
SHIFTED = AREA.replace('"""Areas."""', '"""Areas.\n\nOf plane figures.\n"""')
#: A line near the change is another: only a merge can tell that both can stay.
BESIDE = SHIFTED.replace("(width, height)", "(width, height=1)")
#: What the patch changes was changed, and is still wrong.
WRONG = SHIFTED.replace("return width + height", "return height + width + 0")
#: Mended in other words.
MENDED = SHIFTED.replace("return width + height", "return height * width")
#: Mended in the patch's own words.
TAKEN = SHIFTED.replace("return width + height", "area = width * height\n    return area")


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of an upstream with tags v1.0 to v1.5, at v1.0."""
    toy = Toy(tmp_path_factory.mktemp("history"))
    for tag, area in (
        ("v1.1", SHIFTED), ("v1.2", BESIDE), ("v1.3", WRONG), ("v1.4", MENDED), ("v1.5", TAKEN),
    ):  # fmt: skip
        toy.change({"src/toy/area.py": area}, f"Toy {tag}")
        git(toy.upstream, "tag", tag)
    git(toy.upstream, "reset", "-q", "--hard", "v1.0")
    return contents(toy.upstream)


@pytest.fixture
def releases(toy: Toy, history: dict[str, bytes], outcome_cache: None) -> Toy:
    """Give the toy one patch, `area`, and an upstream with a history."""
    del outcome_cache
    for path, content in history.items():
        toy.write(path, content)
    toy.put_area()
    git(toy.queue, "init", "-q")
    return toy
