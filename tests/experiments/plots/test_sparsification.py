import pytest

from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.sparsification import STYLES, draw_attention_mass, plot_attention_mass
from sbmt.experiments.sparsification.compare import KINDS


def result(n_levels=2):
    levels = [
        [
            {"kind": name, "density": 0.02 * (1 + level), "attention_mass": 0.1 * (i + level)}
            for i, name in enumerate(KINDS)
        ]
        for level in range(n_levels)
    ]
    return {"task": "text", "levels": levels}


def test_every_kind_has_a_line_of_its_own_look(tmp_path):
    assert set(STYLES) == set(KINDS)
    assert len({(style["color"], style.get("linestyle")) for style in STYLES.values()}) == len(KINDS)
    with saved_figure(tmp_path / "one.png", 4.0, 3.0) as figure:
        axes = figure.subplots()
        plot_attention_mass(axes, result(), "Text")
        lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    for i, name in enumerate(KINDS):
        assert lines[name] == [[0.02, pytest.approx(0.1 * i)], [0.04, pytest.approx(0.1 * (i + 1))]]


@pytest.mark.parametrize("n_networks", [1, 5])
def test_a_figure_of_any_number_of_networks(tmp_path, n_networks):
    draw_attention_mass([result(1)] * n_networks, tmp_path / "all.png", [f"network {i}" for i in range(n_networks)])
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
