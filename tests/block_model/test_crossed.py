"""Block models of crossed partitions are the dense model of the same memberships, at other cost."""

import itertools

import pytest
import torch
from scipy import stats

from sbmt import EdgeList, SbmtError, sample_edges
from sbmt.block_model import crossed
from sbmt.block_model.crossed import CrossedModel, part_memberships
from sbmt.block_model.fit import fit_loss
from sbmt.block_model.link import find_link
from sbmt.counter_rng import WORD, Purpose, random_blocks
from sbmt.kernels import token_sums
from sbmt.layers import SBMAttention
from sbmt.samplers.exact import sample_exact
from tests.block_model.crossed_models import (
    ACTIVE,
    BATCH,
    GROUPS,
    HEADS,
    SIZE,
    M,
    N,
    both_models,
    dense,
    edges_of,
    padding,
    tokens,
    twin,
)
from tests.statistics import binomial_p_values

SHARE = 1e-8  # of the suite's false alarms, for each cell's test below


def masks_of(model, n_seeds=10, repeats=400, exploration=0.0):
    """4,000 drawn masks: the model repeated over the batch, from a few seeds."""
    query, key = (
        tuple(t.repeat(repeats, 1, 1, 1) for t in side)
        for side in ((model.query_part, model._query), (model.key_part, model._key))
    )
    masks = (None if t is None else t.repeat(repeats, 1) for t in (model.query_mask, model.key_mask))
    many = CrossedModel(query, model.part_blocks, key, *masks, model.link)
    drawn = [
        sample_edges(many, exploration=exploration, generator=torch.Generator().manual_seed(seed)).to_dense()
        for seed in range(n_seeds)
    ]
    return torch.cat(drawn).view(-1, *model.shape)


@pytest.mark.parametrize("chunk", [1, 4, 9, 1024])
def test_sums_over_tokens_do_not_depend_on_the_chunks(chunk, monkeypatch):
    monkeypatch.setattr(token_sums, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(BATCH, HEADS, N, 2, n, generator=generator, dtype=torch.float64) for n in (3, 5))
    expected = torch.einsum("bhtfa,bhtfc->bhfac", x, y)
    torch.testing.assert_close(token_sums.sum_of_products(x, y), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_active", [1, 2, SIZE])
@pytest.mark.parametrize("width", [4, 40])  # kernels never form the nodes of narrow tokens
@pytest.mark.parametrize("has_kernels", [True, False])
def test_memberships_and_their_gradients_are_those_of_the_twin(n_active, has_kernels, width, monkeypatch):
    if not has_kernels:
        monkeypatch.setattr(crossed, "can_run_on", lambda device: False)
    x, node_map, centres = tokens(N, width=width)
    y = tokens(M, seed=1, width=width)[0]
    leaves = (x, y, *node_map.parameters(), centres)
    results = [], []
    found = part_memberships(x, y, node_map, centres, 2 * GROUPS, n_active)
    for tokens_, (part, weight) in zip((x, y), found, strict=True):
        assert part.shape == weight.shape == (BATCH, HEADS, tokens_.shape[2], 2 * GROUPS * n_active)
        assert (part.diff(dim=-1) > 0).all()
        results[0].append(dense(part, weight))
        results[1].append(twin(tokens_, node_map, centres, n_active))
    mine, theirs = (torch.cat(both, 2) for both in results)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    factors = torch.randn(mine.shape, dtype=mine.dtype, generator=torch.Generator().manual_seed(9))
    for x, y in zip(*(torch.autograd.grad((m * factors).sum(), leaves) for m in (mine, theirs)), strict=True):
        assert y.abs().max() > (1e-3 if n_active > 1 else -1)  # a single part has membership 1 whatever its logit
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("exploration", [0.0, 0.05])
def test_a_fit_is_that_of_the_dense_model(exploration, is_padded):
    model, plain, leaves = both_models(padding() if is_padded else (None, None))
    edges, results = edges_of(model), []
    weights = torch.rand(edges.n_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for m in (model, plain):
        loss = fit_loss(m, edges, m.edge_rate(edges), weights, 4.0, exploration)
        results.append((loss, *torch.autograd.grad(3 * loss, leaves)))
    for mine, theirs in zip(*results, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("has_kernels", [True, False])
@pytest.mark.parametrize("quantity", ["edge_rate", "sum_of_rates", "expected_mask", "no edges"])
def test_rates_and_their_gradients_are_those_of_the_dense_model(quantity, has_kernels, is_padded, monkeypatch):
    if not has_kernels:
        monkeypatch.setattr(crossed, "can_run_on", lambda device: False)
    model, plain, leaves = both_models(padding() if is_padded else (None, None))
    edges = edges_of(model, 0.0 if quantity == "no edges" else 0.3)
    results = []
    for m in (model, plain):
        out = getattr(m, quantity)() if quantity in ("sum_of_rates", "expected_mask") else m.edge_rate(edges)
        factors = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
        results.append((out, torch.autograd.grad((out * factors).sum(), leaves, retain_graph=True, allow_unused=True)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-11, atol=1e-12)
    for x, y in zip(results[0][1], results[1][1], strict=True):
        assert quantity == "no edges" or y.abs().max() > 1e-3
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-11)
    assert model.shape == plain.shape and model.n_clusters == plain.n_clusters


def test_gradients_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.threads.parallel._LEAST_WORK", 1)
    monkeypatch.setattr("sbmt.kernels.cpu.launch._CHUNK", 4)  # rows of several examples in one
    found = []
    before = torch.get_num_threads()
    model, _, leaves = both_models()  # whose logits are products of torch's, which depend on them
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            rate = model.edge_rate(edges_of(model))
            found.append((rate, *torch.autograd.grad(rate.square().sum(), leaves, retain_graph=True)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("way", ["by points", "by keys"])
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_the_law_of_every_edge(way, is_padded, exploration, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.draws.crossed._DENSE", 1e9 if way == "by points" else 0.0)
    model, plain, _ = both_models(padding() if is_padded else (None, None), scale=2.0)
    masks = masks_of(model, exploration=exploration)
    n_draws, counts = len(masks), masks.sum(0)
    p = plain.expected_mask(exploration).detach()
    assert 0.02 < p[p > 0].min() < p.max() < 0.999
    assert binomial_p_values(counts.numpy(), n_draws, p.numpy()).min() > SHARE / counts.numel()
    together = (counts - n_draws * p).sum() / (n_draws * p * (1 - p)).sum().sqrt()
    assert abs(together) < 5.7  # 1.2e-8 of false alarm


def pick(shares, word):
    """Which of some shares of a whole a random word of 32 bits falls into."""
    ends = (shares.cumsum(0) / shares.sum() * WORD + 0.5).clamp(max=WORD - 1).long()
    return int(torch.searchsorted(ends, min(word, WORD - 2), right=True))


def count_plainly(expected, words):
    """A Poisson number for each 64 that are expected, and the rest, which is the quantile of the first two words."""
    means = torch.arange(len(words)).mul(-64.0).add(expected).clamp(0, 64)
    u = ((words[:, 0] >> 5 << 26) + (words[:, 1] >> 6) + 0.5) / 2.0**53
    return int(stats.poisson.ppf(u, means).sum())


def drawn_plainly(model, exploration, seed, first_example):
    """A draw point by point: four words say where on the row's line it is, the two parts of its key, and its key."""
    mask, (_, _, n, m) = torch.zeros(model.shape, dtype=torch.bool), model.shape
    in_parts = model._in_parts(model.key_part, model._key).detach().unflatten(-1, (GROUPS, 2, SIZE))
    for example, head, row in itertools.product(range(BATCH), range(HEADS), range(n)):
        key, blocks, pieces = in_parts[example, head], model.part_blocks[head].detach(), []
        parts, weights = (t[example, head, row].unflatten(0, (GROUPS, 2, -1)) for t in (model.query_part, model._query))
        for g in range(GROUPS):
            for (a, s), (d, t) in itertools.product(*(zip(parts[g, x], weights[g, x], strict=True) for x in (0, 1))):
                rows = blocks[2 * g, a % SIZE, :, None], blocks[2 * g + 1, d % SIZE]
                pieces.append((g, s * t * rows[0] * rows[1] * (key[:, g, 0].T @ key[:, g, 1])))
        real = torch.arange(m) if model.key_mask is None else model.key_mask[example].nonzero()[:, 0]
        lengths = torch.stack([piece.detach().sum() for _, piece in pieces] + [torch.tensor(exploration * len(real))])
        address = [torch.tensor(x) for x in (example + first_example, head, row)]
        purposes = Purpose.COUNT, Purpose.CANDIDATE
        counting, naming = (random_blocks(seed, purpose, *address, torch.arange(200)) for purpose in purposes)
        is_real = model.query_mask is None or model.query_mask[example, row]
        for first, *word in naming[: count_plainly(lengths.sum(), counting) if is_real else 0].tolist():
            at = pick(lengths, first)
            if at == len(pieces):
                mask[example, head, row, real[word[2] * len(real) >> 32]] = True
                continue
            (g, piece), c = pieces[at], pick(pieces[at][1].sum(0), word[0])
            shares = key[:, g, 0, pick(piece[:, c], word[1])] * key[:, g, 1, c]
            mask[example, head, row, pick(shares, word[2])] = True
    return mask


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_a_draw_follows_its_random_words_point_by_point(is_padded, exploration, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.draws.crossed._DENSE", 1e9)
    model, _, _ = both_models(padding() if is_padded else (None, None), scale=4.0)
    for seed in (3, -5):
        found = sample_exact(model, exploration, seed, 4, None).to_dense()
        assert found.sum() > 200 and torch.equal(found, drawn_plainly(model, exploration, seed, 4))


def test_the_law_where_searches_take_many_steps(monkeypatch):
    """More parts, and pieces of a row's line, than are compared at once; and pairs of many keys, which differ much.

    In one head the first keys count most, in the other the last, so that a key lies far from where keys alike would.
    """
    monkeypatch.setattr("sbmt.kernels.cpu.draws.crossed._DENSE", 1e9)
    n_groups, size, active, n, m = 2, 20, 3, 3, 400
    generator = torch.Generator().manual_seed(0)

    def memberships(n, n_used, scale):
        chosen = torch.rand(1, 2, n, 2 * n_groups, n_used, generator=generator).topk(active).indices.sort(-1).values
        part = chosen * (size - 1) // (n_used - 1) + size * torch.arange(2 * n_groups)[:, None]
        weight = torch.rand(part.shape, generator=generator, dtype=torch.float64) * scale[..., None, None]
        return part.to(torch.int16).flatten(3), weight.flatten(3) / active

    query = memberships(n, size, torch.ones(1, 2, n, dtype=torch.float64))
    share = torch.full((m,), 0.15, dtype=torch.float64)
    share[:40] = 1.0
    key = memberships(m, active, torch.stack([share, share.flip(0)])[None])
    blocks = 5 * torch.rand(2, 2 * n_groups, size, size, generator=generator, dtype=torch.float64)
    model = CrossedModel(query, blocks, key, None, None, find_link("poisson"))
    masks, p = masks_of(model), model.expected_mask()
    assert 1e-5 < p.min() < p.max() < 0.999 and (p * len(masks)).median() > 10
    assert binomial_p_values(masks.sum(0).numpy(), len(masks), p.numpy()).min() > SHARE / p.numel()


def test_edges_of_a_pair_of_cells_are_independent():
    """Two keys that share all their clusters are named by the same points' clusters, but independently."""
    model, plain, _ = both_models(scale=2.0)
    masks = masks_of(model).double().flatten(1, 3)  # draws rows keys
    n_draws = len(masks)
    p = plain.expected_mask().detach().flatten(0, 2)
    centred = masks - p
    products = torch.einsum("dri,drj->rij", centred, centred) / n_draws
    variance = (p * (1 - p))[:, :, None] * (p * (1 - p))[:, None, :]
    z = products * (n_draws / variance.clamp(min=1e-30)).sqrt()
    off = ~torch.eye(M, dtype=torch.bool)
    assert abs(z[:, off]).max() < 8.0  # far beyond the normal law's 1e-8, as products of rare events have heavier tails
    assert abs(z[:, off].mean()) * (z[:, off].numel() / 2) ** 0.5 < 5.7


@pytest.mark.parametrize("way", ["by points", "by keys"])
def test_edges_depend_on_neither_threads_nor_batch_nor_room(way, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.draws.crossed._DENSE", 1e9 if way == "by points" else 0.0)
    model, _, _ = both_models(padding(), scale=2.0)

    def draw(model, first=0):
        generator = torch.Generator().manual_seed(3)
        return sample_edges(model, exploration=0.05, generator=generator, first_example=first)

    whole = draw(model)
    EdgeList(whole.row_ptr, whole.keys, whole.shape, whole.query_mask, whole.key_mask, check=True)
    monkeypatch.setattr("sbmt.kernels.cpu.threads.parallel._LEAST_WORK", 1)
    monkeypatch.setattr("sbmt.kernels.cpu.draws.pieces._ROOM", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(draw(model).keys, whole.keys)
    parts = (model.query_part[1:], model._query[1:]), (model.key_part[1:], model._key[1:])
    masks = (mask[1:] for mask in padding())
    last = CrossedModel(parts[0], model.part_blocks, parts[1], *masks, model.link)
    assert torch.equal(draw(last, first=1).to_dense()[0], whole.to_dense()[1])


def with_blocks(value):
    """A model whose blocks have this value everywhere."""
    model, _, _ = both_models()
    blocks = torch.full_like(model.part_blocks, value)
    return CrossedModel((model.query_part, model._query), blocks, (model.key_part, model._key), None, None, model.link)


@pytest.mark.parametrize("window", [0, 5, 1000])
@pytest.mark.parametrize("way", ["by points", "by keys"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_window_is_drawn_along_as_if_it_were_added(is_padded, way, window, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.draws.crossed._DENSE", 1e9 if way == "by points" else 0.0)
    lengths = torch.tensor([[N], [4]]), torch.tensor([[6], [N]])
    masks = [torch.arange(N) < length for length in lengths] if is_padded else (None, None)
    x, node_map, centres = tokens(N)
    few = part_memberships(x, tokens(N, 1)[0], node_map, centres, 2 * GROUPS, ACTIVE)
    generator, shape = torch.Generator().manual_seed(4), (HEADS, 2 * GROUPS, SIZE, SIZE)
    blocks = 0.3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    model = CrossedModel(few[0], blocks, few[1], *masks, find_link("poisson"))
    for seed in range(20):
        alone, with_window = (sample_exact(model, 0.05, seed, 0, width) for width in (None, window))
        expected = alone.with_window(window)
        assert 0 < alone.n_edges < expected.n_edges
        assert torch.equal(with_window.row_ptr, expected.row_ptr) and torch.equal(with_window.keys, expected.keys)


def test_rates_beyond_all_bounds_draw_every_key_and_rates_of_zero_none():
    assert sample_edges(with_blocks(1e15)).n_edges == BATCH * HEADS * N * M
    edges = sample_edges(with_blocks(0.0))
    assert edges.n_edges == 0 and with_blocks(0.0).edge_rate(edges).shape == (0,)


@pytest.mark.parametrize(
    ("settings", "token", "words"),
    [
        (dict(link="poisson"), torch.nan, r"query_membership in \[0, 1\] without NaN"),
        (dict(link="poisson", n_active=0), 1.0, "n_active"),
        (dict(link="bilinear"), 1.0, "crossed memberships with link='poisson'"),
    ],
)
def test_what_is_refused(settings, token, words):
    x = torch.full((1, 1, 3, 4), token)
    with pytest.raises(SbmtError, match=words):
        SBMAttention(4, 1, 9, membership="crossed", **settings)(x, x, x)


@pytest.mark.parametrize(("asked", "made"), [(1, 2), (9, 8), (18, 18)])
def test_the_number_of_clusters_is_the_nearest_that_can_be_crossed(asked, made):
    layer = SBMAttention(4, 3, asked, link="poisson", membership="crossed", n_groups=2)
    assert layer.n_clusters == made and f"n_clusters={made}" in repr(layer)
    assert layer.clusters.shape == (3, 2 * 2 * round((made / 2) ** 0.5), 4)
    x = torch.randn(1, 3, 5, 4)
    assert layer.block_model(x, x).n_clusters == layer.block_model(x, x).query_membership.shape[-1] == made


def test_rows_and_points_beyond_what_is_drawn_at_a_time(monkeypatch):
    """150 rows of some 300 points each: more of both than fit at once."""
    generator = torch.Generator().manual_seed(0)
    (_, node_map, centres), link = tokens(N, 3, torch.float32), find_link("poisson")
    both = (torch.randn(1, HEADS, n, 4, generator=generator) for n in (150, 1000))
    with torch.no_grad():
        queries, keys = part_memberships(*both, node_map, centres, 2 * GROUPS, ACTIVE)
    blocks = torch.rand(HEADS, 2 * GROUPS, SIZE, SIZE, generator=generator)
    rates = CrossedModel(queries, blocks, keys, None, None, link).sum_of_rates()
    model = CrossedModel(queries, blocks * (150 * 300 / rates.mean()) ** 0.5, keys, None, None, link)

    drawn = torch.stack([sample_edges(model, generator=generator).density()[0] for _ in range(20)])
    p = model.expected_mask()[0].double()
    z = (drawn.double().mean(0) - p.mean((1, 2))) / ((p * (1 - p)).sum((1, 2)) / 20).sqrt() * p[0].numel()
    assert abs(z).max() < 6.2 and 0.1 < drawn.mean() < 0.5  # 2e-9 of false alarm

    found = []
    for room in (1, 1 << 20):
        monkeypatch.setattr("sbmt.kernels.cpu.draws.pieces._ROOM", room)
        found.append(sample_edges(model, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(found[0].row_ptr, found[1].row_ptr) and torch.equal(found[0].keys, found[1].keys)


def test_tokens_stand_in_the_order_of_the_dense_model_s_clusters():
    masks = padding()
    crossed, dense_model, _ = both_models(masks)
    for order, expected, mask in zip(crossed.cluster_order(), dense_model.cluster_order(), masks, strict=True):
        assert torch.equal(order, expected)
        n_real = mask.sum(1)
        for example, n in enumerate(n_real):
            assert mask[example, order[example, :, :n]].all() and not mask[example, order[example, :, n:]].any()
