"""No number in README.md or on the landing page that the result files do not hold."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def check(root):
    command = [sys.executable, str(root / "results" / "write_tables.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def copy_pages(folder):
    for name in ("README.md", "docs/index.md", "results/demo.json", "results/write_tables.py"):
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())


def test_tables_are_fresh():
    found = check(ROOT)
    assert found.returncode == 0, found.stderr


def test_a_changed_number_is_noticed(tmp_path):
    copy_pages(tmp_path)
    page = tmp_path / "README.md"
    page.write_text(
        page.read_text("utf-8").replace("| **SBM**, exact edge law | 0.", "| **SBM**, exact edge law | 1."), "utf-8"
    )
    found = check(tmp_path)
    assert found.returncode == 1
    assert "stale: README.md" in found.stderr
