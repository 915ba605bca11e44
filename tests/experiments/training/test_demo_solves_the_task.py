"""The demo's claim, on three seeds, through the command that a user runs."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest


def train(folder, seed, *options):
    """Trains at demo settings in a process of its own, on one thread; returns the test numbers."""
    command = [sys.executable, "-m", "sbmt", "train", "repeated-tokens", "--seed", str(seed), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--output", str(folder)], check=True, capture_output=True, env=environment)
    return json.loads((folder / "result.json").read_text())["test"]


@pytest.mark.slow
def test_sbm_solves_repeated_tokens(tmp_path):
    with ThreadPoolExecutor(2) as two_at_a_time:
        tests = list(two_at_a_time.map(lambda seed: train(tmp_path / str(seed), seed), range(3)))
    for seed, test in enumerate(tests):
        print(f"seed {seed}: accuracy {test['accuracy']:.4f}, density {test['density']:.4f}")
    assert median(test["accuracy"] for test in tests) > 0.95
    assert min(test["accuracy"] for test in tests) > 0.9  # self-loops: no seed loses its mask
    assert median(test["density"] for test in tests) > 0.75
