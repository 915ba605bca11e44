"""Accuracy of causal attention, and its time per generated token."""

from pathlib import Path
from typing import Any

from sbmt.experiments.plots.style import saved_figure


def draw_causal(results: dict[str, Any], path: Path) -> None:
    """Accuracy and bits per byte against keys per query, and the time of a token against the context."""
    with saved_figure(path, 11.0, 6.4) as figure:
        *panels, time, legend = figure.subplots(2, 3).flat
        parts = {"recall": "recall, 64 tokens", "recall-256": "256 tokens", "recall-1024": "1,024 tokens"}
        colours: dict[str, Any] = {}
        for ax, (part, title) in zip(panels, (parts | {"text": "text, 256 bytes"}).items(), strict=True):
            for row in results[part]:
                keys, accuracy = zip(*((seed["keys"], seed["accuracy"]) for seed in row["seeds"]), strict=True)
                i = colours.setdefault(row["title"], len(colours))
                looks: Any = {"color": f"C{i % 6}", "marker": "osv"[i // 6], "label": row["title"]}
                ax.scatter(keys, row.get("bits", accuracy), **looks)
            ax.set(title=title, ylabel="bits per byte" if part == "text" else "accuracy", xlabel="keys per query")
        for name in ("full", "fitted"):
            medians = [at[name]["median"] for at in results["decode"].values()]
            time.plot([int(n) for n in results["decode"]], medians, marker="o", label=name)
        title = "time per generated token"
        time.set(title=title, xlabel="context, tokens", ylabel="milliseconds", ylim=(0, None))
        for ax in (*panels, time):
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:,.0f}")
            ax.xaxis.set_minor_formatter("")
        time.legend(fontsize="x-small")
        legend.axis("off")
        drawn = {h.get_label(): h for ax in panels for h in ax.get_legend_handles_labels()[0]}
        legend.legend(handles=list(drawn.values()), loc="center", fontsize="small")
