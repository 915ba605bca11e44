"""A tree of result files that are made up."""

import json

import pytest

from results import lookup


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes result files by name, of which alone lookups then know."""
    monkeypatch.setattr(lookup, "ROOT", tmp_path)

    def write(**files):
        for name, content in files.items():
            path = tmp_path / "results" / f"{name.replace('__', '/')}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content), "utf-8")
        lookup._read.cache_clear()
        return tmp_path / "results"

    return write
