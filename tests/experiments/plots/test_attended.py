from types import SimpleNamespace

import pytest
import torch

from sbmt.experiments.plots.attended import draw_long_range_inspection, glyph_of, inspect_examples, word_glyph
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.fit import fit


def whole_batches(run, seed):
    """Returns each test example's dense masks (layers, heads, n, n) and real tokens, per document, batch by batch."""
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
        ("retrieval", {"attention": "full"}),
        ("image", {"n_layers": 1, "n_heads": 1}),
        ("listops", {"quirks": True}),
        ("mnli", {"attention": "random_mask"}),
    ],
)
def test_single_examples_are_seen_as_in_the_evaluation_and_drawn(
    task, settings, caches, tiny, tiny_glue, monkeypatch, tmp_path
):
    monkeypatch.setattr(TrainingConfig, "evaluation_batch", 8)  # 13 examples make two batches
    run = fit((tiny_glue if task == "mnli" else tiny)(task, **settings))
    inspection = inspect_examples(run, seed=3)
    expected = whole_batches(run, 3)
    assert len(run.model._forward_pre_hooks) == 0
    for example, query in ((0, None), (7, 2), (8, None), (12, 0)):
        dense, is_real = expected[example]
        documents = inspection.see(example, query)
        assert len(documents) == len(dense)
        densities = torch.stack([document.densities for document in documents]).mean(0)
        torch.testing.assert_close(densities, inspection.per_example.example_densities[example])
        for document, mask, real in zip(documents, dense, is_real, strict=True):
            assert query in (None, document.query)
            n, n_real = len(document.tokens), real.sum().clamp(min=1)
            assert not mask[..., n:].any() and (task == "image" or real[n - 1] or not real.any())
            in_degrees = mask.sum(2) / n_real  # layers heads n_keys
            torch.testing.assert_close(document.in_degrees, in_degrees[..., :n])
            assert torch.equal(document.is_attended, mask[:, :, document.query, :n])
            torch.testing.assert_close(document.densities, in_degrees.sum(-1) / n_real)
    draw_long_range_inspection(inspection, tmp_path / "seen.png")
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")


def test_every_token_can_be_written():
    def run(task):
        return SimpleNamespace(tokenizer=None, about={"data": {"first_id": 1}}, config=SimpleNamespace(task=task))

    glyphs = [glyph_of(run("text"), 1 + byte) for byte in range(256)]
    assert [g.encode().decode("unicode_escape").encode("latin-1")[0] for g in glyphs] == list(range(256))
    listops = [glyph_of(run("listops"), 1 + symbol) for symbol in (-1, 0, 1, 5, 6, 16)]
    assert listops == [" ", "? ", "[MIN ", "] ", "0 ", "? "]
    words = [word_glyph(glyph) for glyph in ("<s>", "␣film", "␣", "é", "中")]
    assert words == ["<s>", " film", " ", "é", "\\u4e2d"]
