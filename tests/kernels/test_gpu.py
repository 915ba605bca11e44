"""Compares the Triton kernels with plain PyTorch, on a GPU if there is one, or else through Triton's interpreter."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from results.lookup import load
from results.measure.gpu import CASES, count_case
from sbmt import build_attention
from sbmt.attention.dense import attend_dense
from sbmt.attention.inputs import EdgeTerms
from sbmt.block_model.crossed import CrossedModel, part_memberships
from sbmt.block_model.fit import fit_loss, unit_gradient, weigh_edges
from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.counter_rng import MAX_HEADS, Purpose, philox
from sbmt.graph.edges import EdgeList
from sbmt.samplers.bernoulli import sample_bernoulli
from tests.kernels.on_gpu import CLOSE, DEVICE, REAL, random, without_shape_checks
from tests.statistics import binomial_p_values, joint_p_values

pytest.importorskip("triton")
with without_shape_checks():
    from sbmt.kernels.gpu.attend import DrawnAttention
    from sbmt.kernels.gpu.clusters import CHUNK, list_members
    from sbmt.kernels.gpu.draw import list_edges, prepare
    from sbmt.kernels.gpu.memberships import infer


def draw(model, extra=0.0, reach=-1, seed=7):
    seed = torch.tensor(seed, device=DEVICE)
    given = model.part_rates, model.part_blocks, model.key_part, model.factors[4], model.masks
    return prepare(*given, seed, 3, extra, reach)


def transposed(*shape):
    """Returns a tensor of the given shape, from a projection that stores the heads of a token side by side."""
    batch, heads, n, d = shape
    return random(batch, n, heads, d).transpose(1, 2)


class Layer(SimpleNamespace):
    """The parts of a layer that inference uses, with an MLP that records its input."""

    training, log_start = True, torch.tensor(-1.0, dtype=REAL, device=DEVICE)

    def node_mlp(self, tokens):
        self.tokens = tokens
        return self.nodes if hasattr(self, "nodes") else tokens


@pytest.mark.parametrize("masked", [False, True])
def test_queries_and_keys_are_joined_as_they_lie(masked):
    query, key = transposed(2, 3, 5, 4).detach(), transposed(2, 3, 70, 8).bfloat16().detach()[..., ::2]
    key_mask = torch.arange(70, device=DEVICE) > torch.tensor([[1], [0]], device=DEVICE) if masked else None
    expected = key.to(REAL)
    if masked:
        expected = expected.masked_fill(~key_mask[:, None, :, None], 0.0)
        key[0, :, :2] = torch.nan
    layer = Layer(clusters=random(3, 4, 4), n_groups=1, log_rate=random(3))
    infer(layer, query, key, (None, key_mask), -1.0, 5.0)
    assert torch.equal(layer.tokens, torch.cat([query.flatten(0, 2), expected.flatten(0, 2)]))


def inferred(nodes, clusters, log_rate, start, n_partitions, largest):
    """Computes the output of inference without kernels."""
    clusters, nodes = unit_gradient(clusters, 0), [unit_gradient(x, 1) for x in nodes]
    centres = clusters.unflatten(1, (n_partitions, -1))
    scores = centres @ centres.mT + (unit_gradient(log_rate, 0) + start).view(-1, 1, 1, 1) / 2
    logits = ((clusters @ x.mT).unflatten(2, (n_partitions, -1)) for x in nodes)
    return *map(part_memberships, logits), scores.clamp(max=largest).exp() / 2


@pytest.mark.parametrize(("size", "n", "n_keys", "start"), [(1, 3, 3, -1.0), (2, 5, 70, 0.0), (17, 66, 9, -1.0)])
def test_memberships_blocks_and_rates_are_those_of_the_plain_twin(size, n, n_keys, start):
    n_partitions, largest, d = 4, 1.0, 5
    nodes, clusters, log_rate = random(2 * 2 * (n + n_keys), d), random(2, n_partitions * size, d), random(2)
    log_start = torch.tensor(start, dtype=REAL, device=DEVICE)
    key_mask = torch.arange(n_keys, device=DEVICE).expand(2, -1) != 1
    layer = Layer(clusters=clusters, n_groups=2, log_rate=log_rate, log_start=log_start, nodes=nodes)
    tokens = nodes.new_zeros(2, 2, n, d), nodes.new_zeros(2, 2, n_keys, d)
    *parts, query_weight, key_weight, blocks, rates = infer(layer, *tokens, (None, key_mask), -0.5, largest)
    assert float(log_start) == (start or -0.5)

    queries, keys = (x.unflatten(0, (2, 2, -1)) for x in nodes.split([4 * n, 4 * n_keys]))
    query, key, known = inferred((queries, keys), clusters, log_rate, start or -0.5, n_partitions, largest)
    model = CrossedModel(query, known, key, None, key_mask)
    assert torch.equal(parts[0], query[0]) and torch.equal(parts[1], key[0])
    pairs = list(
        zip((query_weight, key_weight, blocks, rates), (*model.factors[1::3], known, model.part_rates), strict=True)
    )
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, atol=CLOSE, rtol=CLOSE)
    assert size == 1 or ((known > 0.4999 * np.exp(largest)).any() and (known < 0.4 * np.exp(largest)).any())

    leaves, grads = (nodes, clusters, log_rate), [torch.randn_like(expected) for _, expected in pairs]
    for wanted in ([0, 1, 2, 3], [1, 3]):  # of a model whose edges are known, and in one pass
        found, expected = (
            torch.autograd.grad(sum((pairs[i][side] * grads[i]).sum() for i in wanted), leaves, retain_graph=True)
            for side in (0, 1)
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=CLOSE, rtol=CLOSE)


@pytest.mark.parametrize(("size", "n"), [(1, 5), (3, CHUNK), (17, 2 * CHUNK + 3)])
def test_members_of_a_cluster_are_listed_in_order(size, n):
    part, weight = part_memberships(random(1, 2, 4, size, n).detach())
    key_mask = torch.arange(n, device=DEVICE)[None] % 5 != 2
    found, memberships = list_members(part, weight, size, key_mask), weight.new_zeros(2, n, 4 * size)
    memberships = memberships.scatter_add(2, part.flatten(0, 1).long(), weight.flatten(0, 1)).unflatten(2, (2, 2, size))
    crossed = (memberships[:, :, :, 0, :, None] * memberships[:, :, :, 1, None, :]).flatten(2)
    n_real = [int(key_mask[0, : CHUNK * chunk].sum()) for chunk in range(found.mass.shape[1])]
    assert found.n_before[:, :, -1].tolist() == [n_real, n_real]
    assert torch.equal(found.n_real.long(), key_mask.expand(2, n).cumsum(1))
    for graph in range(2):
        for cluster, mass in enumerate(crossed[graph].T):
            [keys] = mass.nonzero(as_tuple=True)
            start = found.starts[graph, cluster]
            assert torch.equal(found.keys[graph, start : start + len(keys)].long(), keys)
            torch.testing.assert_close(found.until[graph, start : start + len(keys)], mass[keys].cumsum(0))
            before = [int((keys < CHUNK * chunk).sum()) for chunk in range(found.mass.shape[1])]
            assert found.n_before[graph, :, cluster].tolist() == before
            torch.testing.assert_close(found.mass[graph, -1, cluster], mass.sum())


def plain(query, key, value, sink, model, edges, extra, reach):
    """Returns the values, Σ p/p_drawn over drawn edges, and the loss along given edges, without kernels."""
    rate = model.edge_rate(edges)
    is_near = edges.is_near(2 * reach) if reach >= 0 else None
    bias, expected = weigh_edges(edges, rate.detach(), "poisson", "poisson", extra, reach)
    values, weights = attend_dense(query, key, value, edges, EdgeTerms(bias=bias, sink=sink, return_weights=True))
    return values, expected, fit_loss(model, edges, rate, weights, 5.0, extra, is_near)


@pytest.mark.parametrize(
    ("n", "n_keys", "size", "extra", "reach", "causal", "masked"),
    [
        (4, 40, 3, 0.0, -1, False, False),
        (9, 9, 2, 0.05, 1, False, True),
        (4, CHUNK + 9, 3, 0.02, 1, True, True),
    ],
)
def test_attention_follows_the_listed_edges(n, n_keys, size, extra, reach, causal, masked):
    query, key, value = (transposed(2, 1, *size) for size in ((n, 4), (n_keys, 4), (n_keys, 5)))
    logits, key_logits = random(2, 1, 4, size, n), random(2, 1, 4, size, n_keys)
    blocks, sink = random(1, 4, size, size), random(1)
    masks = [None, None]
    if masked:
        key_mask = torch.arange(n_keys, device=DEVICE) >= torch.tensor([[0], [6]], device=DEVICE)  # padding on the left
        masks = [key_mask[:, n_keys - n :], key_mask]
    chosen = part_memberships(logits), part_memberships(key_logits)
    model = CrossedModel(chosen[0], (blocks - 2).exp(), chosen[1], *masks, causal)
    drawn, sizes = draw(model, extra, reach)
    edges = EdgeList(*list_edges(drawn, sizes), (2, 1, n, n_keys), *masks, causal, check=True)
    assert 0 < edges.n_edges < 0.5 * edges.cell_count

    fit = SMALLEST_PROBABILITY, 5.0, True
    given = query, key, value, sink, model.part_rates, model.factors[4], drawn, sizes, *fit
    values, density, shares, loss = DrawnAttention.apply(*given)
    expected = plain(query, key, value, sink, model, edges, extra, reach)
    torch.testing.assert_close(density, edges.density().to(REAL), atol=CLOSE, rtol=CLOSE)
    torch.testing.assert_close(values, expected[0], atol=CLOSE, rtol=CLOSE)
    torch.testing.assert_close(shares, expected[1], atol=CLOSE, rtol=CLOSE)
    torch.testing.assert_close(loss, expected[2], atol=CLOSE, rtol=CLOSE)
    grad = torch.randn(2, n, 1, 5, dtype=REAL, device=DEVICE).transpose(1, 2)
    leaves = [query, key, value, sink, logits, key_logits, blocks]
    for found, known in zip(
        torch.autograd.grad((values * grad).sum() + loss, leaves, retain_graph=True),
        torch.autograd.grad((expected[0] * grad).sum() + expected[2], leaves),
        strict=True,
    ):
        torch.testing.assert_close(found, known, atol=CLOSE, rtol=CLOSE)


def uniforms(purpose, row, block, example):
    words = philox(7, tuple(torch.tensor([x]) for x in (block, row, purpose * MAX_HEADS, example)))
    return ((words[:, 0].double() + 0.5) / 2**32).tolist()


def landed(model, example, row, visible, extra):
    """Returns the keys among the first ``visible`` ones that points of a row of head 0 hit, without kernels."""
    rates = model.part_rates[example, 0, row].double().cpu().unflatten(0, (-1, 2, model.part_blocks.shape[2]))
    keys = model.key_membership[example, 0, :visible].double().cpu().unflatten(1, (*rates.shape[::2], -1))
    real = torch.arange(visible) if model.key_mask is None else model.key_mask[example, :visible].cpu().nonzero()[:, 0]
    of_parts = keys.sum(0) * rates[:, 1, None, :]  # groups size size
    first = (rates[:, 0] * of_parts.sum(2)).flatten().cumsum(0)
    u = uniforms(Purpose.COUNT, row, 0, example + 3)
    number = int(stats.poisson.ppf(u[0] + u[1] / 2**32, float(first[-1])))
    n_points = number + int(stats.poisson.ppf(u[2] + u[3] / 2**32, extra * len(real)))
    found = set()
    for t in range(n_points):
        u = uniforms(Purpose.CANDIDATE, row, t, example + 3)
        if t >= number:
            found.add(int(real[int(u[3] * len(real))]))
            continue
        group, a = divmod(int((first <= u[0] * first[-1]).sum()), rates.shape[2])
        second = of_parts[group, a].cumsum(0)
        until = keys[:, group, a, int((second <= u[1] * second[-1]).sum())].cumsum(0)
        found.add(int((until <= u[2] * until[-1]).sum()))
    return found


@pytest.fixture
def drawn_model():
    """Draws few edges per row from an asymmetric block matrix, with a padded key."""

    def build(times, causal):
        n, n_keys = 3, 2 * CHUNK + 3
        chosen = [part_memberships(2 * random(1, 1, 4, 2, m).detach()) for m in (n, n_keys)]
        blocks = torch.tensor([[[0.3, 0.9], [0.1, 0.5]], [[0.2, 0.1], [1.2, 0.4]]], device=DEVICE, dtype=REAL)
        key_mask = (torch.arange(n_keys, device=DEVICE) != 4).expand(times, -1)
        query, key = ([x.expand(times, -1, -1, -1) for x in pair] for pair in chosen)
        return CrossedModel(tuple(query), (blocks / 4).repeat(1, 2, 1, 1), tuple(key), None, key_mask, causal)

    return build


def edges_of(model, extra):
    drawn, sizes = draw(model, extra)
    return EdgeList(*list_edges(drawn, sizes), model.shape, *model.masks, check=True)


@pytest.mark.parametrize("causal", [False, True])
def test_points_land_where_the_plain_twin_says(drawn_model, causal):
    """The chunk of a causal row is visited key by key, with the random numbers of the Bernoulli sampler."""
    model = drawn_model(2, causal)
    mask, cells = (edges.to_dense()[:, 0] for edges in (edges_of(model, 0.01), sample_bernoulli(model, 0.01, 7, 3)))
    visible = 2 * CHUNK if causal else model.shape[3]
    for example in range(2):
        for row in range(3):
            keys = landed(model, example, row, visible, 0.01)
            keys |= {j for j in cells[example, row].nonzero()[:, 0].tolist() if j >= visible}
            assert mask[example, row].nonzero()[:, 0].tolist() == sorted(keys)
    assert mask.any()


def test_rows_of_many_edges_are_those_of_the_bernoulli_sampler(drawn_model):
    model = drawn_model(2, causal=False)
    model.part_blocks = 3 * model.part_blocks
    assert torch.equal(edges_of(model, 0.0).cells(), sample_bernoulli(model, 0.0, 7, 3).cells())


@pytest.mark.statistical(share=0.001)
def test_points_have_the_law(judge, drawn_model):
    times = 250
    model = drawn_model(times, causal=False)
    found = np.zeros((times, model.shape[3]), dtype=bool)
    for example in range(times):
        found[example, list(landed(model, example, 1, model.shape[3], 0.01))] = True
    probability = model.expected_mask(0.01)[0, 0, 1].cpu().numpy()
    judge(
        binomial_p_values(found.sum(0), times, probability),
        joint_p_values(found[:, :-1], found[:, 1:], probability[:-1], probability[1:]),
        binomial_p_values([found.sum()], found.size, [probability.mean()]),  # conservative, since cells differ
    )


class Launches(TorchDispatchMode):
    """Records the operations of a call, including launches and synchronisations on a GPU."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(
    ("is_training", "n", "n_keys", "masked", "dtype", "settings"),
    [
        (False, 9, 9, False, REAL, {}),
        (True, 9, 9, False, REAL, {}),
        (True, 4, 12, True, REAL, {"self_loops": False}),
        (True, 4, CHUNK + 9, False, REAL, {"causal": True}),
        (True, 4, CHUNK + 9, True, REAL, {"causal": True, "window": 2}),
        (True, 6, 6, False, torch.bfloat16, {"window": 2}),
    ],
)
def test_a_layer_asks_the_device_nothing_and_follows_the_sampled_edges(
    monkeypatch, is_training, n, n_keys, masked, dtype, settings
):
    """Values and gradients equal those of a layer without kernels along the edges that kernels draw."""
    for place in ("layers.sbm", "layers.functional", "samplers.exact"):
        monkeypatch.setattr(f"sbmt.{place}.has_kernels_for", lambda x: True)
    monkeypatch.setattr("sbmt.block_model.crossed.can_run_on", lambda device: False)
    batch, heads = (2, 1) if masked else (1, 2)
    sizes = {"n_heads": heads, "n_clusters": 4, "n_groups": 1, "edges_per_query": 3.0, "exploration": 0.02}
    layer = build_attention("sbm", preset="fitted", d_head=4, **sizes, **settings).to(DEVICE, dtype)
    layer.train(is_training).log_start.fill_(-1.0)
    tokens = [torch.randn(batch, heads, m, 4, device=DEVICE, dtype=dtype) for m in (n, n_keys, n_keys)]
    tokens = [x.requires_grad_() for x in tokens]
    masks = {}
    if masked:
        key_mask = torch.arange(n_keys, device=DEVICE) >= torch.tensor([[0], [n_keys - 3]], device=DEVICE)
        masks = {"query_mask": key_mask[:, n_keys - n :], "key_mask": key_mask}
    generator = torch.Generator().manual_seed(0)
    with Launches() as launches:
        found = layer(*tokens, **masks, generator=generator)
    if DEVICE == "cuda":
        assert not any("_local_scalar_dense" in name or "nonzero" in name for name in launches.names)
    monkeypatch.setattr("sbmt.layers.sbm.has_kernels_for", lambda x: False)
    known = layer(*tokens, **masks, generator=generator.manual_seed(0), return_edges=True)
    close = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": CLOSE, "rtol": CLOSE}
    for name in ("values", "density", "expected_density", "auxiliary_loss"):
        torch.testing.assert_close(getattr(found, name), getattr(known, name), **close, check_dtype=False)
    leaves = [*tokens, *layer.parameters()]
    for one, other in zip(
        torch.autograd.grad(found.values.sum() + found.auxiliary_loss, leaves, materialize_grads=True),
        torch.autograd.grad(known.values.sum() + known.auxiliary_loss, leaves, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("case", CASES)
def test_a_pass_is_ten_launches_at_most(case):
    counted = count_case(**CASES[case])
    assert counted["forward"] <= 10 and counted["backward"] <= 10 and counted["questions"] == 0
    assert counted == load("gpu/counted")["cases"][case]


@pytest.mark.skipif(DEVICE == "cpu", reason="only a GPU captures graphs")
def test_a_training_step_can_be_captured_and_draws_anew_each_time():
    layer = build_attention("sbm", preset="fitted", d_head=16, n_heads=2).to(DEVICE).train()
    x = torch.randn(1, 2, 256, 16, device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(0)
    layer(x, x, x).auxiliary_loss.backward()  # compiles, and creates the gradients
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        found = layer(x, x, x, generator=generator)
        (found.values.sum() + found.auxiliary_loss).backward()
    drawn = []
    for _ in range(2):
        graph.replay()
        drawn.append(found.values.clone())
    assert drawn[0].isfinite().all() and not torch.equal(*drawn)
