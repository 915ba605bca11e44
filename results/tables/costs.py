"""The tables of the page on costs."""

from results.paper_costs.tables import paper_table, verdict_table
from results.tables.files import Files
from sbmt.experiments.costs import cost_tables


def cost_page(files: Files) -> dict[str, str]:
    """The page's tables by name."""
    if not files.has("costs"):
        return {}
    result = files.load("costs")
    claims = verdict_table(result["claims"].values())
    tables = [*cost_tables(result), paper_table("flops"), claims]
    about = result["manifest"]
    machine = f"Measured on {about['machine']}, one thread, torch {about['torch']}, {about['date']}."
    return {table.name: table.markdown() for table in tables} | {"machine": machine}
