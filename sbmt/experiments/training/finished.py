"""What the files of a finished run say, checked before anything is made of them."""

from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import CHECKSUM, check_form, check_regular, read_json
from sbmt.experiments.training.config import TrainingConfig

TOKENIZER = "tokenizer.json"
_SCORES: dict[str, Any] = {name: float for name in ("loss", "accuracy", "density", "expected_density")}
_SCORES |= {"densities": list[list[float]], "metrics?": dict[str, float]}
_DATA = {"vocab_size": int, "first_id": int, "n_documents": int, "class_names": list[str], "tokenizer?": str}
_RESULT = {"config": dict, "test": _SCORES, "n_parameters": int, "seconds": float, "manifest": dict}
_RESULT |= {"metrics_sha256": str, CHECKSUM: str, "data?": _DATA, "n_test?": int, "chance?": float}
_RESULT |= {"interval?": tuple[float, float]}


def read_result(folder: Path) -> dict[str, Any]:
    """What ``result.json`` in the folder of a finished run says; SbmtError if it is damaged, or of another form."""
    content: dict[str, Any] = read_json(folder / "result.json")
    check_form(content, _RESULT, str(folder / "result.json"))
    return content


def check_size(config: TrainingConfig, folder: Path) -> None:
    """Raises SbmtError if a network of these sizes has more weights than a run's folder, before it is built."""
    path = folder / "model.safetensors"
    check_regular(path, "name the folder of a run")
    least, n = config.n_layers * config.d_model * (config.d_model + config.d_hidden), path.stat().st_size // 4
    if least > n:
        do = "restore the file that was changed, or train again"
        raise SbmtError(f"at least {least:,} weights in {folder}, as its settings say", f"{n:,}", do)


def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokeniser of a finished run; SbmtError if it is missing, damaged, or not that of its training."""
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if read_result(folder).get("data", {}).get("tokenizer") != tokenizer.sha256:
        raise SbmtError(f"the tokeniser that the run in {folder} was trained with", tokenizer, "restore the file")
    return tokenizer
