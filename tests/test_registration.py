"""An attention from a module of the user's, on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.training.long_range import REDUCED
from tests.experiments.data.toy import toy_source

ROOT = Path(__file__).parents[1]
MODULE = """
from dataclasses import dataclass, field
from sbmt.baselines import FullAttention
from sbmt.cost import ModuleCost, part
from sbmt.layers import register_attention

class Scaled(FullAttention):
    def __init__(self, d_head, n_heads, *, scale=1, dropout=0.0):
        super().__init__(d_head, n_heads, dropout=dropout)
        self.scale = scale

    def forward(self, query, key, value, **more):
        return super().forward(query * self.scale, key, value, **more)

@dataclass(frozen=True)
class ScaledOptions:
    scale: int = field(default=2, metadata={"help": "what queries are multiplied by"})

def count(module, n):
    sizes = {"h": module.n_heads, "d": module.d_head}
    return ModuleCost((part("scores and values", "4·b·h·n²·d", "b·h·n²"),), sizes)

register_attention("scaled", Scaled, ScaledOptions, cost=count)
"""
TINY = "--length 8 --batch-size 2 --steps 2 --test-sequences 2 --d-model 4 --d-hidden 4"


def sbmt(folder, line, plugins="plugin_of_a_test"):
    environment = os.environ | {"SBMT_PLUGINS": plugins, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    command = [sys.executable, "-m", "sbmt", *line.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_an_attention_from_outside_is_trained_and_loaded(tmp_path):
    (tmp_path / "plugin_of_a_test.py").write_text(MODULE)
    done = sbmt(tmp_path, f"train repeated-tokens --attention scaled --scale 3 {TINY} --output run")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["options"] == {"scale": 3}
    done = sbmt(tmp_path, "evaluate run --sequences 2")
    assert done.returncode == 0, done.stderr


def test_an_attention_from_outside_goes_through_a_sweep_and_its_costs(tmp_path, monkeypatch):
    """Workers and the process that measures memory are new processes, which have to load the plugin too."""
    (tmp_path / "plugin_of_a_test.py").write_text(MODULE)
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path / "cache"))
    prepare(toy_source("listops", name=REDUCED["listops"].data_name), tmp_path / "cache")
    tiny = "--length 20 --batch-size 8 --steps 2 --warmup-steps 1 --eval-every 2 --d-model 8 --d-hidden 8 --scale 3"
    names = "--attention scaled --attention full"
    done = sbmt(tmp_path, f"sweep listops --reduced {names} {tiny} --workers 2 --output swept")
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "swept" / "result.json").read_text())["listops"]["runs"]
    options = {run["trial"]: run["config"]["options"] for run in runs}
    assert options == {"scaled": {"scale": 3}, "full": {"is_log_scaled": None}}
    assert "scaled" in done.stdout and f"{100 * runs[0]['test']['accuracy']:.2f}" in done.stdout

    done = sbmt(tmp_path, "cost --attention scaled --length 64 --json cost.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "cost.json").read_text())
    [mine], [full] = (found["operations"][name] for name in ("scaled", "full"))
    assert mine["attention"]["n_flops"] == full["attention"]["n_flops"]
    assert set(found["memory"]["scaled"][0]) & {"forward", "missing"}
    assert sys.platform != "linux" or found["memory"]["scaled"][0]["forward"] > 0


@pytest.mark.bad_input
def test_a_module_that_is_not_there_is_told_in_one_line(tmp_path):
    done = sbmt(tmp_path, "train --help", "no_such_module")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "'no_such_module'" in done.stderr
