"""Two processes that share every batch do what one does with all of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.repeated_tokens import RepeatedTokensConfig
from sbmt.experiments.training.run import load_run

CODE = """
import json, os, sys, warnings
from pathlib import Path

import torch

from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.run import CONFIGS

torch.set_num_threads(int(sys.argv[1]))
warnings.simplefilter("error")
for folder in map(Path, sys.argv[2:]):
    values = json.loads(folder.with_suffix(".json").read_text())
    config = CONFIGS[values["task"]].from_dict(values)
    run = fit(config, folder, accelerator="cpu", devices=2, strategy="ddp")
    folder.with_suffix(".rank" + os.environ["LOCAL_RANK"]).write_text(repr(run.test))
"""


def run_in_two(folder, configs):
    """Trains every configuration in two processes, under its name in the folder."""
    (folder / "two.py").write_text(CODE)
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config.to_dict()))
    command = [sys.executable, "two.py", str(torch.get_num_threads()), *configs]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        assert process.wait(timeout=600) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.usefixtures("toys")
def test_two_processes_are_one(tmp_path, tiny):
    """Also where one of them has no part of the last batch, and where a layer has buffers that they could wait for.

    The last batch of 13 test examples holds one, that of 14 dev examples two.
    """
    settings = dict(batch_size=12, accumulate=2, steps=4, learning_rate=1e-3, dropout=0.0)
    configs = {
        "sbm": tiny(**settings, sampler="exact", attention_dropout=0.2, density_weight=0.1),
        "performer": tiny(**settings, attention="performer", attention_dropout=0.0),
    }
    run_in_two(tmp_path, configs)
    for name, config in configs.items():
        one, two = fit(config, tmp_path / f"{name}-alone", accelerator="cpu"), load_run(tmp_path / name)
        reports = [(tmp_path / f"{name}.rank{rank}").read_text() for rank in (0, 1)]
        assert reports[0] == reports[1] == repr(two.test)
        assert two.test.accuracy == one.test.accuracy and two.test.loss == pytest.approx(one.test.loss, rel=1e-5)
        assert two.test.densities == [pytest.approx(heads, rel=1e-6) for heads in one.test.densities]
        assert len(two.rows) == len(one.rows) == 6
        for mine, other in zip(two.rows, one.rows, strict=True):
            for column in ("accuracy", "loss", "density", "density_l0h0", "density_l1h1"):
                assert mine[column] == pytest.approx(other[column], rel=1e-4), column
        for weight, value in one.model.state_dict().items():
            torch.testing.assert_close(two.model.state_dict()[weight], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_that_train_on_repeated_tokens_are_one(tmp_path):
    sizes = dict(length=8, d_model=8, d_hidden=8, n_heads=2, n_layers=2, test_sequences=13)
    config = RepeatedTokensConfig(
        **sizes, batch_size=12, accumulate=2, steps=4, density_weight=0.1, options={"n_clusters": 4}
    )
    run_in_two(tmp_path, {"run": config})
    one, two = fit(config, tmp_path / "alone"), load_run(tmp_path / "run")
    assert two.test.accuracy == one.test.accuracy and two.test.loss == pytest.approx(one.test.loss, rel=1e-5)
    assert two.test.densities == [pytest.approx(heads, rel=1e-6) for heads in one.test.densities]
    for name in ("loss", "accuracy", "density"):
        assert two.history[name] == pytest.approx(one.history[name], rel=1e-4)
    for weight, value in one.model.state_dict().items():
        torch.testing.assert_close(two.model.state_dict()[weight], value, rtol=1e-4, atol=1e-5)
