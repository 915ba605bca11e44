"""Settings of runs on long-range tasks: the paper's numbers, reduced ones, and how symbols become tokens."""

from dataclasses import asdict

from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.training.tasks import LONG_RANGE_TASKS, PAPER

SHARED = dict(n_layers=2, n_heads=2, d_model=64, d_hidden=128, dropout=0.1, attention_dropout=0.1)
TABLE_7 = {  # length, batch size, learning rate, steps
    "listops": (2048, 128, 5e-4, 5000),
    "text": (3072, 128, 5e-4, 20000),
    "retrieval": (4096, 32, 1e-4, 30000),
    "image": (1024, 1024, 5e-4, 35000),
    "pathfinder": (1024, 1024, 5e-4, 62400),
}


def test_presets_are_the_papers_table_7():
    assert tuple(PAPER) == LONG_RANGE_TASKS == tuple(TABLE_7)
    for task, (length, batch_size, rate, steps) in TABLE_7.items():
        values = asdict(PAPER[task])
        expected = dict(length=length, batch_size=batch_size, learning_rate=rate, steps=steps) | SHARED
        assert {name: values[name] for name in expected} == expected
        assert values["task"] == PAPER[task].data_name == task
        assert not values["quirks"] and values["dev_examples"] is values["test_examples"] is None
        arguments = PAPER[task].attention_arguments()
        assert arguments["preset"] == "recommended"  # which has δ = 0.01; k = 128 is the layer's
        assert not {"exploration", "n_clusters", "self_loops", "window"} & arguments.keys()


def test_encodings_follow_task_and_quirks(tiny):
    assert tiny("text").encoding(1) == Encoding(1, 20)
    assert tiny("image").encoding(0) == Encoding(0, 64, is_image=True)
    assert tiny("pathfinder", length=64).encoding(0).is_image
    quirky = Encoding(1, 20, is_padded_to_length=True, is_zero_padding=True)
    assert tiny("retrieval", quirks=True).encoding(1) == quirky
