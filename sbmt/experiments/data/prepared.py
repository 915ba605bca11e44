"""Prepared examples on disk: made once, shard by shard, then read without loading them into memory."""

import hashlib
import io
import json
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.source import SPLITS, SYMBOL_TYPES, TASKS, Examples, Pool, Shard, Source, Symbols
from sbmt.experiments.files import read_json, write_bytes, write_json
from sbmt.experiments.locks import only_writer

FORMAT = 1
_FIELDS = ("task", "origin", "class_names", "vocab_size", "first_id", "settings")

Report = Callable[[int, int], None]
"""Called with the number of finished shards and the number of all shards."""


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split, memory-mapped."""

    indices: NDArray[np.int64]  # (n_examples,), the places of its examples in the pool
    labels: NDArray[np.int64]  # (n_examples,)
    symbols: Symbols  # uint8, uint16 or uint32, all documents of the pool, end to end
    offsets: NDArray[np.int64]  # (n_pool, n_documents), where each document of the pool begins
    lengths: NDArray[np.int64]  # (n_pool, n_documents)
    extras: dict[str, NDArray[Any]]  # further numbers per example of the split

    def __len__(self) -> int:
        return len(self.indices)

    def documents(self, example: int) -> list[NDArray[Any]]:
        """The whole documents of an example, of the type of :attr:`symbols`."""
        i = self.indices[example]
        starts_and_sizes = zip(self.offsets[i].tolist(), self.lengths[i].tolist(), strict=True)
        return [self.symbols[start : start + size] for start, size in starts_and_sizes]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task's examples on disk."""

    folder: Path
    info: dict[str, Any]  # what was recorded: task, origin, classes, vocabulary, settings, balance and lengths
    splits: dict[str, Split]  # train, dev, test, and any further ones that the source has


def prepare(source: Source, cache: Path, *, is_replaced: bool = False, report: Report | None = None) -> Prepared:
    """Makes a source's examples and keeps them in ``cache / source.name``, either all of them or none.

    Every shard is kept as soon as it is made, so that after an interruption only the remaining ones are made. Examples
    that have been prepared already are opened; others with the same name are replaced if ``is_replaced``.

    Raises:
        SbmtError: If there are other examples with this name, a shard cannot be made, the folder cannot be written, or
            another process is preparing the same examples.

    Cost: disk space for twice the examples while they are put together, memory for one shard.
    """
    folder, part = cache / source.name, cache / f".{source.name}.part"
    fingerprint = _fingerprint_of(source)
    if _is_prepared(folder, fingerprint, is_replaced) and not part.exists():
        return open_prepared(folder)
    with only_writer(part):
        try:
            if _is_prepared(folder, fingerprint, is_replaced):  # by another process, or one that could not clean up
                shutil.rmtree(part)
            else:
                _make(source, folder, part, fingerprint, report)
        except OSError as error:
            do = "free some space and start again: it continues where it stopped"
            raise SbmtError(f"to write {part}", error.strerror or error, do) from error
    return open_prepared(folder)


def _is_prepared(folder: Path, fingerprint: dict[str, Any], is_replaced: bool) -> bool:
    """Whether exactly these examples are there."""
    if not (folder / "info.json").exists():
        return False
    try:
        info = read_json(folder / "info.json")
    except SbmtError:
        if not is_replaced:
            raise
        return False
    is_same: bool = isinstance(info, dict) and info.get("fingerprint") == fingerprint
    if not is_same and not is_replaced:
        do = "replace them, or prepare into another cache"
        raise SbmtError(f"no examples of another origin or other settings in {folder}", "some", do)
    return is_same


def _make(source: Source, folder: Path, part: Path, fingerprint: dict[str, Any], report: Report | None) -> None:
    """Makes the shards that are not in ``part`` yet, then the folder from all of them."""
    try:
        is_begun = read_json(part / "source.json") == fingerprint
    except SbmtError:  # there is none yet, or it is damaged
        is_begun = False
    if not is_begun:
        for path in part.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_json(part / "source.json", fingerprint)
    for done, shard in enumerate(source.shards):
        if report is not None:
            report(done, len(source.shards))
        if not _shard_path(part, shard).exists():
            _write_shard(_shard_path(part, shard), shard.make(), source.symbol_type)
    if report is not None:
        report(len(source.shards), len(source.shards))
    assemble(source, part, part / "whole", fingerprint)
    if folder.exists():
        shutil.rmtree(part / "replaced", ignore_errors=True)
        os.rename(folder, part / "replaced")
    os.rename(part / "whole", folder)
    shutil.rmtree(part)


def open_prepared(folder: Path, *, is_checked: bool = True) -> Prepared:
    """Opens the examples that :func:`prepare` made, memory-mapped.

    If ``is_checked``, all files are read and compared with their checksums.

    Raises:
        SbmtError: If there are no examples, or they are damaged or of another version.
    """
    if not (folder / "info.json").exists():
        task, _, kind = folder.name.partition("-")
        do = "name prepared examples that you have (sbmt data list)"
        if task in TASKS:
            do += f", or make these with sbmt data prepare {task}{' --reduced' if kind == 'reduced' else ''}"
        raise SbmtError(f"prepared examples in {folder}", "none", do)
    info = read_json(folder / "info.json")
    try:
        if info["format"] != FORMAT:
            raise SbmtError(f"prepared examples of format {FORMAT}", info["format"], "prepare them again")
        checksums = info["files"] if is_checked else {}
        if changed := [name for name, sha256 in checksums.items() if _sha256_of(folder / name) != sha256]:
            raise ValueError(f"another checksum of {', '.join(changed)}")
        labels, lengths, offsets = (_load(folder, name) for name in ("labels", "lengths", "offsets"))
        n_symbols = info["n_symbols"]
        symbol_type = choose("symbol type", info["symbol_type"], SYMBOL_TYPES)
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
    except SbmtError:
        raise
    except Exception as error:  # of a damaged file NumPy raises almost anything
        do = "remove the folder and prepare them again"
        raise SbmtError(f"whole examples in {folder}", f"damage ({error})", do) from error
    return Prepared(folder, info, splits)


def _load(folder: Path, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return array


def _fingerprint_of(source: Source) -> dict[str, Any]:
    """Everything that decides the content, in the form in which JSON returns it."""
    fingerprint: dict[str, Any] = json.loads(json.dumps({name: getattr(source, name) for name in _FIELDS}))
    if source.symbol_type != "uint8":  # examples that were prepared when there were only bytes stay valid
        fingerprint["symbol_type"] = source.symbol_type
    return fingerprint | {"shards": len(source.shards)}


def _shard_path(part: Path, shard: Shard) -> Path:
    return part / f"shard-{shard.name}.npz"


def _write_shard(path: Path, examples: Examples, symbol_type: str) -> None:
    if examples.symbols.dtype != symbol_type:
        do = "declare that type in the source"
        raise SbmtError(f"{symbol_type} symbols in every shard", examples.symbols.dtype, do)
    content = io.BytesIO()
    arrays = {"symbols": examples.symbols, "lengths": examples.lengths, "labels": examples.labels}
    np.savez(content, **arrays, **{f"extra-{name}": x for name, x in examples.extras.items()})  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())


def _read_shard(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in ("symbols", "lengths", "labels", *found.files)}
    except (BadZipFile, zlib.error, ValueError, KeyError, EOFError, TypeError, NotImplementedError) as error:
        path.unlink(missing_ok=True)
        do = "prepare again: it will be made anew"
        raise SbmtError(f"an undamaged shard {path}", f"damage ({error})", do) from error


def _pool_shards(source: Source, part: Path, symbols: Path) -> tuple[Pool, "hashlib._Hash"]:
    """Writes the symbols of all shards to a file; returns the rest, and a digest of symbols and labels."""
    digest = hashlib.sha256()
    columns: dict[str, list[NDArray[Any]]] = {}
    splits: list[str] = []
    with symbols.open("wb") as file:
        for shard in source.shards:
            arrays = _read_shard(_shard_path(part, shard))
            content = arrays.pop("symbols").tobytes()
            file.write(content)
            digest.update(content)
            splits += [shard.split] * len(arrays["labels"])
            for name, array in arrays.items():
                columns.setdefault(name, []).append(array)
        file.flush()
        os.fsync(file.fileno())
    if not splits:
        raise SbmtError("at least one example", "none", "check the files that the examples come from")
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    labels, lengths = joined.pop("labels"), joined.pop("lengths")
    if labels.min() < 0 or labels.max() >= len(source.class_names):
        raise SbmtError(f"labels in [0, {len(source.class_names)})", sorted(set(labels.tolist())), "check the files")
    digest.update(labels.tobytes())
    extras = {name.removeprefix("extra-"): array for name, array in joined.items()}
    return Pool(labels, lengths, np.array(splits), extras), digest


def assemble(source: Source, part: Path, whole: Path, fingerprint: dict[str, Any]) -> None:
    """Puts the shards end to end, divides them into splits, and describes the result.

    Raises:
        SbmtError: If a shard is damaged, or the labels or splits are not those of a task.
    """
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    pool, digest = _pool_shards(source, part, whole / "symbols.bin")
    labels, lengths = pool.labels, pool.lengths
    splits = source.arrange(pool)
    if absent := [split for split in SPLITS if split not in splits]:
        raise SbmtError(f"the splits {', '.join(SPLITS)}", f"none named {', '.join(absent)}", "arrange that one too")
    if unfit := [split for split in splits if not split.isidentifier()]:
        raise SbmtError("splits named in letters, digits and _", repr(unfit[0]), "name it so")
    offsets = (lengths.cumsum() - lengths.ravel()).reshape(lengths.shape)
    arrays = {"labels": labels, "lengths": lengths, "offsets": offsets}
    arrays |= {f"extra-{name}": x for name, x in pool.extras.items()} | {f"split-{s}": at for s, at in splits.items()}
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
        "splits": {split: _describe(labels[at], lengths[at], source) for split, at in splits.items()},
        "extras": sorted(pool.extras),
        "files": {path.name: _sha256_of(path) for path in sorted(whole.iterdir())},
        "fingerprint": fingerprint,
    }
    write_json(whole / "info.json", info, has_checksum=True)


def _describe(labels: NDArray[np.int64], lengths: NDArray[np.int64], source: Source) -> dict[str, Any]:
    """The class balance, and the numbers of symbols per document."""
    if not len(labels):
        raise SbmtError("examples in every split", "an empty one", "give more examples")
    counts = np.bincount(labels, minlength=len(source.class_names)).tolist()
    quantiles = dict(zip(("min", "median", "p90", "max"), np.quantile(lengths, (0, 0.5, 0.9, 1)).tolist(), strict=True))
    return {
        "n_examples": len(labels),
        "balance": dict(zip(source.class_names, counts, strict=True)),
        "lengths": {"mean": round(float(lengths.mean()), 1)} | quantiles,
    }


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
