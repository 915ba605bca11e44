"""The pictures of the landing page: every pair where it belongs, and a chart that matches the result file."""

import re

import pytest
import torch

from results.measure.landing import DEMO
from results.measure.landing_picture import FOLDER, LABELS, chart_svg, mask_svg
from sbmt.experiments.files import read_json

pytestmark = pytest.mark.site

RUN = re.compile(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z")


def cells_of(svg: str, name: str, n: int) -> torch.Tensor:
    cells = torch.zeros(n, n, dtype=torch.bool)
    path = re.search(rf'<path class="{name}"[^>]* d="([^"]*)"', svg)[1]
    assert RUN.sub("", path) == ""
    for x, y, width, back in (map(int, found) for found in RUN.findall(path)):
        assert width == back and not cells[y, x : x + width].any()
        cells[y, x : x + width] = True
    return cells


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_a_picture_has_every_pair(density: float) -> None:
    first, second = torch.rand(2, 7, 7) < density
    svg = mask_svg([("wanted", first), ("other", second)], "some pairs")
    assert torch.equal(cells_of(svg, "wanted", 7), first) and torch.equal(cells_of(svg, "other", 7), second)
    assert 'role="img" aria-label="some pairs"' in svg


def test_the_mask_on_the_page_holds_the_pairs_that_matter() -> None:
    matter, found = ((FOLDER / f"{name}.svg").read_text("utf-8") for name in ("matter", "found"))
    wanted, right, other = cells_of(matter, "wanted", 64), cells_of(found, "wanted", 64), cells_of(found, "other", 64)
    assert torch.equal(wanted, right)  # as the page says
    assert not (other & wanted).any()
    n_drawn, n_pairs = int((right | other).sum()), wanted.numel()
    assert f"{n_drawn} of {n_pairs} pairs, {int(right.sum())} of the {int(wanted.sum())}" in found


def test_the_chart_is_that_of_the_result_file() -> None:
    runs = read_json(DEMO)["runs"]
    svg = chart_svg(runs)
    assert (FOLDER / "accuracy.svg").read_text("utf-8") == svg
    assert svg.count("<circle") == len(runs) and set(re.findall(r'<circle class="([\w-]+)"', svg)) == set(LABELS)
