"""Tests tasks with generated sequences: the order of sequences and masks, their labels, and that they are learned."""

from dataclasses import replace

import pytest
import torch

from sbmt import SBMAttention
from sbmt.block_model.fit import density_penalty
from sbmt.experiments.data.recall import sample_recall
from sbmt.experiments.data.repeated_tokens import sample_fresh_values, sample_repeated_tokens
from sbmt.experiments.training import SIZES, RecallConfig, RepeatedTokensConfig, build_model, evaluate, fit, load_run
from sbmt.experiments.training.config import BETAS, FIT_RATE
from sbmt.experiments.training.data import BatchStream, Feed, Sequences
from sbmt.experiments.training.generated import fitted

NETWORK = dict(batch_size=4, d_model=8, d_hidden=8, test_sequences=16, options={"n_clusters": 4})
TINY = RepeatedTokensConfig(length=8, steps=12, **NETWORK)
FITTED = dict(preset="fitted", n_clusters=16, edges_per_query=4.0, steps=12, length=16, batch_size=8, test_sequences=16)
ITEMS = dict(n_pairs=3, n_queries=4, n_distractors=5, n_keys=16, n_values=8)


def test_sequences_come_in_order_from_one_generator():
    """Sequences are the same for any batches, starting points and number of processes."""
    tokens, labels = sample_repeated_tokens(24, 8, generator=torch.Generator().manual_seed(5))
    for size, first in ((4, 0), (4, 3), (6, 1), (1, 20)):
        feed = Feed(24, Sequences(TINY.sample, 5), is_endless=True)
        batch = next(iter(BatchStream(feed, feed.endless(size, 0), first=first)))
        assert torch.equal(batch.tokens, tokens[size * first : size * (first + 1)])
        assert torch.equal(batch.labels, labels[size * first : size * (first + 1)].flatten().long())
    for rank in (0, 1):
        feed = Feed(24, Sequences(TINY.sample, 5), is_endless=True)
        parts = list(BatchStream(feed, feed.once(10, None), rank=rank, n_ranks=2))
        assert torch.equal(parts[2].tokens, tokens[20 + 2 * rank : 22 + 2 * rank]) and len(parts) == 3


def test_a_run_is_a_plain_loop():
    """Reproduces, bit by bit, the loop of the first notebooks: Adam, with masks from one continuing generator."""
    config = replace(TINY, density_weight=0.1, cooldown=3)
    model = build_model(config)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    data, masks = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    losses = []
    for step in range(1, 13):
        tokens, labels = sample_repeated_tokens(4, 8, generator=data)
        output = model(tokens, generator=masks)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(output.values.squeeze(-1), labels)
        optimizer.param_groups[0]["lr"] = config.learning_rate * min(1, (13 - step) / 4)
        optimizer.zero_grad()
        (loss + 0.1 * density_penalty(output.attention)).backward()
        optimizer.step()
        losses.append(loss.item())
    run = fit(config)
    assert run.history["loss"] == losses
    assert all(torch.equal(run.model.state_dict()[name], weight) for name, weight in model.state_dict().items())


def test_fresh_values_are_read_saved_and_learned(tmp_path):
    """Tokens are as the generator draws them, and a network is right on values that it has never been trained on."""
    config = replace(TINY, fresh_values=True, attention="full", options=None)
    feed = config.open_data().feeds["train"]
    batch = next(iter(BatchStream(feed, feed.endless(6, 0), first=2)))
    tokens, labels = sample_fresh_values(18, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(batch.tokens, tokens[12:]) and torch.equal(batch.labels, labels[12:].flatten().long())
    sizes = dict(length=4, batch_size=32, steps=300, learning_rate=0.01, d_model=32, d_hidden=32, cooldown=100)
    run = fit(replace(config, **sizes), tmp_path / "run")
    assert run.test.accuracy > 0.75  # chance is 0.58
    assert evaluate(load_run(tmp_path / "run")).accuracy == run.test.accuracy


def test_only_queries_of_recall_are_judged():
    """Computes loss and accuracy query by query. The network works with any number of distractors."""
    run = fit(RecallConfig(**ITEMS, **NETWORK | dict(attention="full", options=None, steps=3)))
    tokens, answers = sample_recall(10, **ITEMS, generator=torch.Generator().manual_seed(1_000_003 + 5))
    log_p = run.model.eval()(tokens).values.log_softmax(-1).detach()
    asked = [(i, j, answer) for i, row in enumerate(answers.tolist()) for j, answer in enumerate(row) if answer >= 0]
    found = evaluate(run, 10, seed=5)
    assert len(asked) == 40 == len(found.labels)
    assert found.accuracy == sum(int(log_p[i, j].argmax()) == answer for i, j, answer in asked) / 40
    assert found.loss == pytest.approx(-sum(float(log_p[asked_of]) for asked_of in asked) / 40, rel=1e-5)
    weights = [build_model(run.config.override(n_distractors=n)).state_dict() for n in (1, 500)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def fitted_config(**settings):
    return SIZES["demo"].override(**fitted(**FITTED | settings))


def test_block_models_have_a_rate_of_their_own():
    model = build_model(fitted_config())
    network, block_models = fitted_config().parameter_groups(model)
    (attention,) = [module for module in model.modules() if isinstance(module, SBMAttention)]
    assert {id(p) for p in block_models["params"]} == {id(p) for p in attention.parameters()}
    assert len(network["params"]) + len(block_models["params"]) == len(list(model.parameters()))
    rates = [
        (group["lr"], group["betas"]) for group in fitted_config().make_optimizer([network, block_models]).param_groups
    ]
    assert rates == [(3e-3, (0.9, 0.999)), (1e-2, BETAS)]
    assert len(SIZES["demo"].parameter_groups(build_model(SIZES["demo"]))) == 1
    recall = RecallConfig().override(preset="fitted", n_clusters=16, learning_rate=2e-3)
    assert [group.get("lr") for group in recall.parameter_groups(build_model(recall))] == [None, FIT_RATE * 2e-3]


def test_the_fit_is_trained_and_reported(tmp_path):
    steps = []
    run = fit(fitted_config(), tmp_path / "run", on_step=steps.append)
    losses = [step.auxiliary_loss for step in steps]
    assert losses[-1] < losses[0]
    assert [row["auxiliary_loss"] for row in run.rows] == pytest.approx(losses, rel=1e-5)
    plain = fit(SIZES["demo"].override(steps=2, length=16, batch_size=4, test_sequences=4))
    assert not any("auxiliary_loss" in row for row in plain.rows)
