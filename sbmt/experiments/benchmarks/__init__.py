"""Time and memory of contestants that take turns on inputs of known density (``sbmt bench``)."""

from sbmt.experiments.benchmarks.suites import run_suites
from sbmt.experiments.benchmarks.tables import tables_of

__all__ = ["run_suites", "tables_of"]
