"""The figure of a study, drawn from published results."""

from copy import deepcopy
from pathlib import Path

from matplotlib.figure import Figure

from sbmt.experiments.files import read_json
from sbmt.experiments.plots.study import dot_labels, draw_study, plot_accuracy_over_density, plot_trial

RESULT = read_json(Path(__file__).parents[3] / "results" / "sparse.json")


def test_every_run_has_its_lines_and_its_dot():
    for number, (trial, title) in enumerate(RESULT["titles"].items(), 1):
        axes = Figure().subplots()
        right = plot_trial(axes, RESULT, trial)
        runs = [run for run in RESULT["runs"] if run["trial"] == trial]
        for name, place in (("loss", axes), ("density", right)):
            for line, run in zip(place.lines, runs, strict=True):
                assert line.get_ydata().tolist() == run["curve"][name]
                assert line.get_xdata().tolist() == run["curve"]["step"]
        assert " ".join(axes.get_title().split()) == f"{number} · {title}"
    axes = Figure().subplots()
    plot_accuracy_over_density(axes, RESULT)
    dots = [(*dot.get_xdata(), *dot.get_ydata()) for dot in axes.lines if dot.get_marker() == "o"]
    assert dots == [(run["test"]["density"], run["test"]["accuracy"]) for run in RESULT["runs"]]


def test_every_trial_has_its_number_at_its_dots():
    result = deepcopy(RESULT)
    for at, run in enumerate(result["runs"]):  # far from each other
        run["test"] = {"density": 1.0 - at / len(result["runs"]), "accuracy": 0.6}
    axes = Figure().subplots()
    plot_accuracy_over_density(axes, result)
    numbers = {name: str(number) for number, name in enumerate(result["titles"], 1)}
    found = sorted((label.xy[0], label.get_text()) for label in axes.texts)
    assert found == sorted((run["test"]["density"], numbers[run["trial"]]) for run in result["runs"])


def test_dots_in_one_place_share_a_label():
    chain = [(0.1 * at, 0.0, at) for at in (3, 0, 1)]
    assert dot_labels(chain, (0.15, 0.1)) == [(0.1 * 3, 0, "3"), (0, 0, "0, 1")]
    assert dot_labels([*chain, (0.2, 0.0, 7)], (0.15, 0.1)) == [(0, 0, "0, 1, 3, 7")]  # joins what was apart
    assert dot_labels([(0.0, 0.0, 1), (0.0, 1.0, 1)], (0.1, 0.1)) == [(0, 0, "1"), (0, 1, "1")]


def test_the_figure_is_the_same_each_time(tmp_path):
    for name in ("a.png", "b.png"):
        draw_study(RESULT, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
