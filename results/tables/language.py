"""The tables of the page on language tasks."""

from results.tables.references import Results


def language_blocks(results: Results) -> dict[str, str]:
    """The tables and the figure by the names that the markers call them."""
    from results.measure_window_coverage import window_coverage_table
    from results.start_full_size import LANGUAGE, full_size_table
    from sbmt.experiments.data.glue.tasks import GLUE
    from sbmt.experiments.studies import language_tables as tables
    from sbmt.experiments.studies.language import TABLE_4

    rows = [f"| | {' | '.join(task.folder for task in GLUE.values())} |", "|---" * (len(GLUE) + 1) + "|"]
    rows += [f"| {title} | {' | '.join(f'{score:.1f}' for score in scores)} |" for title, scores in TABLE_4.items()]
    blocks = {"paper-table-4": "\n".join(rows)}
    if results.has("glue"):
        result = results.load("glue")
        found = [tables.mlm_table(result["mlm"])]
        names = ("accuracy", "f1", "runs", "layers", "settings")
        found += [getattr(tables, f"glue_{name}_table")(result) for name in names]
        blocks |= {table.name: table.markdown() for table in found}
        if (results.root / "results" / "glue.png").exists():
            title = "Perplexity after pre-training, and accuracy on each task, against the density of the masks"
            blocks["glue-figure"] = f"![{title}](assets/glue.png)"
    if results.has("window_coverage"):
        blocks["window-coverage"] = window_coverage_table(results.load("window_coverage"))
    if results.has("full_size"):
        blocks["glue-full-size"] = full_size_table(results.load("full_size"), LANGUAGE)
    return blocks
