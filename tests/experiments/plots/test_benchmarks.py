"""The benchmarks' figures, drawn from the published results."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from sbmt import SbmtError
from sbmt.experiments.files import read_json
from sbmt.experiments.plots.benchmarks import crossing, draw_benchmarks, draw_ratio, draw_steps

RESULTS = Path(__file__).parents[3] / "results"


def test_what_was_measured_is_drawn(tmp_path):
    suites = {name: read_json(RESULTS / f"{file}.json")["suites"][name] for name, file in FILES.items()}
    draw_benchmarks({"suites": suites}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    left, right = Figure().subplots(1, 2)
    cases = suites["attention"]["found"]["cases"]
    draw_ratio(left, [case for case in cases if "density" in case["sweeps"]], "density", str)
    drawn = {line.get_label(): line.get_xydata().tolist() for line in left.lines}
    mine = [case for case in cases if case["kind"] == "structured" and "density" in case["sweeps"]]
    points = sorted([case["density"], case["results"]["sbm"]["ratio"]] for case in mine if case["is_training"])
    assert drawn["structured, training step"] == points
    steps = suites["fitted"]["found"]["cases"]
    draw_steps(right, steps)
    times = [case["results"]["sbm"]["median"] / 1e3 for case in steps if case["is_training"] and "n" in case["sweeps"]]
    assert right.lines[FITTED].get_ydata().tolist() == times


FILES = {"attention": "bench", "fitted": "bench_fitted"}
FITTED = 1  # after the line of full attention


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
