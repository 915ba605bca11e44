"""Accuracy of causal attention, and its time per generated token."""

from pathlib import Path
from typing import Any

from sbmt.experiments.plots.style import saved_figure


def draw_causal(results: dict[str, Any], path: Path) -> None:
    """Accuracy and bits per byte against keys per query, and the time of a token against the context."""
    with saved_figure(path, 11.0, 3.6) as figure:
        recall, text, time = figure.subplots(1, 3)
        for ax, part in ((recall, "recall"), (text, "text")):
            for i, row in enumerate(results[part]):
                keys, accuracy = zip(*((seed["keys"], seed["accuracy"]) for seed in row["seeds"]), strict=True)
                looks: Any = {"color": f"C{i % 6}", "marker": "os"[i // 6], "label": row["title"]}
                ax.scatter(keys, row.get("bits", accuracy), **looks)
        for name in ("full", "fitted"):
            medians = [at[name]["median"] for at in results["decode"].values()]
            time.plot([int(n) for n in results["decode"]], medians, marker="o", label=name)
        for ax in (recall, text, time):
            ax.set(xscale="log", xlabel="keys per query")
            ax.xaxis.set_major_formatter("{x:,.0f}")
            ax.legend(fontsize="x-small")
        recall.set(title="recall, 64 tokens", ylabel="accuracy")
        text.set(title="text, 256 bytes", ylabel="bits per byte")
        time.set(title="time per generated token", xlabel="context, tokens", ylabel="milliseconds", ylim=(0, None))
