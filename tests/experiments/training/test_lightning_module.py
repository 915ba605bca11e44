"""Tests training by hand: loss, scores, schedule, and the source of every random number."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from sbmt.block_model.fit import density_penalty
from sbmt.experiments.data.batches import Batch, make_batch
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training.data import TaskData
from sbmt.experiments.training.lightning_module import TrainingModule

QUIET = dict(dropout=0.0, attention_dropout=0.0)


@pytest.fixture
def make(toy_cache, tiny):
    """Makes a module, and a batch of the given training examples."""

    def build(task="listops", examples=range(8), number=3, **changes):
        config = tiny(task, **QUIET | changes)
        prepared = open_prepared(toy_cache / config.data_name)
        module = TrainingModule(config, TaskData({}, prepared.info))
        batch = make_batch(prepared.splits["train"], np.array(examples), config.encoding(prepared.info["first_id"]))
        return module, replace(batch, number=number)

    return build


def part_of(batch, start, stop):
    """Returns the part of a batch that one process makes, padded only to its own longest document."""
    tokens, mask = batch.tokens[start:stop], batch.mask[start:stop]
    width = int(mask.sum(-1).max())
    return Batch(tokens[..., :width], mask[..., :width], batch.labels[start:stop], batch.number, start)


@pytest.mark.parametrize("kind", ["sampled", "expected"])
def test_the_loss_is_cross_entropy_plus_lambda_times_the_density(make, kind):
    module, batch = make(density_weight=0.5, density_kind=kind)
    parameters = list(module.parameters())

    def with_gradients(loss):
        return loss, torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)

    errors, first = with_gradients(cross_entropy(module(batch).values, batch.labels))
    density, second = with_gradients(density_penalty(module(batch).attention, kind))
    total, both = with_gradients(module.training_step(batch, 0))
    torch.testing.assert_close(total, errors + 0.5 * density)
    torch.testing.assert_close(list(both), [a + 0.5 * b for a, b in zip(first, second, strict=True)])
    assert any(gradient.any() for gradient in second)
    assert module.latest["loss"] == errors  # only the task's loss is reported
    torch.testing.assert_close(module.latest["density"], density_penalty(module(batch).attention).detach())


@pytest.mark.parametrize("attention", ["sbm", "full", "reformer"])
def test_seed_and_number_of_a_batch_decide_what_is_drawn(make, attention):
    module, batch = make(attention=attention, dropout=0.2, attention_dropout=0.2)
    values = module(batch).values
    torch.manual_seed(123)
    assert torch.equal(module(batch).values, values)
    assert not torch.equal(module(replace(batch, number=4)).values, values)
    other, _ = make(attention=attention, dropout=0.2, attention_dropout=0.2, seed=1)
    other.load_state_dict(module.state_dict())
    assert not torch.equal(other(batch).values, values)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(("task", "cut"), [("listops", 4), ("retrieval", 1)])
def test_processes_that_share_a_batch_draw_what_one_draws(make, task, cut, is_training):
    module, batch = make(task, attention_dropout=0.2)
    whole = module.train(is_training)(batch)
    parts = [module(part_of(batch, start, stop)) for start, stop in ((0, cut), (cut, 8))]
    torch.testing.assert_close(torch.cat([part.values for part in parts]), whole.values)
    for layer, attended in enumerate(whole.attention):
        densities = torch.cat([part.attention[layer].density for part in parts])
        assert torch.equal(densities, attended.density)


def test_the_rate_rises_and_falls_along_lines(make):
    module, _ = make(steps=10, warmup_steps=4, learning_rate=0.1, weight_decay=0.3)
    parts = module.configure_optimizers()
    optimizer, schedule = parts["optimizer"], parts["lr_scheduler"]["scheduler"]
    assert parts["lr_scheduler"]["interval"] == "step"
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.5 / 6, 0.4 / 6, 0.3 / 6, 0.2 / 6, 0.1 / 6])
    assert optimizer.param_groups[0]["lr"] == 0
    assert type(optimizer) is torch.optim.AdamW
    defaults = {name: optimizer.defaults[name] for name in ("betas", "eps", "weight_decay")}
    assert defaults == {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.3}
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in module.parameters()}
