"""Processes that share batches of text: parts with more hidden tokens weigh more."""

from dataclasses import replace

import pytest
import torch

from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.module import TrainingModule
from sbmt.experiments.training.run import load_run
from tests.experiments.training.test_ddp import run_in_two

QUIET = dict(dropout=0.0, attention_dropout=0.0)


def gradient(module, batch):
    loss = module.training_step(batch, 0)
    gradients = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([x.flatten() for x in gradients]), module.latest


@pytest.mark.usefixtures("language")
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_weights_of_parts_make_their_mean_that_of_the_batch(tiny_mlm, n_ranks):
    """Gradient, loss and accuracy. Without the weights the gradient would be another one."""
    config = tiny_mlm(**QUIET, sampler="exact")
    data = config.open_data()
    module, feed = TrainingModule(config, data.info), data.feeds["train"]
    is_uneven = False
    for number in range(4):
        streams = [
            BatchStream(feed, feed.endless(4, 0), rank=rank, n_ranks=n_ranks, first=number) for rank in range(n_ranks)
        ]
        parts = [next(iter(stream)) for stream in streams]
        whole = next(iter(BatchStream(feed, feed.endless(4, 0), first=number)))
        assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels) and whole.weight == 1.0
        expected, latest = gradient(module, whole)
        found = [gradient(module, part) for part in parts]
        torch.testing.assert_close(torch.stack([x for x, _ in found]).mean(0), expected, rtol=1e-4, atol=1e-6)
        for name in ("loss", "accuracy"):
            torch.testing.assert_close(torch.stack([x[name] for _, x in found]).mean(), latest[name])
        if len({len(part.labels) for part in parts}) > 1:
            is_uneven = True
            plain = torch.stack([gradient(module, replace(part, weight=1.0))[0] for part in parts]).mean(0)
            assert (plain - expected).norm() > 0.01 * expected.norm()
    assert is_uneven


@pytest.mark.slow
@pytest.mark.usefixtures("language")
def test_two_processes_are_one(tmp_path, tiny_mlm, tiny_glue):
    """Also where one of them has no part of the last batch: 26 blocks of train, 10 of dev, 13 rows of test."""
    settings = dict(**QUIET, steps=4, learning_rate=1e-3, sampler="exact")
    configs = {
        "mlm": tiny_mlm(**settings, density_weight=0.1),
        "mnli": tiny_glue("mnli", **settings, accumulate=2),
    }
    run_in_two(tmp_path, configs)
    for name, config in configs.items():
        one, two = fit(config, tmp_path / f"{name}-alone", accelerator="cpu"), load_run(tmp_path / name)
        reports = [(tmp_path / f"{name}.rank{rank}").read_text() for rank in (0, 1)]
        assert reports[0] == reports[1] == repr(two.test)
        assert two.test.accuracy == one.test.accuracy and two.test.loss == pytest.approx(one.test.loss, rel=1e-5)
        assert two.test.metrics == pytest.approx(one.test.metrics, rel=1e-5)
        assert two.test.densities == [pytest.approx(heads, rel=1e-6) for heads in one.test.densities]
        assert len(two.rows) == len(one.rows) == 6
        for mine, other in zip(two.rows, one.rows, strict=True):
            for column in ("accuracy", "loss", "density", "density_l0h0", "density_l1h1"):
                assert mine[column] == pytest.approx(other[column], rel=1e-4), column
        for weight, value in one.model.state_dict().items():
            torch.testing.assert_close(two.model.state_dict()[weight], value, rtol=1e-4, atol=1e-5)
