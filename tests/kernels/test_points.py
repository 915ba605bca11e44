"""The plain PyTorch twin of the kernels for fitted masks: its law, its results along given points, and compiling it."""

from functools import partial

import jaxtyping
import numpy as np
import pytest
import torch
from scipy import stats

from sbmt import build_attention
from sbmt.block_model.model import SMALLEST_PROBABILITY, ExtraKeys
from sbmt.experiments.benchmarks.cases import build, fitted_setting
from sbmt.experiments.benchmarks.suites import entry
from sbmt.kernels.gpu.points import attend_to_points, compiled_for, draw_points, infer_rates
from sbmt.layers.sbm import LARGEST_LEARNED
from tests.kernels.on_gpu import DEVICE
from tests.statistics import binomial_p_values, joint_p_values

N, HEADS, LARGEST = 6, 2, LARGEST_LEARNED / 2


@pytest.fixture
def layer(monkeypatch):
    """Two groups of nine clusters, whose gradients are not scaled, with a pair in six drawn by exploration."""
    monkeypatch.setattr("sbmt.layers.sbm.unit_gradient", lambda x, axis: x)
    sizes = {"d_head": 3, "n_heads": HEADS, "n_clusters": 18, "n_groups": 2, "exploration": ExtraKeys(1)}
    layer = build_attention("sbm", preset="fitted", **sizes).double().to(DEVICE)
    layer.clusters.data.mul_(0.5)
    layer.log_start.fill_(1.0)
    return layer


def random_tokens(batch):
    return torch.randn(3, batch, HEADS, N, 3, dtype=torch.float64, device=DEVICE)


def dense_rates(layer, query, key):
    model = layer.block_model(query, key)
    return model.query_membership @ model.block_matrix @ model.key_membership.mT


def number_of_points(keys, is_drawn):
    return torch.zeros(*keys.shape[:3], N, dtype=torch.float64, device=DEVICE).scatter_add(3, keys, is_drawn.double())


@pytest.mark.statistical(share=0.001)
def test_points_are_poisson_and_their_sums_estimate_those_of_full_attention(judge, layer):
    n_draws, extra, tokens = 8000, 1 / N, random_tokens(1)
    query, key, value = tokens.expand(-1, n_draws, -1, -1, -1)
    rate = dense_rates(layer, *tokens[:2])[0].detach().cpu() + extra
    points = number_of_points(*draw_points(infer_rates(layer, query, key, LARGEST), extra, 40)).cpu()
    total, mean = points.sum(0).numpy(), n_draws * rate.numpy()
    by_number = 2 * np.minimum(stats.poisson.cdf(total, mean), stats.poisson.sf(total - 1, mean)).clip(max=0.5)
    hits, chance = (points > 0).numpy(), -torch.expm1(-rate).numpy()
    one_by_one = binomial_p_values(hits.sum(0), n_draws, chance)
    in_pairs = joint_p_values(hits, hits[..., [*range(1, N), 0]], chance, chance[..., [*range(1, N), 0]])

    layer.sink.data.fill_(30.0)  # values times e^30 are the sums of weights times values, and the weights' last sum
    value = torch.cat([value, torch.ones_like(value[..., :1])], -1)
    found = attend_to_points(layer, query, key, value, n_slots=40, smallest=1e-30, largest=LARGEST)
    assert found.n_full == 0
    sums = found.values.detach().cpu() * torch.tensor(30.0).double().exp()
    expected = ((query[0] @ key[0].mT / 3**0.5).exp() @ value[0]).cpu()
    z = (sums.mean(0) - expected) / (sums.std(0) / n_draws**0.5)
    judge(by_number, one_by_one, in_pairs, 2 * stats.norm.sf(z.abs()))


@pytest.mark.parametrize("is_training", [True, False])
def test_values_loss_and_gradients_are_those_of_the_dense_twin(layer, is_training):
    query, key, value = (x.requires_grad_() for x in random_tokens(2))
    extra, smallest = is_training / N, 0.7
    torch.manual_seed(1)
    keys, is_drawn = draw_points(infer_rates(layer, query, key, LARGEST), extra, 40)
    torch.manual_seed(1)
    with torch.set_grad_enabled(is_training):
        found = attend_to_points(layer, query, key, value, n_slots=40, smallest=smallest, largest=LARGEST)

    loops, rate = torch.eye(N, dtype=torch.bool, device=DEVICE), dense_rates(layer, query, key)
    points = number_of_points(keys, is_drawn).masked_fill(loops, 0.0)
    assert points.max() > 1 and (rate + extra).min() < smallest < (rate + extra).max()
    weight = (points / (rate.detach() + extra).clamp(min=smallest)).masked_fill(loops, 1.0)
    scores = torch.cat([query @ key.mT / 3**0.5 + weight.log(), layer.sink.view(-1, 1, 1).expand(2, HEADS, N, 1)], -1)
    weights = scores.softmax(-1)[..., :-1]
    values = weights @ value
    torch.testing.assert_close(found.values, values, check_dtype=False)
    if not is_training:
        assert found.auxiliary_loss == 0 and not found.values.requires_grad
        return
    gain = (weights.detach().masked_fill(loops, 0.0) * (rate + extra).log()).sum((2, 3))
    loss = ((rate.sum((2, 3)) - layer.edges_per_query * gain) / N).mean()
    torch.testing.assert_close(found.auxiliary_loss, loss)
    leaves, gradient = [query, key, value, *layer.parameters()], torch.randn_like(values)
    both = (
        torch.autograd.grad([*pair], leaves, [gradient, torch.ones_like(loss)])
        for pair in ((values, loss), (found.values, found.auxiliary_loss))
    )
    for one, other in zip(*both, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("is_training", [True, False])
def test_the_benchmark_compiles_it_as_one_graph_with_slots_enough(monkeypatch, is_training):
    """As one graph, no shape may depend on what is drawn."""
    jaxtyping.config.update("jaxtyping_disable", True)  # its checks cannot be compiled; a fixture of all sets it back
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # inductor takes a minute
    case = build(fitted_setting(64, 8), device=DEVICE)
    given = case.query, case.key
    torch.manual_seed(1)
    compiled = entry("compiled", case, is_training).run(None)
    attend = compiled_for(case.layer, *given, SMALLEST_PROBABILITY, LARGEST)
    with torch.set_grad_enabled(is_training), torch.compiler.set_stance("force_eager"):
        torch.manual_seed(1)
        found = attend(*given, case.value)
    assert found.n_full == 0
    expected = (found.values,)
    if is_training:
        losses = (found.values * case.cotangent).sum() + found.auxiliary_loss
        expected = torch.autograd.grad(losses, case.leaves)
    for one, other in zip(compiled, expected, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)


def test_rows_without_a_free_slot_are_counted(layer):
    query, key, value = random_tokens(1)
    found = attend_to_points(layer, query, key, value, n_slots=1, smallest=0.05, largest=LARGEST)
    assert 0 < found.n_full <= HEADS * N and found.values.isfinite().all()
