"""Runs on small examples: results say what they are about, and every setting trains."""

from functools import partial

import numpy as np
import pytest
import torch

from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.run import load_run
from sbmt.layers.registry import ATTENTIONS

pytestmark = pytest.mark.usefixtures("toys")
fit = partial(fit_run, accelerator="cpu")


def test_a_result_tells_interval_chance_and_data(tmp_path, tiny, toys):
    run = fit(tiny(steps=2, dev_examples=3, test_examples=9), tmp_path / "run")
    prepared = open_prepared(toys / "toy-listops")
    labels = np.array(prepared.splits["test"].labels[:9])
    commonest = int(prepared.splits["train"].labels.mean() > 0.5)
    assert run.about["n_test"] == 9 and run.about["chance"] == pytest.approx((labels == commonest).mean())
    p, z, n = round(run.test.accuracy * 9) / 9, 1.959964, 9
    middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    expected = [(middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)]
    assert run.about["interval"] == pytest.approx(expected, abs=1e-4)
    assert run.about["data"]["sha256"] == prepared.info["sha256"] and run.about["data"]["n_train"] == 48


def test_a_saved_run_loads_as_it_was(tmp_path, tiny):
    run = fit(tiny(), tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert (loaded.config, loaded.test, loaded.about) == (run.config, run.test, run.about)
    assert all(torch.equal(loaded.model.state_dict()[x], weight) for x, weight in run.model.state_dict().items())
    assert [row["split"] for row in loaded.rows] == ["train", "train", "dev"] * 3
    for mine, other in zip(loaded.rows, run.rows, strict=True):
        assert mine["step"] == other["step"] and mine["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert mine.keys() == other.keys() and mine["density"] == pytest.approx(other["density"], rel=1e-5)
    curve = run.curve()
    assert curve["step"] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert curve["loss"] == [round(row["loss"], 4) for row in run.rows if row["split"] == "train"]


@pytest.mark.parametrize("attention", sorted(set(ATTENTIONS) - {"sbm", "full", "performer", "reformer"}))
def test_every_attention_trains_on_documents_of_any_length(tmp_path, tiny, attention):
    run = fit(tiny(attention=attention, steps=2), tmp_path / "run")
    assert np.isfinite(run.test.loss) and 0 <= run.test.density <= 1


def test_bfloat16_trains_on_a_cpu(tmp_path, tiny):
    """Weights stay float32, and the numbers stay near those of float32."""
    settings = dict(steps=2, dropout=0.0, attention_dropout=0.0)
    run, exact = (fit(tiny(**settings, precision=p), tmp_path / p) for p in ("bf16-mixed", "32-true"))
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.rows[0]["loss"] != exact.rows[0]["loss"]
    assert run.rows[0]["loss"] == pytest.approx(exact.rows[0]["loss"], abs=0.02)
    assert run.test.loss == pytest.approx(exact.test.loss, abs=0.05)
