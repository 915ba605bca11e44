import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from results.clips import Course, Snapshot, draw_clip, fit_clip, in_tenths
from results.clips.draw import CELL, LEFT, SEED, TOP, Draw, N, example_model, make_film, trace_draws
from results.clips.film import Film, box, words
from results.clips.fit import LEVELS
from results.clips.fit import SIDE as MASK_SIDE
from sbmt.experiments.files import read_json
from sbmt.samplers import sample_fastrg

ROOT = Path(__file__).parents[3]
CLIPS = ROOT / "docs" / "assets" / "clips"
SVG = "{http://www.w3.org/2000/svg}"
TINY = Course(
    (0, 1, 1),
    (0, 10, 20),
    (0.5, 0.75, 1.0),
    (3.0, 2.0, 1.67),
    (Snapshot(0, ("999", "999", "999")), Snapshot(20, ("900", "094", "039"))),
)


@pytest.fixture(params=["draw", "fit"])
def path(request, tmp_path):
    """A film written anew, under the name of one that is committed."""
    path = tmp_path / f"{request.param}.svg"
    if request.param == "draw":
        draw_clip(path)
    else:
        fit_clip(Course.from_record(read_json(ROOT / "results" / "clips.json")), path)
    return path


def test_the_committed_films_are_what_the_results_make(path):
    assert (CLIPS / path.name).read_bytes() == path.read_bytes()
    assert path.stat().st_size < 200_000


def test_a_film_needs_nothing_else(path):
    text = path.read_text("utf-8")
    assert re.findall(r"\w+://[^\s\"']+", text) == ["http://www.w3.org/2000/svg"]  # a name, which nobody fetches
    assert not re.search(r"@import|url\(|href|<script|<image|<foreignObject|<animate|<set|\son\w+=", text)


def test_a_film_stands_still_for_those_who_ask(path):
    style = ElementTree.fromstring(path.read_text("utf-8")).find(f"{SVG}style").text
    before, moves = style.split("@media (prefers-reduced-motion: no-preference) {")
    assert "animation: m0 12s linear infinite" in moves
    assert "svg:target * { animation: none !important; }" in before
    assert "animation" not in before.replace("svg:target * { animation: none !important; }", "")
    assert "@keyframes" not in before


def test_a_film_says_what_it_shows(path):
    root = ElementTree.fromstring(path.read_text("utf-8"))
    named = {element.get("id"): element for element in root if element.get("id")}
    assert [named[name].tag for name in root.get("aria-labelledby").split()] == [f"{SVG}title", f"{SVG}desc"]
    assert {"queries", "keys"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_every_class_that_moves_has_keyframes(path):
    text = path.read_text("utf-8")
    used = {
        name for names in re.findall(r'class="([^"]*)"', text) for name in names.split() if re.match(r"m\d+$", name)
    }
    assert used == set(re.findall(r"@keyframes (m\d+) ", text))


def test_keyframes_ascend_and_stay_within_the_film(path):
    for keyframes in re.findall(r"@keyframes m\d+ (.*?) \.m\d+ ", path.read_text("utf-8")):
        at = [float(share) for share in re.findall(r"([\d.-]+)% \{", keyframes)]
        assert at == sorted(at) and (at[0], at[-1]) == (0, 100), keyframes


def test_draws_are_those_of_the_sampler():
    model = example_model()
    for seed in (SEED, 1, 2):
        draws = trace_draws(model, seed)
        counts = Counter((draw.query, draw.key) for draw in draws)
        edges = sample_fastrg(model, 0.0, seed, 0)
        cells = zip(edges.rows().tolist(), edges.keys.tolist(), strict=True)
        assert dict(zip(cells, edges.multiplicity.tolist(), strict=True)) == counts
        for draw in draws:  # of clusters that the two tokens are in
            assert model.query_membership[0, 0, draw.query, draw.query_cluster] > 0
            assert model.key_membership[0, 0, draw.key, draw.key_cluster] > 0


def test_the_last_mask_is_what_was_drawn(tmp_path):
    draw_clip(tmp_path / "draw.svg")
    drawn = {(draw.query, draw.key) for draw in trace_draws(example_model(), SEED)}
    assert masks_of(ElementTree.parse(tmp_path / "draw.svg").getroot()) == [drawn]


def masks_of(root):
    """The cells of every finished mask, as (query, key)."""
    groups = [group for group in root.iter(f"{SVG}g") if "mask" in group.get("class", "").split()]
    return [{cell_of(rect) for rect in group} for group in groups]


def cell_of(rect):
    return int((float(rect.get("y")) - TOP) // CELL), int((float(rect.get("x")) - LEFT) // CELL)


def test_every_count_of_a_pair_is_shown():
    draws = [Draw(0, 0, 1, 2)] * 3 + [Draw(2, 2, N - 1, N - 1)]
    root = ElementTree.fromstring(make_film(draws).svg())
    counts = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "count"]
    assert counts == ["×2", "×3"]
    assert masks_of(root) == [{(1, 2), (N - 1, N - 1)}]
    said = [text.text for text in root.iter(f"{SVG}text")]
    assert said[-2:] == ["4 draws, repeats merged:", "a mask of 2 edges."]


def test_shades_are_those_of_the_probabilities(tmp_path):
    fit_clip(TINY, tmp_path / "fit.svg")
    root = ElementTree.parse(tmp_path / "fit.svg").getroot()
    masks = [group for group in root.iter(f"{SVG}g") if "mask" in group.get("class", "").split()]
    assert len(masks) == len(TINY.snapshots)
    for snapshot, mask in zip(TINY.snapshots, masks, strict=True):
        expected = [[sum(int(digit) >= level for level in LEVELS) for digit in row] for row in snapshot.tenths]
        assert shades_of(mask, len(TINY.tokens)) == expected


def shades_of(mask, n):
    """The shade of every cell, counted from 1; 0 is blank."""
    found = [[0] * n for _ in range(n)]
    for path in mask.iter(f"{SVG}path"):
        x = y = 0
        for right, down, width in re.findall(r"m(-?\d+) (-?\d+)h(\d+)", path.get("d")):
            x, y = x + int(right), y + int(down)
            for column in range(x, x + int(width)):
                assert found[y][column] == 0
                found[y][column] = int(path.get("class").removeprefix("p")) + 1
            x += int(width)
    return found


def test_numbers_belong_to_their_masks(tmp_path):
    fit_clip(TINY, tmp_path / "fit.svg")
    root = ElementTree.parse(tmp_path / "fit.svg").getroot()
    values = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "value"]
    assert values == ["0.500", "3.0 of 3", "0 of 20", "1.000", "1.7 of 3", "20 of 20"]
    last = [group for group in root.iter(f"{SVG}g") if "later" not in group.get("class", "later").split()]
    assert len(last) == 2  # when nothing moves, the last mask and its numbers are there


def test_equal_values_are_framed(tmp_path):
    fit_clip(TINY, tmp_path / "fit.svg")
    root = ElementTree.parse(tmp_path / "fit.svg").getroot()
    squares = next(path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "equal")
    size = f"{2 * MASK_SIDE / 3:.2f}"
    assert squares.count("M") == 1 and f"h{size}v{size}" in squares


def test_probabilities_in_tenths():
    assert in_tenths(torch.tensor([[0.0, 0.1, 0.99, 1.0]])) == ["0199"]


def test_text_is_escaped():
    assert words(0, 0, "a < b & c") == '<text x="0" y="0">a &lt; b &amp; c</text>'
    assert box(1, 2, 3.5, 4, "x", fill_opacity="0.5") == (
        '<rect x="1" y="2" width="3.5" height="4" class="x" fill-opacity="0.5"/>'
    )
    film = Film("a < b", "c & d", width=10, height=10, seconds=1.0)
    assert ElementTree.fromstring(film.svg())[0].text == "a < b"


def test_equal_moves_share_their_keyframes():
    film = Film("a", "b", width=10, height=10, seconds=2.0)
    assert film.shown(0.5, 1.0) == film.shown(0.5, 1.0) != film.shown(0.5, 1.5)
    assert film.svg().count("@keyframes") == 2
