"""The figure of pre-training and fine-tuning, drawn from the published results."""

from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import sbmt.experiments.plots.glue as glue
from sbmt.errors import SbmtError
from sbmt.experiments.files import read_json
from sbmt.experiments.plots.glue import draw_glue, marks_of, plot_perplexity, plot_task, sideways
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.studies.language import SCRATCH, TRIALS

RESULTS = read_json(Path(__file__).parents[3] / "results" / "glue.json")


def look_of(line):
    """Colour, marker, whether it is filled."""
    colour = to_hex(line.get_markeredgecolor()).upper()
    return colour, line.get_marker(), to_hex(line.get_markerfacecolor()).upper() == colour


def dots_of(axes):
    return [line for line in axes.lines if line.get_marker() != "None"]


def line_of(axes):
    """The height of the only line from side to side."""
    (line,) = (line for line in axes.lines if line.get_marker() == "None")
    assert len(set(line.get_ydata())) == 1
    return float(line.get_ydata()[0]), line.get_linestyle()


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws results; returns the figure after it was laid out and saved."""
    figures = []

    @contextmanager
    def keep(*given):
        with saved_figure(*given) as figure:
            figures.append(figure)
            yield figure

    monkeypatch.setattr(glue, "saved_figure", keep)

    def draw(results):
        draw_glue(results, tmp_path / "glue.png")
        return figures[-1]

    return draw


def test_every_run_of_a_task_has_its_dot_its_interval_and_its_look():
    result = RESULTS["sst2"]
    marks, axes, aside = marks_of(list(result["titles"])), Figure().subplots(), sideways(result)
    plot_task(axes, result, marks)
    for dot, bar, run in zip(dots_of(axes), axes.collections, result["runs"], strict=True):
        density = run["test"]["density"] + aside[run["trial"]]
        assert (*dot.get_xdata(), *dot.get_ydata()) == (density, run["test"]["accuracy"])
        (ends,) = bar.get_segments()
        np.testing.assert_allclose(ends, [(density, bound) for bound in run["interval"]])
        colour, marker, fill = marks[run["trial"]]
        assert look_of(dot) == (colour, marker, fill == "full")
        assert to_hex(bar.get_colors()[0]).upper() == colour and bar.get_zorder() < dot.get_zorder()
    assert line_of(axes) == (result["runs"][0]["chance"], "--")
    assert "SST-2, 872 test examples" in axes.get_title("left") + axes.get_title()
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("accuracy", "density, about equal ones side by side")


@pytest.mark.parametrize("alone, ticks", [(160.0, [150]), (9e4, [200, 1000, 5e4])])
def test_perplexities_stand_on_a_scale_that_can_be_read(alone, ticks):
    full, _, sbm, *_ = deepcopy(RESULTS["mlm"]["runs"])
    full["test"]["metrics"]["perplexity"], sbm["test"]["metrics"]["perplexity"] = 150.0, 160.0
    full["frequencies"]["perplexity"] = alone
    result = RESULTS["mlm"] | {"runs": [full, sbm]}
    figure = Figure()
    axes = figure.subplots()
    plot_perplexity(axes, result, marks_of(list(result["titles"])))
    dots = [(*dot.get_xdata(), *dot.get_ydata()) for dot in dots_of(axes)]
    assert dots == [(1.0, 150.0), (sbm["test"]["density"], 160.0)]
    assert line_of(axes) == (alone, ":") and not axes.collections
    figure.draw_without_rendering()
    low, high = axes.get_ylim()
    assert low < 150 and high > max(160, alone)
    shown = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert {f"{tick:,.0f}" for tick in ticks} <= set(shown) and len(shown) <= 10
    assert axes.get_xlabel() == "density"  # nothing had to move


def test_trials_of_like_density_stand_side_by_side_around_their_place():
    densities = {"full": 1.0, "sbm": 0.2, "random-equal": 0.21, "linear": 1.0, "window": 0.1, "performer": 1.0}
    runs = [{"trial": trial, "test": {"density": x}} for trial, x in densities.items()]
    aside = sideways({"runs": runs})
    assert aside == pytest.approx(
        {"window": 0, "sbm": -0.015, "random-equal": 0.015, "full": -0.03, "linear": 0, "performer": 0.03}
    )
    seeds = [{"trial": t, "test": {"density": x}} for t, x in (("sbm", 0.1), ("sbm", 0.3), ("window", 0.205))]
    assert sideways({"runs": seeds}) == pytest.approx({"sbm": -0.015, "window": 0.015})  # by means over seeds


def test_all_trials_can_be_told_apart():
    names = [*TRIALS, SCRATCH.name]
    marks = marks_of([*names, "mine", "yours"])
    assert {name: marks[name] for name in names} == glue.MARKS
    assert len(set(marks.values())) == len(marks)
    assert len(marks_of([str(i) for i in range(99)])) == 99


@pytest.mark.parametrize("names", [("mlm",), ("mlm", "qqp"), ("sst2", "qqp", "mnli")])
def test_a_trial_looks_the_same_in_every_panel_and_in_the_legend_which_has_a_place_of_its_own(drawn, names):
    results = {name: RESULTS[name] for name in names}
    figure = drawn(results)
    panels = figure.axes[: len(names)]
    assert all(axes.axison for axes in panels) and not any(axes.axison for axes in figure.axes[len(names) :])
    (legend,) = (axes.get_legend() for axes in figure.axes if axes.get_legend() is not None)
    entries = dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))
    assert ("frequencies of tokens alone" in entries) == ("mlm" in names)
    assert ("always the commonest label" in entries) == ("95 % interval" in entries) == (names != ("mlm",))
    for axes, result in zip(panels, results.values(), strict=True):
        for dot, run in zip(dots_of(axes), result["runs"], strict=True):
            assert look_of(dot) == look_of(entries[result["titles"][run["trial"]]])
    box, boxes = legend.get_window_extent(), [axes.get_tightbbox() for axes in panels]
    assert not any(box.overlaps(other) for other in boxes)
    assert not any(a.overlaps(b) for at, a in enumerate(boxes) for b in boxes[:at])
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1


def test_no_results_and_unknown_formats_are_refused(tmp_path):
    with pytest.raises(SbmtError, match="results of at least one study"):
        draw_glue({}, tmp_path / "a.png")
    with pytest.raises(SbmtError, match="a file ending"):
        draw_glue({"mlm": RESULTS["mlm"]}, tmp_path / "a.doc")
    assert not list(tmp_path.iterdir())
