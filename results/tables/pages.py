"""Which pages the results fill, and with what."""

from collections.abc import Callable, Iterator
from pathlib import Path

from results.tables.attention_mass import attention_mass_page
from results.tables.benchmarks import bench_page
from results.tables.costs import cost_page
from results.tables.errata import errata_page
from results.tables.landing import landing_page
from results.tables.language import language_page
from results.tables.long_range import long_range_page
from results.tables.marked import with_numbers, with_tables
from results.tables.overview import overview_page
from results.tables.results import Results
from results.tables.studies import fitted_page, study_page
from results.tables.when_to_use import when_to_use_page

NOT_MEASURED = "*Not measured yet: run `{command}`.*"
PAGES: dict[str, tuple[Callable[[Results], dict[str, str]], str]] = {
    "README.md": (landing_page, "make results"),
    "docs/synthetic.md": (study_page, "make results"),
    "docs/fitted-masks.md": (fitted_page, "make results"),
    "docs/attention-mass.md": (attention_mass_page, "python results/measure/attention_mass.py"),
    "docs/long-range.md": (long_range_page, "make long-range"),
    "docs/language.md": (language_page, "make language"),
    "docs/benchmarks.md": (bench_page, "make bench"),
    "docs/errata.md": (errata_page, "make results"),
    "docs/results.md": (overview_page, "make results"),
    "docs/when-to-use.md": (when_to_use_page, "make bench"),
    "docs/api/cost.md": (cost_page, "python results/measure/costs.py"),
}
"""For each page with tables, the function that makes them, and the command that measures what is missing."""


def renewed_pages(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Every page of a tree that shows results, as it is and as the result files have it.

    Any page may contain single numbers; those in :data:`PAGES` have tables, too.
    """
    results = Results(root)
    makers = {root / name: made_by for name, made_by in PAGES.items()}
    for page in sorted({*makers, *(root / "docs").glob("**/*.md")}):
        text = new = page.read_text("utf-8")
        if page in makers:
            make, command = makers[page]
            new = with_tables(text, make(results), NOT_MEASURED.format(command=command))
        yield page, text, with_numbers(new, results.render)


def stale_pages(root: Path) -> list[Path]:
    """The pages of a tree that do not match its result files."""
    return [page for page, text, new in renewed_pages(root) if new != text]
