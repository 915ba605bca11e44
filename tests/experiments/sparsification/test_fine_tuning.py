"""Training a whole network under its masks."""

import copy

import pytest
import torch
from torch import nn

import sbmt
from sbmt.experiments.sparsification.fine_tuning import fine_tune
from sbmt.sparsification.convert import fitted_layers

WIDTH = 16
BATCHES = [torch.randn(8, 20, WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def like(teacher):
    """The squared distance to what another model answers."""

    def loss(model, batch):
        with torch.no_grad():
            wanted = teacher(batch)
        return (model(batch) - wanted).square().mean()

    return loss


@pytest.fixture
def sparse():
    return sbmt.sparsify(encoder(), edges_per_query=4.0, n_clusters=16)


def test_a_network_gets_used_to_its_masks(sparse):
    untouched = copy.deepcopy(sparse)
    sparse.layers[1].train()
    losses = fine_tune(sparse, BATCHES, like(encoder()), steps=120, learning_rate=3e-3)
    assert len(losses) == 120 and sum(losses[-20:]) < 0.92 * sum(losses[:20])
    assert [name for name, module in sparse.named_children() if module.training] == []
    assert sparse.layers[1].training and not sparse.layers[0].training and not sparse.training
    before = dict(untouched.named_parameters())
    assert all(not torch.equal(before[name], p) for name, p in sparse.named_parameters())


def test_block_models_learn_from_attention_alone(sparse):
    """A loss that does not depend on the masks leaves everything else as it is."""
    block_parameters = {id(p) for layer in fitted_layers(sparse).values() for p in layer.block_parameters()}
    before = {name: p.detach().clone() for name, p in sparse.named_parameters()}
    fine_tune(sparse, BATCHES, lambda model, batch: 0.0 * model(batch).sum(), steps=3)
    for name, p in sparse.named_parameters():
        assert torch.equal(before[name], p) != (id(p) in block_parameters), name


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"steps": 0}, "steps ≥ 1"),
        ({"block_model_rate": float("nan")}, "block_model_rate > 0"),
        ({"batches": iter(BATCHES[:1])}, "an exhausted iterator"),
        ({"loss": lambda model, batch: model(batch).sum() * float("nan")}, "a finite loss, got nan at step 1"),
    ],
)
def test_mistakes_are_named_and_the_mode_stays(sparse, changed, error):
    arguments = {"batches": BATCHES, "loss": like(encoder()), "steps": 2} | changed
    with pytest.raises(sbmt.SbmtError, match=error):
        fine_tune(sparse, **arguments)
    assert not sparse.training
