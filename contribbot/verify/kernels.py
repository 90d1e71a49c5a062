"""What a profiled check reports of the kernels that ran."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contribbot.model.base import Model

_Count = Annotated[int, Field(ge=1)]


class Kernels(Model):
    """The kernels that ran under one check on one tree.

    Attributes:
        seen: How often each ran, by name.
        blind: Why none, or not all, could be seen; or empty.
    """

    seen: dict[str, _Count] = Field(default_factory=dict)
    blind: str = ""
