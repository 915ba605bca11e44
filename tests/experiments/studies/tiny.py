"""The demo's study of repeated tokens, with runs that take only a moment."""

from dataclasses import replace

from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training import RepeatedTokensConfig

TINY = RepeatedTokensConfig(
    length=8, batch_size=4, steps=3, d_model=8, d_hidden=8, options={"n_clusters": 4}, test_sequences=16
)
DEMO = replace(STUDIES["demo"], config=TINY)
