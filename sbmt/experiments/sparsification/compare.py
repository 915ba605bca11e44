"""Fitted masks for a trained run, beside every other kind of mask of the same density in the same network."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.manifest import manifest
from sbmt.experiments.sparsification.fine_tuning import fine_tune
from sbmt.experiments.sparsification.masks import CONTROLS, Control
from sbmt.experiments.sparsification.rates import scale_rates
from sbmt.experiments.tables import Table
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.evaluate import Evaluation, evaluate, inputs
from sbmt.experiments.training.run import Run, load_run
from sbmt.sparsification.convert import DIFFERENT, fitted_layers, sparsify
from sbmt.sparsification.fit import Heads, MaskQuality, MaskReport, fit_block_models, measure_masks, seen_heads

BATCH = 16
TUNED_ON, MEASURED_ON = 2, 8  # batches that other masks are tuned on, and that all masks are measured on
FITTED = "fitted"
KINDS = FITTED, *CONTROLS

OnStep = Callable[[int, float], None]
Bar = Callable[[str, int], Callable[..., None]]  # starts a bar of so many steps; its result is called after each
Found = tuple[Callable[[Path], None], dict[str, Any], Table]  # a function that saves the network; comparison; table


@dataclass(frozen=True, eq=False)
class Compared:
    """One kind of mask in all layers of a network."""

    name: str
    masks: MaskReport  # what each layer's masks see, given the inputs of the layers under full attention
    scores: Evaluation  # the task's answers with these masks in all layers


def examples(run: Run, split: str, seed: int = 0) -> Iterator[Batch]:
    """Batches of a run's examples: of ``"train"`` endlessly, in an order given by the seed, else once, in order."""
    feed = run.config.open_data(run.tokenizer).feeds[split]
    order = feed.endless(BATCH, seed) if split == "train" else feed.in_order(BATCH, None)
    return iter(BatchStream(feed, order))


def fit_run(run: Run, edges_per_query: float, steps: int, on_step: OnStep | None = None, **options: Any) -> Run:
    """A run trained with full attention, with fitted masks in its place, fitted on its training examples, and tested.

    ``options`` of the attention replace those of :func:`~sbmt.sparsify`; see also :func:`~sbmt.fit_block_models`.
    """
    if run.config.attention != "full":
        raise SbmtError("a run trained with attention 'full'", repr(run.config.attention), "train one, or name another")
    settings = {"preset": "fitted"} | DIFFERENT | {"edges_per_query": edges_per_query} | options
    config = replace(run.config, attention="sbm", options=settings, option_defaults=(), density_weight=0.0)
    evaluate(run, 1)  # fails at once if the data are not those of the run
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        model = sparsify(run.model, **config.attention_arguments())
        batches = map(inputs, examples(run, "train"))
        fitted = fit_block_models(model, batches, steps=steps, n_measured=1, on_step=on_step)
    rows = [{"split": "fit", "step": i, "auxiliary_loss": loss} for i, loss in enumerate(fitted.losses, 1)]
    about = {"data": run.about["data"]} if "data" in run.about else {}
    about |= {"sparsified": {"steps": steps, "accuracy": run.test.accuracy}}
    sparse = replace(run, config=config, model=model, rows=run.rows + rows, about=about)
    return tested(replace(sparse, seconds=time.perf_counter() - start))


def tuned_run(run: Run, sparse: Run, steps: int, on_step: OnStep | None = None) -> Run:
    """A run from :func:`fit_run` with its whole network trained further, and tested."""
    start = time.perf_counter()
    model = further_trained(run, sparse.model, steps, on_step)
    about = sparse.about | {"sparsified": sparse.about["sparsified"] | {"fine_tune_steps": steps}}
    return tested(replace(sparse, model=model, about=about, seconds=sparse.seconds + time.perf_counter() - start))


def tested(run: Run) -> Run:
    """The run with the scores of its model on its test examples."""
    found = evaluate(run, run.config.n_examples("test"))
    baselines = run.config.baselines(run.config.open_data(run.tokenizer), "test", found)
    return replace(run, test=found.scores, about=run.about | baselines)


def further_trained(run: Run, model: nn.Module, steps: int, on_step: OnStep | None = None) -> nn.Module:
    """A copy of a model with masks of any kind, trained further at a tenth of the run's rate; the model if 0 steps."""
    if steps == 0:
        return model

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        return run.config.loss(model(**inputs(batch)).values, batch.labels)

    tuned = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        rate = run.config.learning_rate / 10
        fine_tune(tuned, examples(run, "train", seed=2), loss, steps=steps, learning_rate=rate, on_step=on_step)
    return tuned


def set_density(model: nn.Module, seen: Sequence[dict[str, Heads]], density: float) -> None:
    """Multiplies all rates of fitted masks by one number, so that on average this share of the pairs are edges."""
    layers = fitted_layers(model)

    def measure() -> float:
        found = [heads[name].attend(layer.eval()).density.mean() for name, layer in layers.items() for heads in seen]
        return float(torch.stack(found).mean())

    scale_rates(layers.values(), measure, density)


def compare(
    run: Run,
    sparse: Run,
    density: float | None = None,
    n_examples: int | None = None,
    on_kind: Callable[[str], None] = lambda name: None,
    fine_tune_steps: int = 0,
) -> list[Compared]:
    """Fitted masks beside every other kind of the same density, in the same network.

    A common factor of all rates brings fitted masks to ``density``; None leaves them as they are. The task is scored on
    ``n_examples``, after training the network further under masks of each kind for ``fine_tune_steps``.
    """
    n_examples = n_compared(run, n_examples)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.config.seed)
        model = copy.deepcopy(sparse.model)
        tuned_on = [seen_heads(model, inputs(batch)) for batch in islice(examples(run, "train", seed=1), TUNED_ON)]
        measured_on = [inputs(batch) for batch in islice(examples(run, "test"), MEASURED_ON)]
        if density is None:
            density = measure_masks(model, measured_on).mean("density")
        else:
            set_density(model, tuned_on, density)
        found = []
        for name, masked in masked_networks(model, tuned_on, density, CONTROLS):
            on_kind(name)
            seen = measure_masks(model, measured_on, {x: masked.get_submodule(x) for x in fitted_layers(model)})
            scores = evaluate(replace(sparse, model=further_trained(run, masked, fine_tune_steps)), n_examples)
            found.append(Compared(name, seen, scores))
        return found


def masked_networks(
    sparse: nn.Module, seen: Sequence[dict[str, Heads]], density: float, others: Mapping[str, Control]
) -> Iterator[tuple[str, nn.Module]]:
    """A network with its fitted masks, then with masks of other kinds that are tuned to a density, by name."""
    yield FITTED, sparse
    for name, make in others.items():
        other = copy.deepcopy(sparse)
        for layer in fitted_layers(sparse):
            other.set_submodule(layer, make([heads[layer] for heads in seen], density))
        yield name, other


def n_compared(run: Run, n_examples: int | None) -> int:
    """The number of test examples on which the task is scored: as requested, or as many as the run was tested on."""
    n = n_examples or run.config.n_examples("test") or len(run.config.open_data(run.tokenizer).feeds["test"])
    if n < 2:
        raise SbmtError("at least 2 test examples to compare masks on", n, "ask for more with --examples")
    return n


def report(run: Run, levels: Sequence[Sequence[Compared]], fine_tune_steps: int = 0) -> dict[str, Any]:
    """Comparisons of one run for JSON; losses are relative to full attention, trained for as many more steps."""
    n_examples = levels[0][0].scores.n_examples
    full = evaluate(replace(run, model=further_trained(run, run.model, fine_tune_steps)), n_examples)
    return {
        "task": run.config.task,
        "length": run.config.length,
        "full": {"accuracy": full.accuracy, "loss": full.loss},
        "n_examples": n_examples,
        "fine_tune_steps": fine_tune_steps,
        "levels": [[_summary(compared, full) for compared in level] for level in levels],
        "manifest": manifest(),
    }


def _summary(compared: Compared, full: Evaluation) -> dict[str, Any]:
    scores, masks = compared.scores, compared.masks
    lost = (full.predicted == full.labels).double() - (scores.predicted == scores.labels).double()
    return {
        "kind": compared.name,
        **{quality.name: masks.mean(quality.name) for quality in fields(MaskQuality)},
        "accuracy": scores.accuracy,
        "loss": scores.loss,
        "task_density": scores.density,
        "lost": float(lost.mean()),
        "lost_error": float(lost.std() / len(lost) ** 0.5),  # of the mean, over pairs of answers
        "layers": {name: {k: v.tolist() for k, v in vars(quality).items()} for name, quality in masks.layers.items()},
    }


def sparsify_run(
    run: Path, n_examples: int | None, steps: int, fine_tune_steps: int, options: dict[str, Any], bar: Bar
) -> Found:
    """A run with fitted masks, beside every other kind of mask."""
    if (run / "tokenizer_config.json").exists():
        raise SbmtError("--text FILE with a model of Transformers", "none", "give a file with one text per line")
    full = load_run(run)
    n_compared(full, n_examples)
    sparse = fit_run(full, steps=steps, on_step=bar("fit", steps), **options)
    tuned = tuned_run(full, sparse, fine_tune_steps, bar("fine-tuning", fine_tune_steps)) if fine_tune_steps else sparse
    compared = compare(full, sparse, None, n_examples, bar("masks of other kinds", len(KINDS)), fine_tune_steps)
    result = report(full, [compared], fine_tune_steps)
    rows = []
    for kind in result["levels"][0]:
        numbers = (f"{kind['density']:.3f}", f"{kind['attention_mass']:.3f}", f"{kind['error']:.2f}")
        lost = f"{kind['lost']:+.3f} ± {kind['lost_error']:.3f}"
        rows.append((kind["kind"], *numbers, f"{kind['effective_keys']:.1f}", f"{kind['accuracy']:.3f}", lost))
    headings = ("masks", "pairs", "seen", "error", "keys", "accuracy", "lost")
    title = "Masks in all layers: share of pairs, of attention seen, error of the output, effective keys of a query"
    note = f"Full attention: accuracy {full.test.accuracy:.4f}"
    return tuned.save, result, Table("masks", title, headings, tuple(rows), (note,))
