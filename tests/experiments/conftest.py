"""Small prepared examples of every task, and settings of runs on them that take a second, on a CPU."""

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
    """They would take a third of the time; the tests of the library check the same functions."""
    if request.path.parent.name in ("training", "studies", "cli", "sparsification", "plots"):
        jaxtyping.config.update("jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def no_folders_of_the_user(monkeypatch, tmp_path_factory):
    """Nothing is read from the user's data, nor written beside them: what a test needs it makes."""
    for name in ("SBMT_CACHE", "SBMT_DATA"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / "nowhere"))


@pytest.fixture(scope="session")
def toy_cache(tmp_path_factory):
    """A folder of prepared examples: ``toy-listops``, ``toy-text``, ``toy-retrieval``, ``toy-image``."""
    cache = tmp_path_factory.mktemp("cache")
    for task in KINDS:
        prepare(toy_source(task), cache)
    return cache


@pytest.fixture
def toys(no_folders_of_the_user, toy_cache, monkeypatch):
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
            embedding_std=1.0,
            option_defaults=SMALL_OPTIONS,
        )
        return LongRangeConfig(task=task, **settings).override(**changes)

    return make


@pytest.fixture(scope="session")
def language_cache(tmp_path_factory):
    """A folder of prepared examples: ``corpus``, with its tokeniser, ``sst2`` and ``mnli``."""
    files, cache = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("cache")
    prepare(corpus_source(write_corpus(files / "lm"), vocab_size=VOCABULARY), cache)
    write_glue(files)
    for task in ("sst2", "mnli"):
        prepare(glue_files(task, files), cache)
    return cache


@pytest.fixture
def language(no_folders_of_the_user, language_cache, monkeypatch):
    """Makes the small text the one that runs find; returns its folder."""
    monkeypatch.setenv("SBMT_CACHE", str(language_cache))
    return language_cache


@pytest.fixture
def caches(no_folders_of_the_user, toy_cache, language_cache, monkeypatch, tmp_path):
    """Makes all small examples those that runs find."""
    for prepared in (*toy_cache.iterdir(), *language_cache.iterdir()):
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / prepared.name).symlink_to(prepared)
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tiny_mlm():
    """Makes a configuration of a small pre-training run, with the changes that are named."""
    return lambda **changes: MlmConfig(**NETWORK, **TRAINING, embedding_std=0.3).override(**changes)


@pytest.fixture(scope="session")
def tiny_glue(language_cache):
    """Makes a configuration of a small fine-tuning run, which begins anew unless it names a run to start from."""

    def make(task="sst2", **changes):
        tokenizer = "" if "pretrained" in changes else str(language_cache / "corpus" / "tokenizer.json")
        start = {"tokenizer": tokenizer, "pretrained": changes.pop("pretrained", ""), "embedding_std": 1.0}
        return GlueConfig(task=task, **NETWORK | TRAINING | start).override(**changes)

    return make


@pytest.fixture(scope="session")
def pretrained(language_cache, tiny_mlm, tmp_path_factory):
    """Pre-trains once per set of changes; returns the run's folder."""
    folders = {}

    def get(**changes):
        key = tuple(sorted(changes.items()))
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("mlm") / "run"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SBMT_CACHE", str(language_cache))
                fit(tiny_mlm(**changes), folders[key], accelerator="cpu")
        return folders[key]

    return get
