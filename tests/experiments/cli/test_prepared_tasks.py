"""Tests ``sbmt train``, ``glue``, ``evaluate``, ``predict`` and ``inspect`` on small prepared examples."""

import json
import shutil

import pytest
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from typer.testing import CliRunner

from sbmt.experiments.cli import app, train
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.studies import language as language_studies
from sbmt.experiments.training import fit
from sbmt.experiments.training.tasks import REDUCED
from tests.experiments.data.glue_layout import table
from tests.experiments.data.toy import toy_source
from tests.experiments.training.runs import stop_after
from tests.experiments.training.tiny_language import N_TEST, N_TRAIN, write_corpus, write_glue

SMALL = "--batch-size 8 --steps 4 --warmup-steps 1 --eval-every 2 --d-model 8 --d-hidden 8 --embedding-std 0.3".split()
LISTOPS = ["train", "listops", "--reduced", "--length", "20", "--n-clusters", "4", *SMALL, "--output", "r"]
MLM = ["train", "mlm", "--length", "16", "--n-heads", "2", "--n-layers", "2", "--learning-rate", "0.01", *SMALL]


@pytest.fixture
def toys(run, tmp_path):
    """Provides prepared examples under the names that the reduced runs use."""
    prepare(toy_source(name=REDUCED["listops"].data_name), tmp_path / "cache")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Prepares text and trains a model on it, once, by the commands themselves."""
    folder = tmp_path_factory.mktemp("made")
    write_corpus(folder / "data" / "lm")
    write_glue(folder / "data")
    environment = {f"SBMT_{name.upper()}": str(folder / name) for name in ("cache", "data")}
    corpus, sst2 = ["data", "prepare", "corpus", "--vocab-size", "280"], ["data", "prepare", "sst2"]
    for command in (corpus, sst2, [*MLM, "--output", str(folder / "mlm")]):
        done = CliRunner().invoke(app, command, env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def text(run, made, tmp_path):
    """Copies the same files to the folder of this test: ``cache``, ``data``, ``mlm``."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)


@pytest.mark.usefixtures("toys")
def test_train_and_evaluate_a_long_range_task(succeed, refused, tmp_path):
    out = succeed(*LISTOPS)
    assert "Test, 13 examples: accuracy" in out and "95 % interval" in out and "chance" in out
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert f"accuracy {result['test']['accuracy']:.4f}" in out
    assert "Test, 13 examples: accuracy" in succeed("evaluate", "r", "--n-samples", "2")
    assert "Test, 5 examples" in succeed("evaluate", "r", "--sequences", "5")
    out = succeed("inspect", "r", "--examples", 12, "--seed", 5, "--query", 0, "--output", "seen.png")
    assert "95 % interval" in out and (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    refused("inspect r --examples 1", "at least 2 examples")
    refused("inspect r --query 99", "a query position in")


@pytest.mark.usefixtures("toys")
def test_a_run_that_has_no_checkpoint_yet_offers_no_resume(run, monkeypatch):
    monkeypatch.setattr(train, "numbers_of", lambda step: stop_after(1, KeyboardInterrupt)(step) or "")
    code, out, _ = run(*LISTOPS)
    assert code == 130 and "--resume" not in out


@pytest.mark.usefixtures("toys")
def test_of_several_processes_one_speaks(succeed, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert f"Run: {LISTOPS[-1]}" in succeed(*LISTOPS)  # a single process, whatever the variables say
    monkeypatch.setattr(train, "fit", lambda *given, **where: fit(*given, **where | {"devices": 1}))
    assert succeed(*LISTOPS, "--devices", "2", "--output", "of two") == ""


@pytest.mark.usefixtures("text")
def test_pretrain_fine_tune_evaluate_predict(succeed, refused, tmp_path):
    out = succeed(*MLM, "--output", "again", "--attention", "full")
    result = json.loads((tmp_path / "again" / "result.json").read_text())
    assert f"perplexity {result['test']['metrics']['perplexity']:.4f}" in out

    tuned = "train glue --task sst2 --from mlm --batch-size 8 --output tuned --epochs 2 --learning-rate 0.02".split()
    out = succeed(*tuned)
    result = json.loads((tmp_path / "tuned" / "result.json").read_text())
    assert f"Test, {N_TEST} examples: accuracy {result['test']['accuracy']:.4f}" in out
    assert f"pipeline f1 {result['test']['metrics']['pipeline_f1']:.4f}" in out
    config, epoch = result["config"], -(-N_TRAIN // 8)
    assert (config["steps"], config["warmup_steps"], config["eval_every"]) == (2 * epoch, 0, epoch)
    assert config["d_model"] == 8 and config["options"]["window"] == 64 and config["learning_rate"] == 0.02

    (tmp_path / "test.tsv").write_bytes(table("sst2", [("good film",), ("",), ("bad",)], None))
    (tmp_path / "mnli.tsv").write_bytes(table("mnli", [("a film", "a good film")], None))
    refused("predict mlm test.tsv", "task to be one of 'sst2'")
    refused("predict tuned mnli.tsv", "the columns sentence in line 1")
    refused("predict tuned test.tsv --output test.tsv", "an output file other than")
    shutil.rmtree(tmp_path / "mlm")  # a finished run no longer needs it
    assert "Test, 5 examples" in succeed("evaluate", "tuned", "--n-samples", "2", "--sequences", "5")
    succeed("inspect", "tuned", "--examples", 12, "--output", "seen.png")
    assert "3 answers" in succeed("predict", "tuned", "test.tsv", "--output", "answers/SST-2.tsv")
    lines = (tmp_path / "answers" / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2"]
    assert all(line.split("\t")[1] in "01" for line in lines[1:])


@pytest.mark.usefixtures("text")
def test_glue_prints_a_table_for_each_study(succeed, tmp_path, monkeypatch, tiny_mlm):
    monkeypatch.setattr(language_studies, "REDUCED_MLM", tiny_mlm(steps=2, warmup_steps=0))
    command = "glue --trial sbm --trial random-equal --task sst2 --reduced --output g".split()
    out = succeed(*command)
    results = json.loads((tmp_path / "g" / "result.json").read_text())
    assert list(results) == ["mlm", "sst2"]
    assert "Test: masked language model" in out and "Test: SST-2" in out


@pytest.mark.bad_input
@pytest.mark.usefixtures("text", "toys")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train listops", "sbmt data prepare listops"),
        ("train glue --task cola --from mlm", "task to be one of 'sst2'"),
        ("train glue --task sst2", "got neither"),
        ("train glue --task qqp --from mlm", "sbmt data prepare qqp"),
        ("glue --seeds 0", "1 to 10,000 seeds"),
    ],
)
def test_mistakes_take_one_line(refused, tmp_path, command, words):
    refused(command, words)
    assert not [path for path in tmp_path.glob("runs/**/*") if path.is_file()]


@pytest.mark.bad_input
def test_a_query_is_refused_for_images(run, refused, caches, tiny, tmp_path):
    fit(tiny("image"), tmp_path / "r")
    refused("inspect r --query 3", "a run on texts for --query")
    assert not list(tmp_path.glob("*.png"))
