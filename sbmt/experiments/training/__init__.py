"""Training: configurations of every task, one function that trains them all, and runs on disk."""

from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.evaluate import Evaluation, evaluate
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.run import SHIPPED, SHIPPED_FITTED, Run, Scores, Step, load_run
from sbmt.experiments.training.tasks.language import GlueConfig, MlmConfig
from sbmt.experiments.training.tasks.long_range import LongRangeConfig
from sbmt.experiments.training.tasks.recall import RecallConfig
from sbmt.experiments.training.tasks.repeated_tokens import SIZES, RepeatedTokensConfig
from sbmt.experiments.training.tasks.twins import TwinsConfig

__all__ = [
    "SHIPPED",
    "SHIPPED_FITTED",
    "SIZES",
    "Evaluation",
    "GlueConfig",
    "LongRangeConfig",
    "MlmConfig",
    "RecallConfig",
    "RepeatedTokensConfig",
    "Run",
    "Scores",
    "Step",
    "TwinsConfig",
    "build_model",
    "evaluate",
    "fit",
    "load_run",
]
