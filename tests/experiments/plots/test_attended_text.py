from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from sbmt.experiments.plots.attended_text import (
    LONGEST,
    byte_glyph,
    listops_glyph,
    plot_attended_text,
    stretch,
    word_glyph,
    wrap,
)
from sbmt.experiments.plots.style import INK, MASK_COLOURS, VERMILLION
from tests.experiments.plots.tiny_glue import tiny_tokenizer


def test_every_byte_is_written_in_printable_ascii_and_can_be_read_back():
    glyphs = [byte_glyph(byte) for byte in range(256)]
    assert all(glyph.isascii() and glyph.isprintable() for glyph in glyphs)
    assert len(set(glyphs)) == 256
    assert [g.encode().decode("unicode_escape").encode("latin-1")[0] for g in glyphs] == list(range(256))


def test_padding_and_unknown_tokens_of_listops_are_written_too():
    assert [listops_glyph(symbol) for symbol in (0, 1, 6, 16)] == ["? ", "[MIN ", "0 ", "? "]


def test_words_of_a_vocabulary_stand_apart_and_need_no_other_font():
    tokenizer = tiny_tokenizer()
    glyphs = [word_glyph(tokenizer.glyph(token)) for token in range(tokenizer.vocab_size)]
    assert [glyphs[token] for token in tokenizer.special_ids] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    text = "a film that is café 中\tnot \x00 $5"
    shown = "".join(glyphs[token] for token in tokenizer.encode(text))
    assert shown.startswith("a film that is caf") and "not \\x00 $5" in shown
    assert "\\xe4\\xb8\\xad" in shown or "\\u4e2d" in shown  # 中, in pieces or as a whole
    axes = Figure().subplots()
    is_key = torch.zeros(len(glyphs), dtype=torch.bool)
    plot_attended_text(axes, glyphs, torch.rand(len(glyphs)), is_key, -1, upper=1.0, width=40)  # else a warning


def test_very_long_tokens_are_cut():
    assert word_glyph("-" * LONGEST) == "-" * LONGEST
    assert word_glyph("-" * (LONGEST + 1)) == "-" * (LONGEST - 1) + "…"


@given(st.lists(st.sampled_from(["a", "\\n", "\\x00"]), min_size=1, max_size=60), st.integers(4, 12))
def test_lines_are_filled_and_never_too_long(glyphs, width):
    places = wrap(glyphs, width)
    lines = [[] for _ in range(places[-1][0] + 1)]
    for glyph, (line, column) in zip(glyphs, places, strict=True):
        assert column == sum(map(len, lines[line]))
        lines[line].append(glyph)
    widths = [sum(map(len, line)) for line in lines]
    assert max(widths) <= width and "".join(map("".join, lines)) == "".join(glyphs)
    assert all(w + len(after[0]) > width for w, after in zip(widths, lines[1:], strict=False))


@given(st.integers(1, 50), st.data(), st.integers(1, 60))
def test_a_stretch_holds_its_query(n, data, most):
    query = data.draw(st.integers(0, n - 1))
    found = stretch(n, query, most)
    assert len(found) == min(n, most) and query in found and found.start >= 0 and found.stop <= n


def test_shades_lines_and_box_say_what_is_attended():
    glyphs = ["$", "a", " ", "\\n", "$"]
    in_degrees, is_attended = torch.tensor([0.0, 0.1, 0.2, 0.4, 0.4]), torch.tensor([False, True, True, True, False])
    figure = Figure(figsize=(2, 1))
    axes = figure.subplots()
    plot_attended_text(axes, glyphs, in_degrees, is_attended, 3, upper=0.4, width=4)
    cells, under = axes.collections
    np.testing.assert_allclose(cells.get_facecolors(), MASK_COLOURS([0.0, 0.25, 0.5, 1.0, 1.0]))
    starts = [segment[0].round().tolist() for segment in under.get_segments()]
    assert starts == [[1, 1], [2, 1], [0, 2]]  # at the bottom of lines 0, 0 and 1
    light, dark, box = axes.patches
    assert (light.get_facecolor(), dark.get_facecolor()) == (to_rgba(INK), to_rgba("white"))
    assert (box.get_xy(), box.get_width()) == ((-0.25, 1), 2.5) and box.get_edgecolor() == to_rgba(VERMILLION)
    outlines = light.get_path().vertices
    assert 0 <= outlines[:, 0].min() and outlines[:, 0].max() <= 2 and outlines[:, 1].max() <= 1
    assert 1 <= dark.get_path().vertices[:, 1].min() and dark.get_path().vertices[:, 0].max() <= 3
    figure.savefig(BytesIO())


def test_box_and_line_leave_out_the_blank_before_a_word_and_its_ground_does_not():
    axes = Figure().subplots()
    glyphs, is_key = ["<s>", " film", "s", " "], torch.tensor([False, True, True, True])
    plot_attended_text(axes, glyphs, torch.zeros(4), is_key, 1, upper=1.0, width=20)
    cells, under = axes.collections
    widths = [(path.get_extents().x0, path.get_extents().x1) for path in cells.get_paths()]
    assert widths == [(0, 3), (3, 8), (8, 9), (9, 10)]
    columns = [[round(x) for x, _ in segment] for segment in under.get_segments()]
    assert columns == [[4, 8], [8, 9], [9, 10]]
    box = axes.patches[-1]
    assert (box.get_x(), box.get_width()) == (3.75, 4.5)


@pytest.mark.parametrize("glyphs", [["a"], [" "]])
def test_one_token_is_enough(glyphs):
    axes = Figure().subplots()
    plot_attended_text(axes, glyphs, torch.ones(1), torch.zeros(1, dtype=torch.bool), 5, upper=1.0, width=10)
    assert all(patch.get_fill() for patch in axes.patches)  # no box: query 5 is not shown
