"""How long cells take, as far as the kept records tell."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from contribbot.model.evidence import HOST_TARGETS, SEEN
from contribbot.model.patch import Patch, units_of
from contribbot.runners.seen import Facts

#: Seconds of a unit of a stage of which no record tells. Of the order that this
#: project's own records show on CPU and on one NVIDIA GPU; half of the 5 to 10 minutes
#: that vLLM's AMD CI builds, twice (base and patched), for a full build.
DEFAULTS: Final[Mapping[str, float]] = {
    "source": 30.0, "apply": 1.0, "style": 1.0, "hipify": 8.0, "compile": 20.0, "build": 60.0,
    "reproduce": 20.0, "numerics": 20.0, "bench": 30.0,
}  # fmt: skip
FULL_BUILD: Final = 900.0
#: No unit of work takes a day: what says so was not measured.
_LONGEST: Final = 24 * 3600.0
Basis = Literal["records", "other records", "default"]
_ORDER: Final[tuple[Basis, ...]] = ("records", "other records", "default")


class Times:
    """Estimates from records: the longest that a unit took, else what others took."""

    def __init__(self, facts: Iterable[Facts]) -> None:
        self._exact: dict[tuple[str, str, str, str], float] = {}
        self._patch: dict[tuple[str, str], list[float]] = {}
        self._stage: dict[str, list[float]] = {}
        for one in facts:
            for seen in one.seen:
                if seen.outcome not in SEEN:
                    continue
                if seen.seconds > _LONGEST:
                    continue
                key = (one.patch, seen.stage, seen.label, seen.target)
                self._exact[key] = max(seen.seconds, self._exact.get(key, 0.0))
                self._patch.setdefault((one.patch, seen.stage), []).append(seen.seconds)
                self._stage.setdefault(seen.stage, []).append(seen.seconds)
        self._units: dict[str, tuple[tuple[str, str, str], ...]] = {}
        self._median = {stage: statistics.median(times) for stage, times in self._stage.items()}

    def unit(self, patch: Patch, stage: str, label: str, target: str) -> tuple[float, Basis]:
        """Return the seconds of one unit of work, and where they are from."""
        exact = self._exact.get((patch.name, stage, label, target))
        if exact is not None:
            return exact, "records"
        if stage == "build" and any(
            one.name == label and one.way == "full" for one in patch.spec.build
        ):
            return FULL_BUILD, "default"
        others = self._patch.get((patch.name, stage))
        if others:
            return statistics.median(others), "other records"
        if stage in self._median:
            return self._median[stage], "other records"
        return DEFAULTS[stage], "default"

    def _units_of(self, patch: Patch) -> tuple[tuple[str, str, str], ...]:
        if patch.name not in self._units:
            self._units[patch.name] = units_of(patch)
        return self._units[patch.name]

    def host(self, patch: Patch) -> float:
        """Return the seconds of what every verification of a patch does, on any machine.

        What brings the pinned tree is not in it: see `shared`.
        """
        return sum(
            self.unit(patch, stage, label, target)[0]
            for stage, label, target in self._units_of(patch)
            if target in HOST_TARGETS and stage != "source"
        )

    def compiled(self, patch: Patch, target: str = "") -> tuple[float, Basis]:
        """Return the seconds of what is compiled for a target, or for all of them."""
        return self._sum(
            patch,
            [
                unit
                for unit in self._units_of(patch)
                if unit[0] == "compile" and target in {"", unit[2]}
            ],
        )

    def ran(self, patch: Patch, target: str) -> tuple[float, Basis]:
        """Return the seconds of what runs on a target; of a full build only the patched side."""
        seconds, basis = self._sum(
            patch,
            [unit for unit in self._units_of(patch) if unit[0] != "compile" and unit[2] == target],
        )
        return seconds - self._base_builds(patch, target), basis

    def shared(self, patch: Patch, target: str = "") -> float:
        """Return the seconds of what patches on the same pin need once in a job.

        It is bringing the tree and, for a target, building all of the base.
        """
        source = self.unit(patch, "source", "", "any")[0]
        # A store that is there already says nothing of a job's empty one.
        return max(source, DEFAULTS["source"]) + self._base_builds(patch, target)

    def _base_builds(self, patch: Patch, target: str) -> float:
        if patch.spec.depends_on:
            return 0.0
        return sum(
            self.unit(patch, "build", one.name, target)[0] / 2
            for one in patch.spec.build
            if one.way == "full" and target in one.targets
        )

    def _sum(self, patch: Patch, units: list[tuple[str, str, str]]) -> tuple[float, Basis]:
        told = [self.unit(patch, *unit) for unit in units]
        worst = max((_ORDER.index(basis) for _, basis in told), default=0)
        return sum(seconds for seconds, _ in told), _ORDER[worst]
