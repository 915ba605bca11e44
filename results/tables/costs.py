"""The tables of the page on costs."""

from results.paper_costs.tables import paper_table, slope_table, verdict_table
from results.tables.files import Files
from sbmt.experiments.costs.methods import METHODS, Case
from sbmt.experiments.costs.report import count_case, paper_columns
from sbmt.experiments.costs.tables import cost_tables, parts_table


def cost_page(files: Files) -> dict[str, str]:
    """The page's tables by name."""
    if not files.has("costs"):
        return {}
    result = files.load("costs")
    listops = paper_columns()[0]
    count = count_case(Case("sbm", listops.n, listops.density))
    tables = [
        *cost_tables(result),
        paper_table("flops"),
        paper_table("memory"),
        verdict_table(result["claims"].values()),
        slope_table(**result["slopes"]),
        parts_table(count, f"{METHODS['sbm'].title}, {listops.title}, a density of {100 * listops.density:.3g} %"),
    ]
    about = result["manifest"]
    machine = f"Measured on {about['machine']}, one thread, torch {about['torch']}, {about['date']}."
    return {table.name: table.markdown() for table in tables} | {"machine": machine}
