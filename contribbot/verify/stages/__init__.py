"""The registry of stages, in the order in which they run; those of a row side by side."""

from __future__ import annotations

from typing import Final

from contribbot.verify.job import Stage
from contribbot.verify.stages.apply import ApplyStage
from contribbot.verify.stages.bench import BenchStage
from contribbot.verify.stages.build import BuildStage
from contribbot.verify.stages.compile import CompileStage
from contribbot.verify.stages.hipify import HipifyStage
from contribbot.verify.stages.numerics import NumericsStage
from contribbot.verify.stages.reproduce import ReproduceStage
from contribbot.verify.stages.source import SourceStage
from contribbot.verify.stages.style import StyleStage
from contribbot.verify.stages.witness import WitnessStage

STAGES: Final[tuple[tuple[Stage, ...], ...]] = (
    (SourceStage(),),
    (ApplyStage(),),
    (StyleStage(),),
    (HipifyStage(),),
    (CompileStage(),),
    (BuildStage(),),
    (ReproduceStage(), NumericsStage()),
    (WitnessStage(),),
    (BenchStage(),),
)
