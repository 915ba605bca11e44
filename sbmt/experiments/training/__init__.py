"""Training: configurations of all tasks, the function that trains a model, and saved runs."""

from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.evaluate import Evaluation, evaluate
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.generated import SIZES, MultiQueryConfig, RecallConfig, RepeatedTokensConfig
from sbmt.experiments.training.run import SHIPPED, SHIPPED_FITTED, Run, Scores, Step, load_run
from sbmt.experiments.training.tasks import GlueConfig, LanguageModelConfig, LongRangeConfig, MlmConfig

__all__ = ["SHIPPED", "SHIPPED_FITTED", "SIZES", "Evaluation", "Run", "Scores", "Step"]
__all__ += ["GlueConfig", "LanguageModelConfig", "LongRangeConfig", "MlmConfig"]
__all__ += ["MultiQueryConfig", "RecallConfig", "RepeatedTokensConfig", "build_model", "evaluate", "fit", "load_run"]
