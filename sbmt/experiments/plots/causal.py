"""Figure of the accuracy of causal attention and of its time per generated token."""

from pathlib import Path
from typing import Any

from sbmt.experiments.plots.style import saved_figure


def draw_causal(results: dict[str, Any], path: Path) -> None:
    """Plots accuracy and bits per byte against keys per query, and time per token against context length."""
    parts = {"recall": "recall, 64 tokens", "recall-256": "256 tokens", "recall-1024": "1,024 tokens", "text": "text"}
    with saved_figure(path, 11.0, 6.8) as figure:
        *panels, time, empty = figure.subplots(2, 3).flat
        for ax, (part, title) in zip(panels, parts.items(), strict=True):
            for i, row in enumerate(results[part]):
                keys, accuracy = zip(*((seed["keys"], seed["accuracy"]) for seed in row["seeds"]), strict=True)
                looks: Any = {"color": f"C{i % 6}", "marker": "os"[i // 6], "label": row["title"]}
                ax.scatter(keys, row.get("bits", accuracy), **looks)
            ax.set(title=title, ylabel="bits per byte" if part == "text" else "accuracy")
        panels[-1].set_ylim(top=1.04 * results["text"][0]["bits"][0])  # cuts off linear attention, which is far above
        for name in ("full", "fitted"):
            medians = [at[name]["median"] for at in results["decode"].values()]
            time.plot([int(n) for n in results["decode"]], medians, marker="o", label=name)
        for ax in (*panels, time):
            ax.set(xscale="log", xlabel="keys per query")
            ax.xaxis.set(major_formatter="{x:,.0f}", minor_formatter="")
            ax.legend(fontsize="x-small")
        time.set(title="time per generated token", xlabel="context, tokens", ylabel="milliseconds", ylim=(0, None))
        empty.axis("off")
