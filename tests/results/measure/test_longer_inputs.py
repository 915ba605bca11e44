"""Enlarged images, on which networks are asked about longer inputs than those of training."""

import json

import pytest
import torch

import results.measure.longer_inputs as script
from results.measure.longer_inputs import enlarged, prolonged
from sbmt import SbmtError
from sbmt.models import Encoder, SequenceClassifier


def test_every_pixel_becomes_a_square():
    larger = enlarged(torch.tensor([[1, 2, 3, 4]]), 1, 16)
    assert larger.view(4, 4).tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]


def test_full_attention_answers_enlarged_images_alike():
    sizes = {"d_model": 8, "d_hidden": 8, "n_heads": 2, "n_layers": 2, "embedding_std": 1.0}
    model = SequenceClassifier(Encoder(5, 9, attention="full", **sizes), n_labels=2, d_hidden=8).double().eval()
    tokens = torch.randint(5, (3, 9))
    for length in (9, 36, 81):
        longer = prolonged("Pathfinder", model, length)(enlarged(tokens, 1, length))
        torch.testing.assert_close(longer.values, model(tokens).values)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The script's file, in which every task was measured before; nothing is measured again."""
    path = tmp_path / "longer_inputs.json"
    path.write_text(json.dumps({"tasks": {task: {"lengths": ["before"]} for task in script.TASKS}}))
    monkeypatch.setattr(script, "RESULT", path)
    monkeypatch.setattr(script, "measure", lambda task, on_batch: ["now"])
    return path


@pytest.mark.parametrize("names", [[], ["Text"]])
def test_tasks_that_are_not_named_stay_as_they_were(found, monkeypatch, names):
    monkeypatch.setattr("sys.argv", ["longer_inputs.py", *names])
    script.main()
    lengths = {task: about["lengths"] for task, about in json.loads(found.read_text())["tasks"].items()}
    assert lengths == {task: ["now"] if task in (names or script.TASKS) else ["before"] for task in script.TASKS}


@pytest.mark.bad_input
def test_an_unknown_task_is_refused(found, monkeypatch):
    monkeypatch.setattr("sys.argv", ["longer_inputs.py", "Films"])
    with pytest.raises(SbmtError, match="task among 'ListOps', 'Pathfinder', 'Text', got 'Films'"):
        script.main()
