"""The demo's claim, on one seed, through the command that users run; ``make results`` trains several to the end."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_sbm_solves_repeated_tokens(tmp_path):
    command = [sys.executable, "-m", "sbmt", "train", "repeated-tokens", "--seed", "2", "--steps", "550"]
    subprocess.run([*command, "--output", str(tmp_path / "run")], check=True, capture_output=True)
    test = json.loads((tmp_path / "run" / "result.json").read_text())["test"]
    assert test["accuracy"] > 0.95 and test["density"] > 0.75
