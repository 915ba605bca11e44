"""Small prepared examples of every task, and settings of runs on them that take a second, on a CPU."""

import pytest

from sbmt.tasks.prepared import prepare
from sbmt.training.long_range import LongRangeConfig
from tests.tasks.toy import KINDS, toy_source


@pytest.fixture(scope="session")
def toy_cache(tmp_path_factory):
    """A folder of prepared examples: ``toy-listops``, ``toy-text``, ``toy-retrieval``, ``toy-image``."""
    cache = tmp_path_factory.mktemp("cache")
    for task in KINDS:
        prepare(toy_source(task), cache)
    return cache


@pytest.fixture
def toys(toy_cache, monkeypatch):
    """Makes the small examples those that runs find; returns their folder."""
    monkeypatch.setenv("SBMT_CACHE", str(toy_cache))
    return toy_cache


@pytest.fixture(scope="session")
def tiny():
    """Makes a configuration of a small run, with the changes that are named."""

    def make(task="listops", **changes):
        settings = dict(
            data=f"toy-{task}",
            length=64 if task == "image" else 20,
            batch_size=8,
            steps=6,
            warmup_steps=1,
            eval_every=2,
            learning_rate=0.01,
            d_model=8,
            d_hidden=8,
            n_clusters=4,
            rank=4,
            chunk=4,
            embedding_std=1.0,
        )
        return LongRangeConfig(task=task, **settings | changes)

    return make
