"""Prepared examples on disk: made once, shard by shard, then read without loading them into memory."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.files import read_json, write_bytes, write_json
from sbmt.tasks.source import SPLITS, SYMBOL_TYPES, Examples, Pool, Shard, Source, Symbols, check_arrangement

FORMAT = 1
Report = Callable[[int, int], None]
"""Called with the number of shards done and of all shards."""


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split, memory-mapped.

    Attributes:
        indices: Where its examples stand in the pool, int64 ``(n_examples,)``.
        labels: int64 ``(n_examples,)``.
        symbols: uint8, uint16 or uint32, all documents of the pool, end to end.
        offsets: int64 ``(n_pool, n_documents)``, where each document of the pool begins.
        lengths: int64 ``(n_pool, n_documents)``.
        extras: Further numbers per example of the split.
    """

    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    symbols: Symbols
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    extras: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.indices)

    def documents(self, example: int) -> list[NDArray[Any]]:
        """The documents of an example, whole, of the type of :attr:`symbols`."""
        i = self.indices[example]
        starts_and_sizes = zip(self.offsets[i].tolist(), self.lengths[i].tolist(), strict=True)
        return [self.symbols[start : start + size] for start, size in starts_and_sizes]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task's examples on disk.

    Attributes:
        folder: Where they lie.
        info: What :func:`prepare` recorded: task, origin, classes, vocabulary, settings, balance and lengths.
        splits: ``train``, ``dev``, ``test``, and whatever further ones the source has.
    """

    folder: Path
    info: dict[str, Any]
    splits: dict[str, Split]


def prepare(source: Source, cache: Path, *, is_replaced: bool = False, report: Report | None = None) -> Prepared:
    """Makes a source's examples and keeps them in ``cache / source.name``, whole or not at all.

    Every shard is kept as soon as it is made, so that after an interruption only the rest has to be. What is there
    already is opened.

    Args:
        source: What to make.
        cache: The folder of all prepared examples.
        is_replaced: Whether examples of another content under the same name give way.
        report: See :data:`Report`.

    Raises:
        SbmtError: If the name holds other examples, a shard cannot be made, or the folder cannot be written.

    Cost: disk space for the examples twice while they are put together, memory for one shard.
    """
    folder, part = cache / source.name, cache / f".{source.name}.part"
    fingerprint = _fingerprint(source)
    if (folder / "info.json").exists():
        if read_json(folder / "info.json").get("fingerprint") == fingerprint:
            return open_prepared(folder)
        if not is_replaced:
            do = "replace them, or prepare into another cache"
            raise SbmtError(f"no examples of another origin or other settings in {folder}", "some", do)
    try:
        if not (part / "source.json").exists() or read_json(part / "source.json") != fingerprint:
            shutil.rmtree(part, ignore_errors=True)
            write_json(part / "source.json", fingerprint)
        for done, shard in enumerate(source.shards):
            if report is not None:
                report(done, len(source.shards))
            if not _path(part, shard).exists():
                _write_shard(_path(part, shard), shard.make(), source.symbol_type)
        if report is not None:
            report(len(source.shards), len(source.shards))
        _assemble(source, part, part / "whole", fingerprint)
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(part / "whole", folder)
        shutil.rmtree(part)
    except OSError as error:
        raise SbmtError(f"to write {part}", error.strerror or error, "make room, then go on: it resumes") from error
    return open_prepared(folder)


def open_prepared(folder: Path) -> Prepared:
    """Opens what :func:`prepare` made, memory-mapped.

    Raises:
        SbmtError: If there is nothing, or it is damaged or of another version.
    """
    if not (folder / "info.json").exists():
        task, _, kind = folder.name.partition("-")
        make = f"sbmt data prepare {task}{' --reduced' if kind == 'reduced' else ''}"
        do = f"make them with {make}, or name others that you have (sbmt data list)"
        raise SbmtError(f"prepared examples in {folder}", "none", do)
    info = read_json(folder / "info.json")
    try:
        if info["format"] != FORMAT:
            raise SbmtError(f"prepared examples of format {FORMAT}", info["format"], "prepare them again")
        labels, lengths, offsets = (_load(folder, name) for name in ("labels", "lengths", "offsets"))
        n_symbols = info["n_symbols"]
        symbol_type = choose("symbol type", info.get("symbol_type", "uint8"), SYMBOL_TYPES)
        symbols = np.memmap(folder / "symbols.bin", symbol_type, "r") if n_symbols else np.empty(0, symbol_type)
        if symbols.size != n_symbols or len(labels) != info["n_examples"]:
            raise ValueError(f"{symbols.size} symbols and {len(labels)} examples")
        extras = {name: _load(folder, f"extra-{name}") for name in info["extras"]}
        if missing := set(SPLITS) - set(info["splits"]):
            raise ValueError(f"no split {', '.join(sorted(missing))}")
        splits = {}
        for split in info["splits"]:
            at = _load(folder, f"split-{split}")
            mine = {name: x[at] for name, x in extras.items()}
            splits[split] = Split(at, labels[at], symbols, offsets, lengths, mine)
    except (LookupError, OSError, EOFError, ValueError, TypeError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(
            f"whole examples in {folder}", f"damage ({error})", "remove the folder, prepare again"
        ) from error
    return Prepared(folder, info, splits)


def _fingerprint(source: Source) -> dict[str, Any]:
    """What decides the content, as it comes back from JSON."""
    names = ("task", "origin", "class_names", "vocab_size", "first_id", "settings")
    fingerprint: dict[str, Any] = json.loads(json.dumps({name: getattr(source, name) for name in names}))
    if source.symbol_type != "uint8":  # what was prepared when there were only bytes stays valid
        fingerprint["symbol_type"] = source.symbol_type
    return fingerprint | {"shards": len(source.shards)}


def _path(part: Path, shard: Shard) -> Path:
    return part / f"shard-{shard.name}.npz"


def _write_shard(path: Path, examples: Examples, symbol_type: str) -> None:
    if examples.symbols.dtype != symbol_type:
        raise SbmtError(f"{symbol_type} symbols in every shard", examples.symbols.dtype, "name the type in the source")
    content = io.BytesIO()
    arrays = {"symbols": examples.symbols, "lengths": examples.lengths, "labels": examples.labels}
    np.savez(content, **arrays, **{f"extra-{name}": x for name, x in examples.extras.items()})  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())


def _shards(source: Source, part: Path) -> Iterator[tuple[Shard, dict[str, NDArray[Any]]]]:
    for shard in source.shards:
        with np.load(_path(part, shard), allow_pickle=False) as arrays:
            yield shard, dict(arrays)


def _assemble(source: Source, part: Path, whole: Path, fingerprint: dict[str, Any]) -> None:
    """Puts the shards end to end, divides them into splits, and describes the result."""
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
    write_json(
        whole / "info.json",
        {
            "format": FORMAT,
            "name": source.name,
            **{name: fingerprint[name] for name in ("task", "origin", "class_names", "vocab_size", "first_id")},
            "n_documents": lengths.shape[1],
            "n_examples": len(labels),
            "n_symbols": int(lengths.sum()),
            "symbol_type": source.symbol_type,
            "sha256": digest.hexdigest(),
            "splits": {s: _describe(labels[at], lengths[at], source) for s, at in arranged.items()},
            "extras": sorted(extras),
            "settings": fingerprint["settings"],
            "fingerprint": fingerprint,
        },
    )


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


def _load(folder: Path, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return array
