import pytest

from sbmt import SbmtError
from sbmt.experiments.benchmarks import run_suites
from sbmt.experiments.plots.benchmarks import draw_benchmarks
from tests.experiments.benchmarks.tiny import use_tiny_grids


def test_the_figure_is_drawn_and_the_same_each_time(monkeypatch, tmp_path):
    use_tiny_grids(monkeypatch)
    result = run_suites(["attention"], is_quick=True)
    draw_benchmarks(result, tmp_path / "a.png")
    draw_benchmarks(result, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.bad_input
def test_it_needs_the_attention_suite(tmp_path):
    with pytest.raises(SbmtError, match="results of the suite attention"):
        draw_benchmarks({"suites": {}}, tmp_path / "a.png")
