"""Benchmarks of other processors are kept beside those of this one."""

import json

from results.measure.set_aside import set_aside
from results.tables.files import Files


def measure(root, processor, date):
    path = root / "results" / "bench.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"manifest": {"processor": processor, "date": date}}))


def test_another_processor_is_set_aside_and_ours_is_replaced(tmp_path):
    def dates():
        return [(one["manifest"]["processor"], one["manifest"]["date"]) for one in Files(tmp_path).machines("bench")]

    assert set_aside(tmp_path / "results", "one") == [] == dates()
    measure(tmp_path, "one", "2026-01-01")
    assert set_aside(tmp_path / "results", "one") == []
    assert [path.parent.name for path in set_aside(tmp_path / "results", "other (2)")] == ["one"]
    assert not (tmp_path / "results" / "bench.json").exists()
    measure(tmp_path, "other (2)", "2026-01-02")
    assert dates() == [("other (2)", "2026-01-02"), ("one", "2026-01-01")]
    assert [path.parent.name for path in set_aside(tmp_path / "results", "one")] == ["other-2"]
    measure(tmp_path, "one", "2026-01-03")
    assert dates() == [("one", "2026-01-03"), ("other (2)", "2026-01-02")]
