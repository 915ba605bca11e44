import pytest

from sbmt import SbmtError
from sbmt.experiments.benchmarks import run_suites
from sbmt.experiments.plots.benchmarks import crossing, draw_benchmarks
from tests.experiments.benchmarks.tiny import use_tiny_grids


def test_the_figure_is_drawn_and_the_same_each_time(monkeypatch, tmp_path):
    use_tiny_grids(monkeypatch)
    result = run_suites(["attention"], is_quick=True)
    draw_benchmarks(result, tmp_path / "a.png")
    draw_benchmarks(result, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_steps_are_drawn_over_the_number_of_tokens(monkeypatch, tmp_path):
    use_tiny_grids(monkeypatch)
    draw_benchmarks(run_suites(["fitted"], is_quick=True), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("ours", "theirs", "where"),
    [
        ([2.0, 2.0, 2.0], [1.0, 4.0, 8.0], (2.0, 2.0)),
        ([2.0, 2.0, 2.0], [1.0, 4.0], (2.0, 2.0)),
        ([1.0, 1.0, 1.0], [2.0, 4.0, 8.0], None),
        ([9.0, 9.0, 9.0], [2.0, 4.0, 8.0], None),
    ],
)
def test_the_crossing_is_where_ours_becomes_faster(ours, theirs, where):
    assert crossing([1, 4, 16], ours, theirs) == (where and pytest.approx(where))


@pytest.mark.bad_input
def test_it_needs_the_attention_suite(tmp_path):
    with pytest.raises(SbmtError, match="results of the suite attention"):
        draw_benchmarks({"suites": {}}, tmp_path / "a.png")
