"""Fixtures: small prepared examples of every task, and settings of runs on them that take a second on a CPU."""

import jaxtyping
import pytest

from sbmt.experiments.data.corpus import corpus_source
from sbmt.experiments.data.glue import glue_files
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.tasks import GlueConfig, LongRangeConfig, MlmConfig
from tests.experiments.data.toy import KINDS, toy_source
from tests.experiments.training.tiny_language import (
    NETWORK,
    SMALL_OPTIONS,
    TRAINING,
    VOCABULARY,
    write_corpus,
    write_glue,
)


@pytest.fixture(autouse=True)
def no_shape_checks_in_whole_runs(request, no_shape_checks_on_bad_input):
    """Switches shape checks off, which take a third of the time; the library's tests check the same functions."""
    if request.path.parent.name in ("training", "studies", "cli", "sparsification", "plots"):
        jaxtyping.config.update("jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def no_folders_of_the_user(monkeypatch, tmp_path_factory):
    """Points the data folders at empty folders, so that tests neither read nor write the user's data."""
    for name in ("SBMT_CACHE", "SBMT_DATA"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / "nowhere"))


@pytest.fixture(scope="session")
def toy_cache(tmp_path_factory):
    """Prepares examples in a folder: toys, ``corpus`` with its tokeniser, ``sst2`` and ``mnli``."""
    files, cache = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("cache")
    write_glue(files)
    corpus = corpus_source(write_corpus(files / "lm"), vocab_size=VOCABULARY)
    for source in (*map(toy_source, KINDS), corpus, *(glue_files(task, files) for task in ("sst2", "mnli"))):
        prepare(source, cache)
    return cache


@pytest.fixture
def caches(no_folders_of_the_user, toy_cache, monkeypatch):
    """Makes the small examples available to runs, and returns their folder."""
    monkeypatch.setenv("SBMT_CACHE", str(toy_cache))
    return toy_cache


@pytest.fixture(scope="session")
def tiny():
    """Makes the configuration of a small run, with the given changes."""

    def make(task="listops", **changes):
        own = dict(data=f"toy-{task}", length=64 if task == "image" else 20, batch_size=8, embedding_std=1.0)
        settings = NETWORK | TRAINING | own | {"option_defaults": SMALL_OPTIONS}
        return LongRangeConfig(task=task, **settings).override(**changes)

    return make


@pytest.fixture(scope="session")
def tiny_mlm():
    """Makes the configuration of a small pre-training run, with the given changes."""
    return lambda **changes: MlmConfig(**NETWORK, **TRAINING, embedding_std=0.3).override(**changes)


@pytest.fixture(scope="session")
def tiny_glue(toy_cache):
    """Makes the configuration of a small fine-tuning run, from random weights unless it names another run."""

    def make(task="sst2", **changes):
        tokenizer = "" if "pretrained" in changes else str(toy_cache / "corpus" / "tokenizer.json")
        start = {"tokenizer": tokenizer, "pretrained": changes.pop("pretrained", ""), "embedding_std": 1.0}
        return GlueConfig(task=task, **NETWORK | TRAINING | start).override(**changes)

    return make


@pytest.fixture(scope="session")
def pretrained(toy_cache, tiny_mlm, tmp_path_factory):
    """Returns the folder of a pre-training run."""
    folder = tmp_path_factory.mktemp("mlm") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBMT_CACHE", str(toy_cache))
        fit(tiny_mlm(), folder, accelerator="cpu")
    return folder
