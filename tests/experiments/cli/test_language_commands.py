"""``sbmt data``, ``train``, ``glue``, ``evaluate`` and ``predict`` on small text."""

import json
import shutil

import pytest

from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.studies import language as language_studies
from sbmt.experiments.training.tasks import MlmConfig
from tests.experiments.data.glue_layout import table
from tests.experiments.training.tiny_language import (
    N_MISMATCHED,
    N_TEST,
    N_TRAIN,
    NETWORK,
    TRAINING,
    write_corpus,
    write_glue,
)

SHAPE = ("--length 16 --d-model 8 --d-hidden 8 --n-heads 2 --n-layers 2 --embedding-std 0.3").split()
TRAIN = "--batch-size 4 --steps 4 --warmup-steps 1 --eval-every 2 --learning-rate 0.01".split()
FILES = ["config.json", "metrics.csv", "model.safetensors", "result.json", "tokenizer.json"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Prepared text, and a pre-training run on it, made once by the commands themselves."""
    from typer.testing import CliRunner

    from sbmt.experiments.cli import app

    folder = tmp_path_factory.mktemp("made")
    write_corpus(folder / "data" / "lm")
    write_glue(folder / "data")
    environment = {f"SBMT_{name.upper()}": str(folder / name) for name in ("cache", "data")}
    for command in (
        ["data", "prepare", "corpus", "--vocab-size", "280"],
        ["data", "prepare", "sst2"],
        ["train", "mlm", *SHAPE, *TRAIN, "--output", str(folder / "mlm")],
    ):
        done = CliRunner().invoke(app, command, env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def text(run, made, tmp_path):
    """The same in the folder of this test: ``cache``, ``data``, ``mlm``."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def n_prepared(tmp_path, name):
    splits = open_prepared(tmp_path / "cache" / name).splits
    return {split: len(examples) for split, examples in splits.items()}


def test_a_corpus_is_prepared_with_a_tokeniser_learnt_or_given(run, tmp_path):
    write_corpus(tmp_path / "data" / "lm")
    code, out, _ = run("data", "prepare", "corpus", "--vocab-size", "280")
    assert code == 0 and "corpus: own" in out and str(tmp_path / "cache" / "corpus") in out
    learnt = Tokenizer.load(tmp_path / "cache" / "corpus" / "tokenizer.json")
    assert learnt.vocab_size == 280
    (tmp_path / "mine.json").write_text(learnt.json)
    other = write_corpus(tmp_path / "other", seed=1)
    code, out, _ = run("data", "prepare", "corpus", "--from", other, "--tokenizer", "mine.json", "--reduced")
    assert code == 0 and "corpus-reduced: own" in out
    assert Tokenizer.load(tmp_path / "cache" / "corpus-reduced" / "tokenizer.json").sha256 == learnt.sha256
    code, _, err = run("data", "prepare", "corpus", "--from", other, "--tokenizer", "mine.json")
    assert code == 2 and "other settings" in err and err.count("\n") == 1
    code, out, _ = run("data", "list")
    assert code == 0 and "corpus: own" in out and "corpus-reduced: own" in out


def test_tables_are_prepared(run, tmp_path):
    write_glue(tmp_path / "data")
    code, out, _ = run("data", "prepare", "sst2")
    assert code == 0 and "sst2: official" in out and "1 document(s)" in out and "hides the labels" in out
    code, out, _ = run("data", "prepare", "mnli", "--from", tmp_path / "data" / "MNLI")
    assert code == 0 and "mismatched" in out and "2 document(s)" in out
    assert n_prepared(tmp_path, "mnli")["mismatched"] == N_MISMATCHED
    assert n_prepared(tmp_path, "sst2") == {"train": N_TRAIN, "dev": 4, "test": N_TEST}


@pytest.mark.usefixtures("text")
def test_pretrain_fine_tune_evaluate_predict(run, tmp_path):
    code, out, _ = run("train", "mlm", *SHAPE, *TRAIN, "--output", "again", "--attention", "full")
    result = json.loads((tmp_path / "again" / "result.json").read_text())
    assert code == 0 and f"perplexity {result['test']['metrics']['perplexity']:.4f}" in out
    assert f"From the frequency of tokens alone: perplexity {result['frequencies']['perplexity']:.1f}" in out
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == FILES
    for name, value in NETWORK.items():
        if name != "option_defaults":
            assert result["config"][name] == value

    code, out, _ = run("evaluate", "mlm", "--sequences", "5")
    assert code == 0 and "Test, 5 examples: accuracy" in out and "perplexity" in out

    tuned = ["train", "glue", "--task", "sst2", "--from", "mlm", "--batch-size", "8", "--output", "tuned"]
    code, out, _ = run(*tuned, "--epochs", "2", "--learning-rate", "0.02")
    result = json.loads((tmp_path / "tuned" / "result.json").read_text())
    assert code == 0 and f"Test, {N_TEST} examples: accuracy {result['test']['accuracy']:.4f}" in out
    assert "95 % interval" in out and "chance" in out and f"pipeline f1 {result['test']['metrics']['pipeline_f1']:.4f}"
    config = result["config"]
    assert (config["steps"], config["warmup_steps"], config["eval_every"]) == (
        2 * -(-N_TRAIN // 8),
        0,
        -(-N_TRAIN // 8),
    )
    assert config["d_model"] == 8 and config["options"]["window"] == 64  # the run's
    assert config["learning_rate"] == 0.02
    assert result["pretrained"]["folder"] == "mlm"
    code, _, err = run(*tuned)
    assert code == 2 and "--resume" in err and err.count("\n") == 1

    code, out, _ = run("evaluate", "tuned", "--n-samples", "2", "--sequences", "5")
    assert code == 0 and "Test, 5 examples: accuracy" in out
    (tmp_path / "test.tsv").write_bytes(table("sst2", [("good film",), ("",), ("bad",)], None))
    code, out, _ = run("predict", "tuned", "test.tsv", "--output", "answers/SST-2.tsv")
    assert code == 0 and "3 answers: answers/SST-2.tsv" in out
    lines = (tmp_path / "answers" / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2"]
    assert all(line.split("\t")[1] in "01" for line in lines[1:])


@pytest.mark.usefixtures("text")
def test_glue_prints_table_4(run, tmp_path, monkeypatch):
    small = MlmConfig(**NETWORK | TRAINING | {"steps": 2, "warmup_steps": 0})
    monkeypatch.setattr(language_studies, "REDUCED_MLM", small)
    trials = ["--trial", "sbm", "--trial", "random-equal"]
    command = ["glue", *trials, "--task", "sst2", "--reduced", "--output", "g", "--json", "copy.json"]
    code, out, _ = run(*command)
    assert code == 0
    results = json.loads((tmp_path / "g" / "result.json").read_text())
    assert json.loads((tmp_path / "copy.json").read_text()) == results and list(results) == ["mlm", "sst2"]
    for words in ("Guessing hidden tokens", "Accuracy in %", "The pipeline's F1 in %", "SST-2", "paper: Performer"):
        assert words in out
    for title in ("SBM and window", "random mask and window, SBM's density", "full attention, not pre-trained"):
        assert title in out
    model = tmp_path / "g" / "sst2" / "sbm-seed0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    code, again, _ = run(*command)
    assert code == 0 and again.splitlines()[-5:] == out.splitlines()[-5:]
    assert model.stat().st_mtime_ns == before  # what is done is not done again


@pytest.mark.bad_input
@pytest.mark.usefixtures("text")
def test_mistakes_exit_with_2_and_one_line(run, tmp_path):
    (tmp_path / "test.tsv").write_bytes(table("sst2", [("good",)], None))
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "bad.txt").write_bytes(b"a\nb\nc\n\xff\n")
    mistakes = {
        "data prepare corpus --vocab-size 300 --tokenizer mine.json": "leave one out",
        "data prepare corpus --from bad.txt --vocab-size 300 --replace": "line 4",
        "data prepare corpus --from nowhere": "*.txt",
        "data prepare corpus --vocab-size 100 --replace": "vocab_size ≥ 261",
        "data prepare sst2 --vocab-size 300": "only with corpus",
        "train mlm --data sst2": "examples of mlm, got sst2",
        "train glue --task cola --from mlm": "task among 'sst2'",
        "train glue --task sst2": "got neither",
        "train glue --task sst2 --from mlm --tokenizer mine.json": "got both",
        "train glue --task qqp --from mlm": "sbmt data prepare qqp",
        "train glue --task sst2 --from mlm --d-model 16": "the network of the run in mlm, got another d_model",
        "glue --trial random-equal": "the trial sbm, whose density",
        "glue --seeds 0": "seeds ≥ 1",
        "evaluate mlm --seed -1": "seed in [0, 2⁶²)",
        "predict mlm test.tsv": "a run of sbmt train glue",
    }
    for command, words in mistakes.items():
        code, out, err = run(*command.split())
        assert code == 2, (command, out, err)
        assert err.startswith("sbmt: expected ") and err.count("\n") == 1 and words in err, (command, err)
    assert not (tmp_path / "runs").exists()


@pytest.mark.bad_input
@pytest.mark.usefixtures("text")
def test_a_table_that_is_another_tasks_is_told(run, tmp_path):
    assert run("train", "glue", "--task", "sst2", "--from", "mlm", "--steps", "1", "--output", "tuned")[0] == 0
    (tmp_path / "mnli.tsv").write_bytes(table("mnli", [("a film", "a good film")], None))
    (tmp_path / "test.tsv").write_bytes(table("sst2", [("good",)], None))
    for arguments, words in (
        (["mnli.tsv"], "the columns sentence in line 1"),
        (["nowhere.tsv"], "nowhere.tsv"),
        (["test.tsv", "--n-samples", "0"], "n_samples ≥ 1"),
        (["test.tsv", "--seed", "-1"], "seed in"),
    ):
        code, _, err = run("predict", "tuned", *arguments)
        assert code == 2 and err.count("\n") == 1 and words in err, err
    shutil.rmtree(tmp_path / "mlm")  # a finished run needs it no more
    assert run("predict", "tuned", "test.tsv")[0] == 0 and run("evaluate", "tuned")[0] == 0
