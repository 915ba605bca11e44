from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure

from sbmt.errors import SbmtError
from sbmt.experiments.plots.attended import (
    draw_long_range_inspection,
    glyph_of,
    inspect_examples,
    plot_attended_text,
    word_glyph,
)
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.fit import fit


def whole_batches(run, seed):
    """Each test example's dense masks (layers, heads, n, n) and real tokens, per document, batch by batch."""
    generator = torch.Generator().manual_seed(seed)
    run.model.eval()
    found = []
    feed = run.config.open_data(run.tokenizer).feeds["test"]
    for batch in BatchStream(feed, feed.in_order(run.config.evaluation_batch, None)):
        mask = None if bool(batch.mask.all()) else batch.mask
        with torch.no_grad():
            attention = run.model(batch.tokens, mask, generator=generator, return_edges=True).attention
        dense = torch.stack([layer.edges.to_dense() for layer in attention], 1)  # batch·documents layers heads n n
        n_documents = len(dense) // len(batch.labels)
        is_real = batch.mask.view(len(dense), -1)
        found += list(zip(dense.split(n_documents), is_real.split(n_documents), strict=True))
    return found


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("text", {"attention": "reformer"}),
        ("retrieval", {}),
        ("image", {"n_layers": 1, "n_heads": 1}),
        ("listops", {"quirks": True}),
        ("mnli", {"attention": "random_mask"}),
    ],
)
def test_single_examples_are_seen_as_in_the_evaluation_and_drawn(task, settings, request, monkeypatch, tmp_path):
    is_language = task == "mnli"
    request.getfixturevalue("language" if is_language else "toys")
    monkeypatch.setattr(TrainingConfig, "evaluation_batch", 8)  # 13 examples are two batches
    run = fit(request.getfixturevalue("tiny_glue" if is_language else "tiny")(task, **settings))
    inspection = inspect_examples(run, seed=3)
    expected = whole_batches(run, 3)
    assert len(run.model._forward_pre_hooks) == 0
    for example in (0, 7, 8, 12):
        dense, is_real = expected[example]
        documents = inspection.see(example)
        assert len(documents) == len(dense)
        densities = torch.stack([document.densities for document in documents]).mean(0)
        torch.testing.assert_close(densities, inspection.per_example.example_densities[example])
        for document, mask, real in zip(documents, dense, is_real, strict=True):
            n, n_real = len(document.tokens), real.sum().clamp(min=1)
            assert not mask[..., n:].any() and (task == "image" or real[n - 1] or not real.any())
            in_degrees = mask.sum(2) / n_real  # layers heads n_keys
            torch.testing.assert_close(document.in_degrees, in_degrees[..., :n])
            assert torch.equal(document.is_attended, mask[:, :, document.query, :n])
            torch.testing.assert_close(document.densities, in_degrees.sum(-1) / n_real)
    draw_long_range_inspection(inspection, tmp_path / "seen.png")
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("toys")
def test_the_query_is_the_one_asked_for_or_the_median(tiny):
    inspection = inspect_examples(fit(tiny()), 9)
    document = inspection.see(2)[0]
    degrees = document.in_degrees.mean((0, 1)).sort().values
    assert document.in_degrees.mean((0, 1))[document.query] == degrees[(len(degrees) - 1) // 2]
    other = inspection.see(2, query=1)[0]
    assert other.query == 1 and torch.equal(other.in_degrees, document.in_degrees)
    for query in (-1, len(document.tokens)):
        with pytest.raises(SbmtError, match="a query position in"):
            inspection.see(2, query=query)


def test_every_token_can_be_written():
    def run(task):
        return SimpleNamespace(tokenizer=None, about={"data": {"first_id": 1}}, config=SimpleNamespace(task=task))

    glyphs = [glyph_of(run("text"), 1 + byte) for byte in range(256)]
    assert [g.encode().decode("unicode_escape").encode("latin-1")[0] for g in glyphs] == list(range(256))
    listops = [glyph_of(run("listops"), 1 + symbol) for symbol in (-1, 0, 1, 5, 6, 16)]
    assert listops == [" ", "? ", "[MIN ", "] ", "0 ", "? "]
    words = [word_glyph(glyph) for glyph in ("<s>", "␣film", "␣", "é", "中")]
    assert words == ["<s>", " film", " ", "é", "\\u4e2d"]
    axes, none = Figure().subplots(), torch.zeros(256, dtype=torch.bool)
    plot_attended_text(axes, glyphs, torch.rand(256), none, -1, upper=1.0, width=40)  # else a warning


@pytest.mark.usefixtures("toys")
def test_full_attention_attends_everything_everywhere(tiny):
    run = fit(tiny("text", attention="full"))
    for document in inspect_examples(run, 4).see(1):
        assert bool((document.in_degrees == 1).all()) and bool(document.is_attended.all())
    with pytest.raises(SbmtError, match="at least 2 examples"):
        inspect_examples(run, 1)
    assert len(run.model._forward_pre_hooks) == 0
