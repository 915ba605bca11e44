"""``sbmt evaluate``, ``predict``, ``inspect`` and ``sparsify``: commands that apply or examine a trained model."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import Progress
from rich.table import Table

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.cli.terminal import print_scores, print_table, say
from sbmt.experiments.data.glue import GLUE, read_glue
from sbmt.experiments.files import check_writable, only_writer, write_bytes, write_json
from sbmt.experiments.training import evaluate as evaluate_run
from sbmt.experiments.training.evaluate import predict_labels
from sbmt.experiments.training.fit import check_unkept
from sbmt.experiments.training.generated import RepeatedTokensConfig
from sbmt.experiments.training.run import SHIPPED, load_run

MASKS = "masks.json"
Samples = Annotated[int, typer.Option(help="number of masks drawn per sequence; their logits are averaged")]
Seed = Annotated[int, typer.Option(help="random seed of masks and generated sequences")]


def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    sequences: Annotated[int, typer.Option(help="number of test examples, blocks or generated sequences")] = 1024,
    n_samples: Samples = 1,
    seed: Seed = 0,
) -> None:
    """Evaluate a run on unseen sequences."""
    scores = evaluate_run(load_run(run), sequences, n_samples=n_samples, seed=seed)
    print_scores(scores, {"n_test": scores.n_examples})


def predict(
    run: Annotated[Path, typer.Argument(help="folder of a run from sbmt train glue")],
    table: Annotated[Path, typer.Argument(help="table of the run's task without labels, such as GLUE's test.tsv")],
    output: Annotated[Path, typer.Option(help="output file for the answers")] = Path("predictions.tsv"),
    n_samples: Samples = 1,
    seed: Seed = 0,
) -> None:
    """Predict the labels of an unlabelled table, and write them in the format that GLUE's server expects."""
    loaded = load_run(run)
    check_writable(output)
    if (target := output.resolve()).exists() and target.samefile(table):
        raise SbmtError(f"an output file other than the input {table}", output, "choose a different name")
    rows = read_glue(table, loaded.config.task, is_labelled=False)
    labels = [GLUE[loaded.config.task].written[i] for i in predict_labels(loaded, rows, n_samples=n_samples, seed=seed)]
    lines = [f"{row}\t{label}\n" for row, label in zip(rows.index, labels, strict=True)]
    write_bytes(output, "".join(["index\tprediction\n", *lines]).encode())
    skipped = f"; {rows.n_skipped} rows with too few columns have none" if rows.n_skipped else ""
    say(f"Wrote {len(rows):,} answers to {output}{skipped}")


def inspect(
    run: Annotated[Path | None, typer.Argument(help="folder of a run; by default, the included run")] = None,
    output: Annotated[Path, typer.Option(help="output file for the figure")] = Path("inspect.png"),
    examples: Annotated[int, typer.Option(help="number of test examples to inspect, for prepared tasks")] = 256,
    query: Annotated[int | None, typer.Option(help="position of the query whose keys are underlined in texts")] = None,
    seed: Seed = 0,
) -> None:
    """Show the results and the masks of a trained model."""
    from sbmt.experiments.plots import attended, repeated_tokens

    loaded = load_run(SHIPPED if run is None else run)
    config = loaded.config
    if query is not None and (config.is_generated or config.is_image):
        raise SbmtError("a run on texts for --query", f"one on {config.task}", "omit --query")
    print_scores(loaded.test, loaded.about)
    if isinstance(config, RepeatedTokensConfig) and not config.fresh_values:
        repeated_tokens.draw_inspection(loaded, output, seed)
    else:
        attended.draw_long_range_inspection(attended.inspect_examples(loaded, examples, seed=seed), output, query)
    say(f"Figure: {output}")


def sparsify(
    run: Annotated[Path, typer.Argument(help="folder of a run with full attention, or of a Hugging Face model")],
    text: Annotated[Path | None, typer.Option(help="for a Hugging Face model: file with one text per line")] = None,
    edges_per_query: Annotated[float, typer.Option(help="maximum mean number of edges per query")] = 16.0,
    steps: Annotated[int, typer.Option(help="number of fitting steps")] = 300,
    clusters: Annotated[int, typer.Option(help="number of clusters per head")] = 1024,
    window: Annotated[int | None, typer.Option(help="also attend to tokens up to window / 2 positions away")] = None,
    output: Annotated[Path | None, typer.Option(help="output folder", show_default="RUN-fitted")] = None,
    examples: Annotated[int | None, typer.Option(help="test examples to compare on; by default, the run's")] = None,
    length: Annotated[int, typer.Option(help="maximum number of tokens per text")] = 256,
) -> None:
    """Replace full attention with fitted masks, and compare them with other masks of equal size.

    The block models are fitted to the run's training examples. All other weights stay unchanged. The result is a run
    for sbmt evaluate and sbmt inspect. With --text, RUN is the folder of a Hugging Face Transformers encoder, and
    embeddings are compared; sbmt.sparsification.load_sparsified reads the result.
    """
    from sbmt.experiments.sparsification import pretrained, trained

    check_sizes(steps=steps, clusters=clusters, length=length)
    if examples is not None and examples < 2:
        raise SbmtError("at least 2 examples to compare masks on", examples, "raise --examples")
    folder = output or run.resolve().with_name(f"{run.resolve().name}-fitted")
    check_unkept(folder, "choose another with --output")
    check_writable(folder / MASKS)
    options = {"edges_per_query": edges_per_query, "n_clusters": clusters, "window": window}
    torch.set_flush_denormal(True)  # rates may be tiny, and subnormal numbers take ten times as long as zeros
    with Progress() as progress:
        if text is not None:
            save, result = pretrained.sparsify_encoder(run, text, length, examples, steps, options, progress.track)
            table = _comparison(result["kinds"], "cosine", f"Cosine of {result['texts']} embeddings of {run.name}")
        elif (run / "tokenizer_config.json").exists():
            raise SbmtError("--text FILE with a model of Transformers", "none", "give a file with one text per line")
        else:
            sparse, result = trained.sparsify_run(load_run(run), examples, steps, options, progress.track)
            save = sparse.save
            table = _comparison(result["kinds"], "accuracy", f"Full attention: {result['full']['accuracy']:.4f}")
    with only_writer(folder):
        check_unkept(folder, "choose another with --output")
        save(folder)
        write_json(folder / MASKS, result)
        print_table(table, (folder / MASKS).with_suffix(".md"))
    say(f"Sparse model: {folder}")


def _comparison(rows: list[dict[str, Any]], score: str, note: str) -> Table:
    """Returns a row for each kind of mask."""
    title = "Masks in all layers: share of pairs, of attention seen, error of the output, effective keys of a query"
    table = Table("masks", "pairs", "seen", "error", "keys", score, "lost", title=title, caption=note)
    form = "{density:.1%} {attention_mass:.3f} {error:.2f} {effective_keys:.1f} {:.3f} {lost:+.3f}±{lost_error:.3f}"
    for row in rows:
        table.add_row(row["kind"], *form.format(row[score], **row).split())
    return table
