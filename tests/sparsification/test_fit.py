"""Tests fits of block models, with everything else frozen."""

import copy

import jaxtyping
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import sbmt
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.fit import Heads, fit_to, seen_calls

WIDTH = 16


class Twins(nn.Module):
    """A head whose full attention connects equal tokens, such as a token and its twin."""

    def __init__(self, sharpness=25.0):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 1, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))
        eye = torch.eye(WIDTH)
        with torch.no_grad():
            self.attention.in_proj_weight.copy_(torch.cat([sharpness * eye, eye, eye]))

    def forward(self, x):
        """Attends."""
        return self.head(self.attention(x, x, x)[0])


def pairs(batch=8, n=24, seed=0):
    """Returns unit vectors, each of which occurs twice in a sequence."""
    generator = torch.Generator().manual_seed(seed)
    half = nn.functional.normalize(torch.randn(batch, n // 2, WIDTH, generator=generator), dim=-1)
    return torch.cat([half, half], 1)


@pytest.fixture(scope="module")
def fitted():
    jaxtyping.config.update("jaxtyping_disable", True)  # as in whole runs; a fixture of each test restores it
    torch.manual_seed(0)
    model = sbmt.sparsify(Twins().eval(), edges_per_query=12.0, n_clusters=256)
    batches = [pairs(seed=seed) for seed in range(12)]
    before = sbmt.sparsification.measure_masks(model, batches[:2])
    report = sbmt.fit_block_models(model, batches, steps=300)
    return model, before, report


def test_fit_finds_where_attention_goes(fitted):
    model, before, report = fitted
    quality = report.layers["attention.attention"]
    assert len(report.losses) == 300
    assert sum(report.losses[-10:]) < sum(report.losses[:10]) - 10
    assert quality.attention_mass.item() > max(0.85, before.mean("attention_mass"))  # more mass, in far fewer pairs
    assert quality.density.item() < 0.4 * before.mean("density")
    assert quality.error.item() < 0.85 * before.mean("error")
    unseen = sbmt.sparsification.measure_masks(model, [pairs(seed=seed) for seed in range(100, 104)])
    assert unseen.mean("attention_mass") > report.mean("attention_mass") - 0.05


def test_expected_edges_are_as_requested(fitted):
    model, *_ = fitted
    layer = model.attention.attention
    x = torch.cat([pairs(seed=seed) for seed in range(12)])
    query, key = (nn.functional.linear(x, w)[:, None] for w in model.attention.in_proj_weight.chunk(3)[:2])
    mean = layer.block_model(query, key).sum_of_rates().mean() / x.shape[1]
    assert mean.item() == pytest.approx(12.0, rel=0.15)  # equals c at the best common rate


def test_nothing_but_block_models_changes():
    torch.manual_seed(0)
    model = sbmt.sparsify(Twins().train(), edges_per_query=4.0, n_clusters=16)
    model.head[1].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    wants = {name: p.requires_grad for name, p in model.named_parameters()}
    modes = [m.training for m in model.modules()]
    torch.manual_seed(1)
    sbmt.fit_block_models(model, [pairs(2)], steps=3, n_measured=1)
    changed = {name for name, t in model.state_dict().items() if not torch.equal(t, before[name])}
    assert changed and all(name.startswith("attention.attention.") for name in changed)
    assert {name: p.requires_grad for name, p in model.named_parameters()} == wants
    assert [m.training for m in model.modules()] == modes
    assert not model.attention.attention.is_dense
    with pytest.raises(TypeError):  # a failure leaves the model unchanged, too
        sbmt.fit_block_models(model, [(1, 2, 3)], steps=3)
    assert {name: p.requires_grad for name, p in model.named_parameters()} == wants
    assert [m.training for m in model.modules()] == modes and not model.attention.attention.is_dense
    assert all(p.grad is None for name, p in model.named_parameters() if not name.startswith("attention.attention."))


def test_batches_may_be_positional_or_keyword_arguments_and_steps_are_reported():
    model, losses, seen = sbmt.sparsify(Twins().eval(), edges_per_query=4.0, n_clusters=16), [], []
    for batches in ([pairs(2)], [(pairs(2),)], [{"x": pairs(2)}]):
        report = sbmt.fit_block_models(
            copy.deepcopy(model), batches, steps=3, n_measured=1, on_step=lambda *args: seen.append(args)
        )
        losses.append(report.losses)
    assert losses[0] == losses[1] == losses[2] and seen[:3] == list(enumerate(losses[0], 1))
    assert "attention.attention" in str(report)


def test_a_network_trained_with_the_preset_can_be_fitted_on():
    torch.manual_seed(0)
    model = sbmt.Encoder(20, 12, d_model=16, d_hidden=16, n_heads=2, n_layers=1, preset="fitted", n_clusters=16)
    sink = model.blocks[0].attention.attention.sink
    with torch.no_grad():
        sink.fill_(0.5)
    sbmt.fit_block_models(model, [torch.randint(20, (2, 12))], steps=2, n_measured=1)
    assert sink.tolist() == [0.5, 0.5] and sink.grad is None and len(fitted_layers(model)) == 1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("batches", "arguments", "words"),
    [
        ([], {}, "batches for all steps, got none"),
        (iter([pairs(2)]), {}, "an exhausted iterator"),
        ([pairs(2)], {"steps": 0}, "steps ≥ 1"),
        ([pairs(2)], {"learning_rate": 0.0}, "learning_rate > 0"),
        ([pairs(2)], {"n_measured": 0}, "n_measured ≥ 1"),
    ],
)
def test_bad_input(batches, arguments, words):
    model = sbmt.sparsify(Twins().eval(), edges_per_query=4.0, n_clusters=16)
    with pytest.raises(sbmt.SbmtError, match=words):
        sbmt.fit_block_models(model, batches, **{"steps": 2} | arguments)


class Checkpointed(Twins):
    """A module that computes its attention again in the backward pass."""

    use_reentrant = True

    def forward(self, x):
        """Attends."""
        attended = checkpoint(lambda x: self.attention(x, x, x)[0], x, use_reentrant=self.use_reentrant)
        return self.head(attended)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_checkpointing_and_no_grad_change_nothing():
    losses = []
    for use_reentrant in (True, False):
        torch.manual_seed(0)
        model = sbmt.sparsify(Checkpointed().eval(), edges_per_query=4.0, n_clusters=16)
        model.use_reentrant = use_reentrant
        with torch.set_grad_enabled(use_reentrant):
            losses.append(sbmt.fit_block_models(model, [pairs(2)], steps=2, n_measured=1).losses)
    assert losses[0] == losses[1]


def test_some_queries_estimate_the_fit_to_all():
    torch.manual_seed(0)
    model = sbmt.sparsify(Twins().eval(), edges_per_query=4.0, n_clusters=16, window=2)
    (heads,) = seen_calls(model, pairs(4))["attention.attention"]
    heads = heads._replace(query_mask=(torch.arange(24) < torch.tensor([24, 24, 16, 24])[:, None]))
    layer = model.attention.attention
    whole = fit_to(layer, heads, n_queries=24)
    parts = torch.stack([fit_to(layer, heads, n_queries=12) for _ in range(100)])
    assert abs(parts.mean() - whole) < 5 * parts.std() / 10 and parts.std() > 0


@pytest.mark.parametrize("causal", [False, True])
def test_the_fit_is_that_of_a_layer_that_attends_all_pairs_without_exploration(causal):
    torch.manual_seed(0)
    settings = {"preset": "fitted", "n_clusters": 16, "window": 2, "causal": causal, "exploration": 0.0}
    layer = sbmt.build_attention("sbm", d_head=8, n_heads=2, **settings).double().train()
    layer.is_dense = True
    with torch.no_grad():
        layer.sink.fill_(0.3)
    tokens = torch.randn(2, 2, 9, 8, dtype=torch.float64)
    real = torch.arange(9) < torch.tensor([[9], [6]])
    output = layer(tokens, tokens, tokens, query_mask=real, key_mask=real)
    for layer.exploration in (0.0, 0.1):
        torch.testing.assert_close(fit_to(layer, Heads(tokens, tokens, tokens, real, real), 9), output.auxiliary_loss)


@pytest.mark.bad_input
def test_other_models_are_refused():
    model = sbmt.sparsify(Twins().eval(), edges_per_query=4.0, n_clusters=16)
    model.forward = model.head.forward
    for other, words in (model, "reached none of the fitted masks"), (Twins(), "a model with fitted masks, got Twins"):
        with pytest.raises(sbmt.SbmtError, match=words):
            sbmt.fit_block_models(other, [pairs(2)], steps=2)
