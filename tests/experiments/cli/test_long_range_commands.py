"""``sbmt data``, ``train`` and ``evaluate`` on small examples of long-range tasks."""

import json

import pytest

from sbmt.experiments.cli import train
from sbmt.experiments.data.catalogue import CATALOGUE, Entry
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.training.tasks import REDUCED
from tests.experiments.data.toy import SIZES, toy_source

TINY = (
    "--length 20 --batch-size 8 --steps 4 --warmup-steps 1 --eval-every 2 --d-model 8 --d-hidden 8 --n-clusters 4 "
    "--embedding-std 1 --dropout 0"
).split()


@pytest.fixture
def toys(run, tmp_path):
    """Prepared examples under the names that the reduced runs look for."""
    for task in ("listops", "retrieval"):
        prepare(toy_source(task, name=REDUCED[task].data_name), tmp_path / "cache")


def test_data_are_prepared_and_listed(run, tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "listops", Entry(lambda _: None, toy_source, lambda: toy_source(name="toy-reduced")))
    code, out, _ = run("data", "list")
    assert code == 0 and "Nothing is prepared" in out and str(tmp_path / "data") in out
    for option in ([], ["--reduced"], []):  # what is there is shown again
        code, out, _ = run("data", "prepare", "listops", *option)
        assert code == 0 and "generated" in out and "train" in out
    code, out, _ = run("data", "list")
    assert code == 0 and "toy-listops" in out and "toy-reduced" in out
    row = next(line for line in out.splitlines() if " train " in line)
    assert str(sum(n for name, n in SIZES.items() if name.startswith("train"))) in row


def test_data_are_prepared_from_files_that_are_named(run, tmp_path):
    for part in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_bytes(b"1.0\ta\tb\tone\ttwo\n0.0\ta\tc\tone\tthree\n")
    code, out, _ = run("data", "prepare", "retrieval", "--from", tmp_path)
    assert code == 0 and "official" in out and "2 document(s)" in out and "0.50 0.50" in out
    (tmp_path / "new_aan_pairs.test.tsv").write_bytes(b"1.0\ta\tb\tother\ttext\n")
    code, _, err = run("data", "prepare", "retrieval", "--from", tmp_path)
    assert code == 2 and "other settings" in err
    assert run("data", "prepare", "retrieval", "--from", tmp_path, "--replace")[0] == 0


@pytest.mark.usefixtures("toys")
def test_train_and_evaluate(run, tmp_path):
    code, out, _ = run("train", "listops", "--reduced", *TINY, "--output", "r")
    assert code == 0 and "Test, 13 examples: accuracy" in out and "95 % interval" in out and "chance" in out
    files = ["config.json", "metrics.csv", "model.safetensors", "result.json"]
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == files
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert f"accuracy {result['test']['accuracy']:.4f}" in out
    assert result["config"]["task"] == "listops" and result["config"]["length"] == 20
    assert result["manifest"]["command"].startswith("sbmt train listops --reduced")
    code, out, _ = run("evaluate", "r", "--n-samples", "2")
    assert code == 0 and "Test, 13 examples: accuracy" in out
    code, out, _ = run("evaluate", "r", "--sequences", "5")
    assert code == 0 and "Test, 5 examples" in out
    code, out, err = run("train", "listops", "--reduced", *TINY, "--output", "r")
    assert code == 2 and "--resume" in err and err.count("\n") == 1


@pytest.mark.usefixtures("toys")
def test_an_interrupted_run_says_how_to_go_on(run, tmp_path, monkeypatch):
    def interrupt(step):
        if step.number == 3:
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(train, "numbers_of", interrupt)
        code, out, _ = run("train", "listops", "--reduced", *TINY, "--output", "r")
    assert code not in (0, 2) and "--resume" in out
    assert run("train", "listops", "--reduced", *TINY, "--output", "r", "--resume")[0] == 0
    assert not (tmp_path / "r" / "state.ckpt").exists()


@pytest.mark.usefixtures("toys")
def test_of_several_processes_one_speaks(run, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("train", "listops", "--reduced", *TINY, "--output", "r")[:2] == (0, "")


@pytest.mark.bad_input
@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("data prepare speech", "task among 'listops', 'text'"),
        ("data prepare listops --reduced --from nowhere", "leave one of the two out"),
        ("train listops", "sbmt data prepare listops"),
        ("train listops --data retrieval-reduced", "examples of listops, got retrieval"),
        ("train listops --reduced --steps 10", "warm up for fewer steps"),
        ("train listops --reduced --devices 0", "devices ≥ 1"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(run, tmp_path, arguments, words):
    code, _, err = run(*arguments.split())
    assert code == 2
    assert err.startswith("sbmt: expected ") and err.count("\n") == 1 and words in err
    assert not list(tmp_path.glob("runs/**/*.json"))


@pytest.mark.bad_input
@pytest.mark.usefixtures("toys")
def test_a_run_or_data_that_are_damaged_are_told(run, tmp_path):
    assert run("train", "listops", "--reduced", *TINY, "--output", "r")[0] == 0
    for wrong in ("--sequences", "--n-samples"):
        code, _, err = run("evaluate", "r", wrong, "0")
        assert code == 2 and err.count("\n") == 1
    code, _, err = run("evaluate", "r", "--seed", "-1")
    assert code == 2 and "seed in [0" in err
    (tmp_path / "cache" / REDUCED["listops"].data_name / "symbols.npy").write_bytes(b"")
    for command in (["evaluate", "r"], ["data", "list"], ["train", "listops", "--reduced", "--output", "r2"]):
        code, _, err = run(*command)
        assert code == 2 and "whole examples in" in err and err.count("\n") == 1
    (tmp_path / "r" / "result.json").unlink()
    code, _, err = run("evaluate", "r")
    assert code == 2 and "a finished run in r" in err and err.count("\n") == 1
