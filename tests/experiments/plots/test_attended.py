import numpy as np
import pytest
import torch

from sbmt.errors import SbmtError
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.plots.attended import inspect_examples, key_in_degrees, keys_of
from sbmt.experiments.training.data import BatchStream, numbered
from sbmt.samplers import sample_edges
from tests.experiments.plots.tiny_glue import tiny_glue_run
from tests.experiments.plots.tiny_long_range import N_TEST, tiny_run


def whole_batches(run, prepared, seed):
    """Each test example's dense masks (layers, heads, n, n) and real tokens, per document, batch by batch."""
    generator = torch.Generator().manual_seed(seed)
    run.model.eval()
    found = []
    feed = run.config.open_data(run.tokenizer, prepared).feeds["test"]
    for batch in BatchStream(feed, numbered(N_TEST, 16)):
        mask = None if bool(batch.mask.all()) else batch.mask
        with torch.no_grad():
            attention = run.model(batch.tokens, mask, generator=generator, return_edges=True).attention
        dense = torch.stack([layer.edges.to_dense() for layer in attention], 1)  # batch·documents layers heads n n
        n_documents = len(dense) // len(batch.labels)
        is_real = batch.mask.view(len(dense), -1)
        found += list(zip(dense.split(n_documents), is_real.split(n_documents), strict=True))
    return found


@pytest.mark.parametrize(
    "task, settings",
    [
        ("text", {"attention": "reformer", "n_chunk": 4}),
        ("retrieval", {}),
        ("image", {"n_layers": 1, "n_heads": 1}),
        ("listops", {"quirks": True}),
        ("qnli", {"attention": "random_mask"}),
    ],
)
def test_single_examples_are_seen_as_in_the_evaluation(task, settings, tmp_path):
    make = tiny_glue_run if task in GLUE else tiny_run
    run, prepared = make(task, tmp_path, **settings)
    inspection = inspect_examples(run, seed=3, prepared=prepared)
    expected = whole_batches(run, prepared, 3)
    assert len(run.model._forward_pre_hooks) == 0
    assert inspection.lengths.tolist() == [int(is_real.sum()) for _, is_real in expected]
    for example in (0, 15, 16, N_TEST - 1):
        dense, is_real = expected[example]
        documents = inspection.see(example)
        assert len(documents) == len(dense)
        densities = torch.stack([document.densities for document in documents]).mean(0)
        torch.testing.assert_close(densities, inspection.per_example.densities[example])
        for document, mask, real in zip(documents, dense, is_real, strict=True):
            n, n_real = len(document.tokens), real.sum().clamp(min=1)
            assert not mask[..., n:].any() and (task == "image" or real[n - 1] or not real.any())
            in_degrees = mask.sum(2) / n_real  # layers heads n_keys
            torch.testing.assert_close(document.in_degrees, in_degrees[..., :n])
            assert torch.equal(document.is_attended, mask[:, :, document.query, :n])
            torch.testing.assert_close(document.densities, in_degrees.sum(-1) / n_real)


@pytest.fixture(scope="module")
def listops(tmp_path_factory):
    run, prepared = tiny_run("listops", tmp_path_factory.mktemp("data"))
    return inspect_examples(run, 9, prepared=prepared)


def test_the_query_is_the_one_asked_for_or_the_median(listops):
    document = listops.see(2)[0]
    degrees = document.in_degrees.mean((0, 1)).sort().values
    assert document.in_degrees.mean((0, 1))[document.query] == degrees[(len(degrees) - 1) // 2]
    other = listops.see(2, query=1)[0]
    assert other.query == 1
    assert torch.equal(other.in_degrees, document.in_degrees)
    for query in (-1, len(document.tokens)):
        with pytest.raises(SbmtError, match="a query position in"):
            listops.see(2, query=query)
    with pytest.raises(SbmtError, match=r"an example in \[0, 9\)"):
        listops.see(9)


def test_lowest_and_highest_density(listops):
    densities = [float(x) for x in listops.per_example.densities.double().flatten(1).mean(1)]
    ranked = sorted(range(9), key=densities.__getitem__)
    assert listops.lowest_and_highest() == (ranked[0], ranked[-1])
    assert np.allclose(listops.densities, densities)


def test_full_attention_attends_everything_everywhere(tmp_path):
    run, prepared = tiny_run("text", tmp_path, attention="full")
    inspection = inspect_examples(run, 4, prepared=prepared)
    assert inspection.lowest_and_highest() == (0,)
    for document in inspection.see(1):
        assert bool((document.in_degrees == 1).all()) and bool(document.is_attended.all())
    with pytest.raises(SbmtError, match="at least 2 examples"):
        inspect_examples(run, 1, prepared=prepared)
    assert len(run.model._forward_pre_hooks) == 0


def test_in_degrees_and_keys_of_a_dense_mask(make_block_model):
    edges = sample_edges(make_block_model(is_padded=True), generator=torch.Generator().manual_seed(1))
    dense, n_real = edges.to_dense(), edges.query_mask.sum(1)
    torch.testing.assert_close(key_in_degrees(edges), dense.sum(2) / n_real[:, None, None])
    for query in range(edges.shape[2]):
        assert torch.equal(keys_of(edges, 1, query), dense[1, :, query])
