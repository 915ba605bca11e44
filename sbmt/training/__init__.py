"""Training: configurations, the loop, runs on disk."""

from sbmt.training.config import SIZES, RepeatedTokensConfig
from sbmt.training.evaluate import Evaluation, evaluate
from sbmt.training.loop import Step, build_model, train
from sbmt.training.runs import Run, load_run

__all__ = ["SIZES", "Evaluation", "RepeatedTokensConfig", "Run", "Step", "build_model", "evaluate", "load_run", "train"]
