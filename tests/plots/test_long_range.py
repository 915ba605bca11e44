import numpy as np
import pytest
from matplotlib.image import imread

import sbmt.plots.long_range as long_range
from sbmt.errors import SbmtError
from sbmt.plots.attended import inspect_examples
from sbmt.plots.long_range import draw_long_range_inspection
from tests.plots.tiny_long_range import tiny_run


@pytest.mark.parametrize(
    "task, settings",
    [
        ("text", {}),
        ("retrieval", {"n_layers": 1, "n_heads": 1}),
        ("listops", {"attention": "full", "n_layers": 1}),
        ("image", {"n_layers": 3}),
        ("pathfinder", {"n_layers": 1}),
    ],
)
def test_every_kind_has_a_picture(task, settings, tmp_path):
    run, prepared = tiny_run(task, tmp_path, **settings)
    inspection = inspect_examples(run, prepared=prepared)
    draw_long_range_inspection(inspection, tmp_path / "seen.png")
    picture = imread(tmp_path / "seen.png")[..., :3]
    below = picture[round(long_range._BARS / _height(picture) * len(picture)) :]
    for part in np.array_split(below, len(inspection.lowest_and_highest())):
        assert len(np.unique(part.reshape(-1, 3), axis=0)) > 50


def _height(picture):
    return len(picture) / picture.shape[1] * long_range._WIDTH


def test_a_query_can_be_chosen(tmp_path):
    run, prepared = tiny_run("text", tmp_path)
    inspection = inspect_examples(run, prepared=prepared)
    for name, query in (("0", 0), ("again", 0), ("3", 3)):
        draw_long_range_inspection(inspection, tmp_path / f"{name}.png", query)
    first, again, other = ((tmp_path / f"{name}.png").read_bytes() for name in ("0", "again", "3"))
    assert first == again != other
    with pytest.raises(SbmtError, match="a query position in"):
        draw_long_range_inspection(inspection, tmp_path / "no.png", 99)
    with pytest.raises(SbmtError, match="a file ending"):
        draw_long_range_inspection(inspection, tmp_path / "no.doc")


def test_a_long_text_is_shown_around_its_query(tmp_path, monkeypatch):
    monkeypatch.setattr(long_range, "MOST_TOKENS", 6)
    run, prepared = tiny_run("text", tmp_path)
    inspection = inspect_examples(run, prepared=prepared)
    documents = inspection.see(0, 5)
    part = long_range._text_part(inspection, 0, documents, 0, np.ones((2, 2), np.float32))
    assert f"tokens 2 to 7 of {len(documents[0].tokens)}" in part.title


def test_titles_say_which_and_why(tmp_path):
    run, prepared = tiny_run("retrieval", tmp_path)
    inspection = inspect_examples(run, prepared=prepared)
    low, high = inspection.lowest_and_highest()
    assert f"Test example {low}: the lowest density of 20" in long_range._title(inspection, low, 0, [])
    title = long_range._title(inspection, high, 1, inspection.see(high))
    assert title.startswith(
        f"Test example {high}, document 1: the highest density of 20, {inspection.densities[high]:.3f}"
    )
    run, prepared = tiny_run("text", tmp_path, attention="full")
    same = inspect_examples(run, prepared=prepared)
    assert "all 20 have density 1.000" in long_range._title(same, 0, 0, [])
