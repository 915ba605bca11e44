"""How short GLUE's sentences are, and what share of their pairs a window covers by itself.

``python results/measure/window_coverage.py`` writes ``results/window_coverage.json``; it needs the prepared examples of
the reduced runs and the tokeniser beside their corpus (``sbmt data prepare corpus --reduced``, then ``sst2`` and the
others), and takes seconds.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.command import run_command
from sbmt.experiments.data.glue import GLUE, encode_split
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import write_json
from sbmt.experiments.training.run import manifest
from sbmt.experiments.training.tasks.language import REDUCED_MLM, reduced_settings

WINDOWS, LENGTHS = (16, 64), (128, 512)
TOKENIZER = "tokenizer.json"


def shares(n_tokens: NDArray[np.int64], window: int) -> NDArray[np.float64]:
    """Share of the pairs of n tokens that are at most half a window apart: (n (2r + 1) − r (r + 1)) / n².

    Example:
        >>> shares(np.array([1, 3, 4]), 2)
        array([1.        , 0.77777778, 0.625     ])
    """
    reach = np.minimum(window // 2, n_tokens - 1)
    return (n_tokens * (2 * reach + 1) - reach * (reach + 1)) / n_tokens**2


def describe(n_tokens: NDArray[np.int64], n_cut: int) -> dict[str, Any]:
    """Lengths, and for each window the mean share of pairs (over examples) and the share of examples fully covered."""
    covered = {str(w): shares(n_tokens, w) for w in WINDOWS}
    return {
        "n_examples": len(n_tokens),
        "n_cut": n_cut,
        "median": float(np.median(n_tokens)),
        "p90": float(np.quantile(n_tokens, 0.9)),
        "pairs": {w: round(float(share.mean()), 4) for w, share in covered.items()},
        "whole": {w: round(float((share == 1).mean()), 4) for w, share in covered.items()},
    }


def main() -> None:
    """Measures and writes."""
    tokenizer = Tokenizer.load(prepared_folder() / REDUCED_MLM.data / TOKENIZER)
    found: dict[str, Any] = {}
    data: dict[str, str] = {REDUCED_MLM.data: tokenizer.sha256}
    for task, layout in GLUE.items():
        prepared = open_prepared(prepared_folder() / str(reduced_settings(task)["data"]))
        data[prepared.info["name"]] = prepared.info["sha256"]
        found[layout.folder] = {}
        for length in LENGTHS:
            encoded, n_cut = encode_split(prepared.splits["test"], tokenizer, length)
            found[layout.folder][str(length)] = describe(encoded.lengths.sum(1), n_cut)
    found["a full block"] = {str(length): describe(np.array([length]), 0) for length in LENGTHS}
    path = Path(__file__).parents[1] / "window_coverage.json"
    write_json(path, {"data": data, "found": found, "manifest": manifest()})
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    run_command(main, "window_coverage")
