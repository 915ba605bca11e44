"""The figure of a study."""

from dataclasses import replace

from matplotlib.figure import Figure

from sbmt.plots.study import draw_study, plot_accuracy_over_density, plot_curves, trial_styles
from sbmt.training.config import RepeatedTokensConfig
from sbmt.training.studies import STUDIES
from sbmt.training.study import run_study, summary

TINY = RepeatedTokensConfig(length=8, batch_size=4, steps=3, d_model=8, d_hidden=8, n_clusters=4, test_sequences=16)


def tiny_result(folder):
    study = replace(STUDIES["demo"], config=TINY, n_seeds=2)
    return summary(study, run_study(study, folder))


def test_every_run_has_its_line_and_its_dot(tmp_path):
    result = tiny_result(tmp_path)
    axes = Figure().subplots(1, 2)
    plot_curves(axes[0], result, "loss")
    for line, run in zip(axes[0].lines, result["runs"], strict=True):
        assert line.get_ydata().tolist() == run["curve"]["loss"]
        assert line.get_xdata().tolist() == run["curve"]["step"]
    assert axes[0].get_legend_handles_labels()[1] == list(result["titles"].values())
    plot_accuracy_over_density(axes[1], result)
    dots = [(*dot.get_xdata(), *dot.get_ydata()) for dot in axes[1].lines if dot.get_marker() == "o"]
    assert dots == [(run["test"]["density"], run["test"]["accuracy"]) for run in result["runs"]]


def test_trials_can_be_told_apart():
    for study in STUDIES.values():
        titles = {trial.name: trial.title for trial in study.trials}
        styles = trial_styles({"titles": titles})
        assert len(set(styles.values())) == len(styles)


def test_the_figure_is_the_same_each_time(tmp_path):
    result = tiny_result(tmp_path)
    for name in ("a.png", "b.png"):
        draw_study(result, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
