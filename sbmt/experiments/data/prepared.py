"""Prepared examples on disk: made once, shard by shard, then read without loading them into memory."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.shards import FORMAT, assemble, fingerprint_of, sha256_of, shard_path, write_shard
from sbmt.experiments.data.source import SPLITS, SYMBOL_TYPES, Source, Symbols
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.locks import only_writer

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
        SbmtError: If the name holds other examples, a shard cannot be made, the folder cannot be written, or another
            process is at it.

    Cost: disk space for the examples twice while they are put together, memory for one shard.
    """
    folder, part = cache / source.name, cache / f".{source.name}.part"
    fingerprint = fingerprint_of(source)
    if _is_prepared(folder, fingerprint, is_replaced) and not part.exists():
        return open_prepared(folder)
    with only_writer(part):
        try:
            if _is_prepared(folder, fingerprint, is_replaced):  # by another process, or one that could not tidy up
                shutil.rmtree(part)
            else:
                _make(source, folder, part, fingerprint, report)
        except OSError as error:
            do = "make room, then go on: it resumes"
            raise SbmtError(f"to write {part}", error.strerror or error, do) from error
    return open_prepared(folder)


def _is_prepared(folder: Path, fingerprint: dict[str, Any], is_replaced: bool) -> bool:
    """Whether these very examples are there."""
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
    """Makes the shards that are not in ``part``, and of all of them the folder."""
    if not _is_begun(part, fingerprint):
        for path in part.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_json(part / "source.json", fingerprint)
    for done, shard in enumerate(source.shards):
        if report is not None:
            report(done, len(source.shards))
        if not shard_path(part, shard).exists():
            write_shard(shard_path(part, shard), shard.make(), source.symbol_type)
    if report is not None:
        report(len(source.shards), len(source.shards))
    assemble(source, part, part / "whole", fingerprint)
    if folder.exists():
        shutil.rmtree(part / "replaced", ignore_errors=True)
        os.rename(folder, part / "replaced")
    os.rename(part / "whole", folder)
    shutil.rmtree(part)


def _is_begun(part: Path, fingerprint: dict[str, Any]) -> bool:
    """Whether the shards in ``part`` are of these examples."""
    try:
        return bool(read_json(part / "source.json") == fingerprint)
    except SbmtError:  # none yet, or damaged
        return False


def open_prepared(folder: Path, *, is_checked: bool = True) -> Prepared:
    """Opens what :func:`prepare` made, memory-mapped.

    Args:
        folder: Where it is.
        is_checked: Whether files are compared with their checksums, for which all of them are read; what older versions
            prepared has none.

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
        checksums = info.get("files", {}) if is_checked else {}
        if changed := [name for name, sha256 in checksums.items() if sha256_of(folder / name) != sha256]:
            raise ValueError(f"another checksum of {', '.join(changed)}")
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
    except (LookupError, AttributeError, OSError, EOFError, ValueError, TypeError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(
            f"whole examples in {folder}", f"damage ({error})", "remove the folder, prepare again"
        ) from error
    return Prepared(folder, info, splits)


def _load(folder: Path, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array
    except (TokenError, OverflowError, MemoryError) as error:  # of a header that is no longer one
        raise ValueError(f"{name}.npy: {error}") from error
