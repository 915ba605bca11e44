"""Processes that share batches get the same result as one process; parts with more masked tokens count more."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.generated import RepeatedTokensConfig
from sbmt.experiments.training.run import load_run

FITTED = dict(preset="fitted", edges_per_query=3.0, n_groups=2, block_model_rate=1e-3)
ROOT = Path(__file__).parents[3]
SCRIPT = re.compile(r'^```python title="train_ddp\.py"\n(.*?)^```', re.MULTILINE | re.DOTALL)
CODE = """
import json, os, sys, warnings
from pathlib import Path

import torch

from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.config import CONFIGS

torch.set_num_threads(int(sys.argv[1]))
warnings.simplefilter("error")
for folder in map(Path, sys.argv[2:]):
    values = json.loads(folder.with_suffix(".json").read_text())
    config = CONFIGS[values["task"]].from_dict(values)
    run = fit(config, folder, accelerator="cpu", devices=2)
    folder.with_suffix(".rank" + os.environ["LOCAL_RANK"]).write_text(repr(run.test))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("caches")
def test_two_processes_are_one(tmp_path, tiny, tiny_mlm):
    """This holds even if a process has no part of the last batch, with 13 test examples."""
    settings = dict(steps=4, learning_rate=1e-3, dropout=0.0)
    parts = settings | dict(batch_size=12, accumulate=2)
    sizes = dict(length=8, d_model=8, d_hidden=8, n_heads=2, n_layers=2, test_sequences=13, options={"n_clusters": 4})
    text = settings | dict(attention_dropout=0.0, sampler="exact")
    configs = {
        "sbm": tiny(**parts, sampler="exact", attention_dropout=0.2, density_weight=0.1),
        "pretraining": tiny_mlm(**text, density_weight=0.1),
        "fitted": RepeatedTokensConfig(**sizes, batch_size=12, accumulate=2, steps=4).override(**FITTED),
    }
    (tmp_path / "two.py").write_text(CODE)
    for name, config in configs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(config.to_dict()))
    command = [sys.executable, "two.py", str(torch.get_num_threads()), *configs]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=600)
    for name, config in configs.items():
        one, two = fit(config, tmp_path / f"{name}-alone", accelerator="cpu"), load_run(tmp_path / name)
        reports = [(tmp_path / f"{name}.rank{rank}").read_text() for rank in (0, 1)]
        assert reports[0] == reports[1] == repr(two.test)
        assert two.test.accuracy == one.test.accuracy and two.test.loss == pytest.approx(one.test.loss, rel=1e-5)
        assert two.test.metrics == pytest.approx(one.test.metrics, rel=1e-5)
        assert two.test.densities == [pytest.approx(heads, rel=1e-6) for heads in one.test.densities]
        assert len(two.rows) == len(one.rows) == (4 if config.is_generated else 6)
        for mine, other in zip(two.rows, one.rows, strict=True):
            for column in ("accuracy", "loss", "density"):
                assert mine[column] == pytest.approx(other[column], rel=1e-4), column
        for weight, value in one.model.state_dict().items():
            torch.testing.assert_close(two.model.state_dict()[weight], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_losses_of_the_page_do_not_depend_on_the_number_of_processes(tmp_path):
    """Runs the script on the page about many devices."""
    page = (ROOT / "docs" / "how-to" / "many-gpus.md").read_text(encoding="utf-8")
    (tmp_path / "train_ddp.py").write_text(SCRIPT.search(page)[1], encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    losses = []
    for words, more in (([], alone), (torchrun, {})):
        command = [sys.executable, *words, "train_ddp.py"]
        options = {"cwd": tmp_path, "env": environment | more, "capture_output": True, "timeout": 300}
        done = subprocess.run(command, **options)
        # under load, a thread of PyTorch sometimes aborts a process that has finished and is about to exit
        assert done.returncode == 0 or b"terminate called without an active exception" in done.stderr, done.stderr
        losses.append(json.loads(done.stdout))
    assert len(set(losses[0])) == 3 and losses[1] == pytest.approx(losses[0], rel=1e-5)
