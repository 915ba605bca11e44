"""Training: configurations, the loop, runs on disk."""

from sbmt.experiments.training.config import SIZES, RepeatedTokensConfig
from sbmt.experiments.training.evaluate import Evaluation, evaluate
from sbmt.experiments.training.loop import Step, build_model, train
from sbmt.experiments.training.runs import Run, load_run

__all__ = ["SIZES", "Evaluation", "RepeatedTokensConfig", "Run", "Step", "build_model", "evaluate", "load_run", "train"]
