"""Which tokens a trained model attends to in single test examples, and how densely."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError
from sbmt.experiments.training.evaluate import Evaluation, evaluate
from sbmt.experiments.training.run import Run


@dataclass(frozen=True, eq=False)
class AttendedDocument:
    """What the heads attend to in one document, under one draw of the masks."""

    tokens: Int[Tensor, " n"]  # without the padding at the end
    in_degrees: Float[Tensor, "layers heads n"]  # share of the real queries that attend each key
    densities: Float[Tensor, "layers heads"]  # share of the real pairs that are attended
    query: int  # position of one chosen query
    is_attended: Bool[Tensor, "layers heads n"]  # whether that query attends each key


@dataclass(frozen=True, eq=False)
class Inspection:
    """A model's results on single test examples, and what it takes to draw any of their masks again."""

    run: Run
    per_example: Evaluation
    calls: tuple[tuple[Tensor, Tensor, Tensor], ...]  # by batch: tokens, which are real, the generator's state

    @property
    def densities(self) -> NDArray[np.float64]:
        """Density of each example, the mean over layers and heads."""
        return self.per_example.densities.double().mean((1, 2)).numpy()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens that the model read of each example, of both documents if it is a pair."""
        return torch.cat([is_real.flatten(1).sum(1) for _, is_real, _ in self.calls]).numpy()

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean density and its deviation over examples, (layers, 1 + heads): of the heads' mean, then of each head."""
        densities = self.per_example.densities
        columns = torch.cat([densities.mean(2, keepdim=True), densities], 2).double()  # n layers 1+heads
        return columns.mean(0).numpy(), columns.std(0).numpy()

    @torch.no_grad()
    def see(self, example: int, query: int | None = None) -> list[AttendedDocument]:
        """Draws an example's masks again, the same ones up to rounding, and returns what they attend in each document.

        Without a query, the one is chosen whose in-degree, the mean over heads, is the lower median.
        """
        if not 0 <= example < self.per_example.n_examples:
            raise SbmtError(f"an example in [0, {self.per_example.n_examples})", example, "inspect more examples")
        batch, at = divmod(example, len(self.calls[0][0]))
        tokens, is_real, state = self.calls[batch]
        tokens, is_real = tokens[at : at + 1], is_real[at : at + 1]
        texts, reals = tokens.view(-1, tokens.shape[-1]), is_real.view(-1, tokens.shape[-1])
        generator = torch.Generator()
        generator.set_state(state)
        mask = None if is_real.all() else is_real
        with examples_from(at * len(texts)):
            layers = self.run.model.eval()(tokens, mask, generator=generator, return_edges=True).attention
        masks = torch.stack([layer.edges.to_dense() for layer in layers], 1)  # documents layers heads queries keys
        densities = torch.stack([layer.density for layer in layers], 1)
        found = []
        for number, (text, real) in enumerate(zip(texts, reals, strict=True)):
            n = len(text) if self.run.config.is_image else max([0, *real.nonzero().flatten().tolist()]) + 1
            degrees = masks[number, ..., :n].sum(2) / real.sum().clamp(min=1)
            position = _median_position(degrees.mean((0, 1)), real[:n]) if query is None else query
            if not 0 <= position < n:
                raise SbmtError(f"a query position in [0, {n})", position, "count tokens from 0")
            attended = masks[number, :, :, position, :n]
            found.append(AttendedDocument(text[:n], degrees, densities[number], position, attended))
        return found


def inspect_examples(run: Run, n_examples: int | None = None, *, seed: int = 0) -> Inspection:
    """Evaluates a model on the first test examples, or all, so that any of them can be looked at afterwards."""
    if "interval" not in run.about:
        got = f"one on {run.config.task}"
        raise SbmtError("a run on labelled examples", got, "fine-tune it first: sbmt train glue")
    calls = []

    def remember(_: torch.nn.Module, given: tuple[Tensor, Tensor | None], named: dict[str, torch.Generator]) -> None:
        tokens, mask = given
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        calls.append((tokens, is_real, named["generator"].get_state()))

    handle = run.model.register_forward_pre_hook(remember, with_kwargs=True)
    try:
        per_example = evaluate(run, n_examples, seed=seed)
    finally:
        handle.remove()
    if per_example.n_examples < 2:
        raise SbmtError("at least 2 examples, since one has no deviation", per_example.n_examples, "inspect more")
    return Inspection(run, per_example, tuple(calls))


def _median_position(in_degree: Tensor, is_real: Tensor) -> int:
    """The first position of the lower median over real tokens; 0 if no token is real."""
    places = is_real.nonzero().squeeze(1)
    if not len(places):
        return 0
    return int(places[(in_degree[places] == in_degree[places].median()).nonzero()[0, 0]])
