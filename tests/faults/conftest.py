"""Fixtures: small prepared examples, and finished and interrupted runs of every kind, made by the commands."""

import os
import shutil

import jaxtyping
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from sbmt.experiments.cli import app
from sbmt.experiments.data.corpus import corpus_source
from sbmt.experiments.data.glue import glue_files
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.generated import GeneratedConfig, RepeatedTokensConfig
from sbmt.experiments.training.run import read_config
from tests.experiments.benchmarks.tiny import use_tiny_grids
from tests.experiments.cli.conftest import call_main
from tests.experiments.data.glue_layout import table
from tests.experiments.data.toy import toy_source
from tests.experiments.training.runs import Stopped, stop_after
from tests.experiments.training.tiny_language import VOCABULARY, write_corpus, write_glue

LANGUAGE = (
    "--length 16 --d-model 8 --d-hidden 8 --n-heads 2 --n-layers 2 "
    "--batch-size 4 --steps 6 --warmup-steps 1 --eval-every 2 --learning-rate 0.01 --attention full"
)
TRAINING = {
    "repeated": "train repeated-tokens --length 8 --batch-size 4 --steps 12 --d-model 8 --d-hidden 8 "
    "--test-sequences 8 --attention full",
    "listops": "train listops --data toy-listops --length 20 --batch-size 8 --steps 6 --warmup-steps 1 --eval-every 2 "
    "--d-model 8 --d-hidden 8 --embedding-std 1 --attention full",
    "mlm": f"train mlm {LANGUAGE} --embedding-std 0.3",
    "sst2": f"train glue --task sst2 --from mlm {LANGUAGE}",
}
"""Arguments that train the runs of the fixture ``made``."""


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Makes ``data``, ``cache``, ``answers.tsv``, and the runs of ``TRAINING``, finished and interrupted.

    Processes that share the tests share this folder.
    """
    place = tmp_path_factory.getbasetemp()
    folder = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "made"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            with pytest.MonkeyPatch.context() as patch:
                make(folder.with_name("making"), patch)
            folder.with_name("making").rename(folder)
    return folder


def save_often(patch):
    patch.setattr(GeneratedConfig, "checkpoint_every", 4)


def make(folder, patch):
    jaxtyping.config.update("jaxtyping_disable", True)  # as in whole runs; a fixture of each test restores it
    prepare(toy_source(), folder / "cache")
    prepare(corpus_source(write_corpus(folder / "data" / "lm"), vocab_size=VOCABULARY), folder / "cache")
    prepare(glue_files("sst2", write_glue(folder / "data", ["sst2"])), folder / "cache")
    (folder / "answers.tsv").write_bytes(table("sst2", [("good film",), ("",), ("bad",)], None))
    patch.setenv("SBMT_CACHE", str(folder / "cache"))
    save_often(patch)
    patch.chdir(folder)
    for name, command in TRAINING.items():
        done = CliRunner().invoke(app, [*command.split(), "--output", name], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        with pytest.raises(Stopped):
            fit(read_config(folder / name), folder / f"{name}-begun", resume=False, on_step=stop_after(5))


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """Copies :func:`made` to the working folder, where the test may damage it; ``study tiny`` has two runs."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    for name in ("cache", "data"):
        monkeypatch.setenv(f"SBMT_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    save_often(monkeypatch)
    config = RepeatedTokensConfig(length=8, batch_size=4, steps=12, d_model=8, d_hidden=8, test_sequences=8)
    trials = (Trial("full", "full attention", {"attention": "full"}),)
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "two runs", config, trials, n_seeds=2))
    use_tiny_grids(monkeypatch)
    return tmp_path


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Calls ``sbmt`` with the words of a line, and returns the exit code, output and errors."""
    return lambda line: call_main(monkeypatch, capsys, *line.split())
