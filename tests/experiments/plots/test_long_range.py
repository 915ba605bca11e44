import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

import sbmt.experiments.plots.long_range as long_range
from sbmt.errors import SbmtError
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.plots.attended import inspect_examples
from sbmt.experiments.plots.long_range import draw_long_range_inspection
from tests.experiments.plots.tiny_glue import tiny_glue_run
from tests.experiments.plots.tiny_long_range import tiny_run


@pytest.mark.parametrize(
    "task, settings",
    [
        ("retrieval", {"n_layers": 1, "n_heads": 1}),
        ("listops", {"attention": "full", "n_layers": 1}),
        ("image", {"n_layers": 3}),
        ("mnli", {"n_layers": 1}),
    ],
)
def test_every_kind_has_a_picture(task, settings, tmp_path):
    make = tiny_glue_run if task in GLUE else tiny_run
    run, prepared = make(task, tmp_path, **settings)
    inspection = inspect_examples(run, prepared=prepared)
    draw_long_range_inspection(inspection, tmp_path / "seen.png")
    picture = imread(tmp_path / "seen.png")[..., :3]
    below = picture[round(long_range._BARS / _height(picture) * len(picture)) :]
    for part in np.array_split(below, len(inspection.lowest_and_highest())):
        assert len(np.unique(part.reshape(-1, 3), axis=0)) > 50


def _height(picture):
    return len(picture) / picture.shape[1] * long_range._WIDTH


def test_a_query_can_be_chosen(tmp_path):
    run, prepared = tiny_run("text", tmp_path, n_layers=1)
    inspection = inspect_examples(run, 4, prepared=prepared)
    for query in (0, 3):
        draw_long_range_inspection(inspection, tmp_path / f"{query}.png", query)
    assert (tmp_path / "0.png").read_bytes() != (tmp_path / "3.png").read_bytes()
    with pytest.raises(SbmtError, match="a query position in"):
        draw_long_range_inspection(inspection, tmp_path / "no.png", 99)
    with pytest.raises(SbmtError, match="a file ending"):
        draw_long_range_inspection(inspection, tmp_path / "no.doc")


@pytest.mark.parametrize(
    ("make", "task", "limit", "most", "shown"),
    [(tiny_run, "text", "MOST_TOKENS", 6, "2 to 7"), (tiny_glue_run, "qnli", "MOST_WORDS", 4, "3 to 6")],
)
def test_a_long_text_is_shown_around_its_query(make, task, limit, most, shown, tmp_path, monkeypatch):
    monkeypatch.setattr(long_range, limit, most)
    run, prepared = make(task, tmp_path)
    inspection = inspect_examples(run, prepared=prepared)
    documents = inspection.see(0, 5)
    part = long_range._text_part(inspection, 0, documents, 0, np.ones((2, 2), np.float32))
    assert f"tokens {shown} of {len(documents[0].tokens)}" in part.title


def test_words_are_written_as_the_tokeniser_writes_them(tmp_path, monkeypatch):
    task = "qqp"
    run, prepared = tiny_glue_run(task, tmp_path, length=128)
    inspection = inspect_examples(run, prepared=prepared)
    example, written = inspection.lowest_and_highest()[0], []
    monkeypatch.setattr(long_range, "plot_attended_text", lambda _, glyphs, *args, **named: written.append(glyphs))
    (document,) = inspection.see(example, 1)
    part = long_range._text_part(inspection, example, [document], 0, np.ones((2, 2), np.float32))
    part.draw(Figure().subfigures(1, 1))
    texts = [bytes(text).decode() for text in prepared.splits["test"].documents(example)]
    plain = [text.replace("中", "\\xe4\\xb8\\xad").replace("é", "\\xc3\\xa9") for text in texts]
    spelt = "".join(written[0]).replace("é", "\\xc3\\xa9").replace("\\u4e2d", "\\xe4\\xb8\\xad")
    assert spelt == "<s>" + "</s></s>".join(plain) + "</s>"
    assert len(written) == 4 and "boxed: query 1," in part.title
    assert f"label {GLUE[task].class_names[prepared.splits['test'].labels[example]]}" in part.title


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
