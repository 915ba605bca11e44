"""The tables of the pages on speed and on cost."""

from results.tables.references import Results


def bench_blocks(results: Results) -> dict[str, str]:
    """The benchmarks' tables, figure and machine by the names that the markers call them."""
    from sbmt.experiments.benchmarks import tables_of

    if not results.has("bench"):
        return {}
    result = results.load("bench")
    about = result["manifest"]
    machine = f"Measured on {about['processor']}, {about['threads']} threads, `OMP_WAIT_POLICY` "
    machine += f"{about['OMP_WAIT_POLICY']}; Python {about['python']}, torch {about['torch']}, numba {about['numba']}; "
    machine += f"by `{about['command']}` on {about['date']}{', quickly' if result['is_quick'] else ''}."
    blocks = {table.name: table.markdown() for table in tables_of(result)} | {"machine": machine}
    if (results.root / "results" / "bench.png").exists():
        title = (
            "Time of SBM attention over that of full attention, against the density and against the number of tokens"
        )
        blocks["figure"] = f"![{title}](assets/bench.png)"
    return blocks
