"""Which pages the results fill, and with what."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from results.tables.benchmarks import bench_blocks
from results.tables.errata import errata_blocks
from results.tables.gpu import gpu_blocks
from results.tables.gpu_needs import gpu_needs_blocks
from results.tables.landing import demo_table
from results.tables.language import language_blocks
from results.tables.long_range import long_range_blocks
from results.tables.markers import BENCH, DEMO, TABLE, with_blocks, with_numbers
from results.tables.overview import overview_blocks
from results.tables.references import Results
from results.tables.studies import study_blocks
from results.tables.when_to_use import when_to_use_blocks

NOT_MEASURED = "*Not measured yet: run `make {target}`.*"


def renewed_pages(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Every page of a tree that shows results, as it is and as the result files have it.

    Besides the pages that are named here, any page may hold single numbers.
    """
    results, docs = Results(root), root / "docs"
    targets = ("results", "long-range", "language", "bench", "gpu")
    missing = {target: NOT_MEASURED.format(target=target) for target in targets}

    def tables(blocks: dict[str, str], target: str = "results") -> partial[str]:
        return partial(with_blocks, kind=TABLE, blocks=blocks, missing=missing[target])

    bench = partial(with_blocks, kind=BENCH, blocks=bench_blocks(results), missing=missing["bench"])
    gpu = tables(gpu_needs_blocks(results) | gpu_blocks(results), "gpu")
    demo = partial(with_blocks, kind=DEMO, blocks={"table": demo_table(results)}, missing="")
    fill: dict[Path, Callable[[str], str]] = {
        root / "README.md": demo,
        docs / "index.md": demo,
        docs / "synthetic.md": tables(study_blocks(results)),
        docs / "long-range.md": tables(long_range_blocks(results), "long-range"),
        docs / "language.md": tables(language_blocks(results), "language"),
        docs / "benchmarks.md": lambda text: gpu(bench(text)),
        docs / "errata.md": tables(errata_blocks(results)),
        docs / "results.md": tables(overview_blocks(results)),
        docs / "when-to-use.md": tables(when_to_use_blocks(results), "bench"),
        docs / "api" / "cost.md": partial(_with_costs, results=results),
    }
    for page in sorted({*fill, *docs.glob("**/*.md")}):
        text = page.read_text("utf-8")
        filled = fill[page](text) if page in fill else text
        yield page, text, with_numbers(filled, results.shown)


def stale_pages(root: Path) -> list[Path]:
    """The pages of a tree that are out of step with its result files."""
    return [page for page, text, new in renewed_pages(root) if new != text]


def _with_costs(text: str, results: Results) -> str:
    from results.measure_costs import blocks, with_blocks

    return with_blocks(text, blocks(results.load("costs"))) if results.has("costs") else text
