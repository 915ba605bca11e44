"""Shards of examples on disk, and how they become one folder."""

import hashlib
import io
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.source import Examples, Pool, Shard, Source, check_arrangement
from sbmt.experiments.files import write_bytes, write_json

FORMAT = 1
_FIELDS = ("task", "origin", "class_names", "vocab_size", "first_id", "settings")


def fingerprint_of(source: Source) -> dict[str, Any]:
    """What decides the content, as it comes back from JSON."""
    fingerprint: dict[str, Any] = json.loads(json.dumps({name: getattr(source, name) for name in _FIELDS}))
    if source.symbol_type != "uint8":  # what was prepared when there were only bytes stays valid
        fingerprint["symbol_type"] = source.symbol_type
    return fingerprint | {"shards": len(source.shards)}


def shard_path(part: Path, shard: Shard) -> Path:
    """Where a shard is kept."""
    return part / f"shard-{shard.name}.npz"


def write_shard(path: Path, examples: Examples, symbol_type: str) -> None:
    """Keeps a shard, whole or not at all.

    Raises:
        SbmtError: If its symbols are of another type, or it cannot be written.
    """
    if examples.symbols.dtype != symbol_type:
        raise SbmtError(f"{symbol_type} symbols in every shard", examples.symbols.dtype, "name the type in the source")
    content = io.BytesIO()
    arrays = {"symbols": examples.symbols, "lengths": examples.lengths, "labels": examples.labels}
    np.savez(content, **arrays, **{f"extra-{name}": x for name, x in examples.extras.items()})  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())


def _shards(source: Source, part: Path) -> Iterator[tuple[Shard, dict[str, NDArray[Any]]]]:
    for shard in source.shards:
        path = shard_path(part, shard)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in ("symbols", "lengths", "labels", *found.files)}
        except (BadZipFile, zlib.error, ValueError, KeyError, EOFError, TypeError, NotImplementedError) as error:
            path.unlink(missing_ok=True)
            raise SbmtError(f"a whole shard {path}", f"damage ({error})", "prepare again: it is made anew") from error
        yield shard, arrays


def assemble(source: Source, part: Path, whole: Path, fingerprint: dict[str, Any]) -> None:
    """Puts the shards end to end, divides them into splits, and describes the result.

    Raises:
        SbmtError: If a shard is damaged, or the examples make no task.
    """
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    digest = hashlib.sha256()
    columns: dict[str, list[NDArray[Any]]] = {}
    splits: list[str] = []
    with (whole / "symbols.bin").open("wb") as file:
        for shard, arrays in _shards(source, part):
            symbols = arrays.pop("symbols").tobytes()
            file.write(symbols)
            digest.update(symbols)
            splits += [shard.split] * len(arrays["labels"])
            for name, array in arrays.items():
                columns.setdefault(name, []).append(array)
        file.flush()
        os.fsync(file.fileno())
    if not splits:
        raise SbmtError("at least one example", "none", "check the files that the examples come from")
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    labels, lengths = joined.pop("labels"), joined.pop("lengths")
    extras = {name.removeprefix("extra-"): array for name, array in joined.items()}
    if labels.min() < 0 or labels.max() >= len(source.class_names):
        raise SbmtError(f"labels in [0, {len(source.class_names)})", sorted(set(labels.tolist())), "check the files")
    digest.update(labels.tobytes())
    arranged = check_arrangement(source.arrange(Pool(labels, lengths, np.array(splits), extras)))
    offsets = (lengths.cumsum() - lengths.ravel()).reshape(lengths.shape)
    arrays = {"labels": labels, "lengths": lengths, "offsets": offsets}
    arrays |= {f"extra-{name}": x for name, x in extras.items()} | {f"split-{s}": at for s, at in arranged.items()}
    for name, array in arrays.items():
        np.save(whole / f"{name}.npy", array, allow_pickle=False)
    for name, text in source.files.items():
        write_bytes(whole / name, text.encode())
    info = {
        "format": FORMAT,
        "name": source.name,
        **{name: fingerprint[name] for name in _FIELDS},
        "n_documents": lengths.shape[1],
        "n_examples": len(labels),
        "n_symbols": int(lengths.sum()),
        "symbol_type": source.symbol_type,
        "sha256": digest.hexdigest(),
        "splits": {s: _describe(labels[at], lengths[at], source) for s, at in arranged.items()},
        "extras": sorted(extras),
        "files": {path.name: sha256_of(path) for path in sorted(whole.iterdir())},
        "fingerprint": fingerprint,
    }
    write_json(whole / "info.json", info, has_checksum=True)


def _describe(labels: NDArray[np.int64], lengths: NDArray[np.int64], source: Source) -> dict[str, Any]:
    """Class balance, and symbols per document."""
    if not len(labels):
        raise SbmtError("examples in every split", "an empty one", "give more examples")
    counts = np.bincount(labels, minlength=len(source.class_names)).tolist()
    quantiles = dict(zip(("min", "median", "p90", "max"), np.quantile(lengths, (0, 0.5, 0.9, 1)).tolist(), strict=True))
    return {
        "n_examples": len(labels),
        "balance": dict(zip(source.class_names, counts, strict=True)),
        "lengths": {"mean": round(float(lengths.mean()), 1)} | quantiles,
    }


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
