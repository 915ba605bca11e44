"""Tests figures of published results, and of block models in the plane."""

from pathlib import Path
from xml.dom import minidom

import pytest
import torch
from matplotlib.figure import Figure

from sbmt.experiments.files import read_json
from sbmt.experiments.plots.placements import PLACEMENTS, place
from sbmt.experiments.plots.repeated_tokens import see_mask
from sbmt.experiments.plots.study import draw_glue, draw_study, marks_of, plot_over_density
from sbmt.experiments.plots.style import saved_figure
from sbmt.experiments.training.fit import fit
from tests.experiments.studies.tiny import TINY

RESULTS = Path(__file__).parents[3] / "results"


def published(name):
    return read_json(RESULTS / f"{name}.json")


def test_language_models_are_drawn(tmp_path):
    draw_glue(published("glue"), tmp_path / "glue.png")
    assert (tmp_path / "glue.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["figure4-64", "listops", "mlm-edges"])
def test_every_run_of_a_study_has_its_dot_and_every_trial_its_mark(tmp_path, name):
    result = published(name)
    axes, marks = Figure().subplots(), marks_of(result["titles"])
    assert len({(mark["color"], mark["marker"]) for mark in marks.values()}) == len(marks)
    plot_over_density(axes, result, marks)
    drawn = [(*dot.get_xdata(), dot.get_label()) for dot in axes.lines if dot.get_marker() != "None"]
    assert drawn == [(run["test"]["density"], result["titles"][run["trial"]]) for run in result["runs"]]
    draw_study(result, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("attention", ["sbm", "full", "random_mask"])
def test_the_drawn_mask_has_the_law_that_is_shown(attention):
    run = fit(TINY.override(attention=attention))
    seen = [see_mask(run.model, 3) for _ in range(2)]
    assert torch.equal(seen[0].drawn, seen[1].drawn)
    assert seen[0].expected.shape == seen[0].drawn.shape == (8, 8)
    assert (seen[0].membership is None) == (attention != "sbm")
    expected = {"full": 1.0, "random_mask": 0.25}.get(attention)
    if expected is not None:
        assert torch.allclose(seen[0].expected, torch.tensor(expected))


def test_the_three_placements_are_dense_block_diagonal_and_sparse():
    masks = {name: place(name, 30).block_model.expected_mask()[0, 0] for name in PLACEMENTS}
    assert masks["collapsed"].min() > 0.95
    assert masks["distant"].max() < 0.2
    block = torch.block_diag(*[torch.ones(10, 10)] * 3).bool()
    assert masks["separated"][block].min() > 0.2
    assert masks["separated"][~block].max() < 0.02
    assert masks["separated"][block].mean() <= 1 / 3 + masks["separated"][~block].mean() + 1e-6  # the block budget


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize(("name", "begin"), [("x.png", b"\x89PNG"), ("X.SVG", b"<?xml"), ("x.pdf", b"%PDF")])
def test_figures_are_written_in_the_format_that_their_name_asks_for(tmp_path, name, begin):
    """An SVG file is valid XML, whatever its labels contain."""
    with saved_figure(tmp_path / "new" / name, 1.0, 1.0) as figure:
        figure.suptitle("a \x1b[2J \0 \ufffe b")
    content = (tmp_path / "new" / name).read_bytes()
    assert content.startswith(begin)
    assert begin != b"<?xml" or minidom.parseString(content).documentElement.tagName == "svg"
