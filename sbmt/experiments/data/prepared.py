"""Prepared examples on disk: arrays that are made once, then read without loading them into memory."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, describe, is_integer
from sbmt.experiments.data.source import (
    TASKS,
    Arrangement,
    Examples,
    Pool,
    Source,
    Symbols,
    check_arrangement,
    check_numbers,
)
from sbmt.experiments.files import (
    CHECKSUM,
    LOCK,
    check_may_write,
    check_regular,
    read_json,
    tell_os_errors,
    write_bytes,
    write_json,
)
from sbmt.experiments.locks import only_writer

FORMAT = 2
INFO = "info.json"
START = b'{\n "format": '
"""How our ``info.json`` begins: by this we know a folder that we have made."""

IDENTITY = ("task", "origin", "class_names", "vocab_size", "first_id", "settings", "symbol_type")
"""The entries of ``info.json`` that a source decides. Where one differs, the examples are others."""


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
        if not is_integer(example) or not 0 <= example < len(self):
            raise SbmtError(f"an example in [0, {len(self)})", describe(example), "count from 0")
        i = self.indices[example]
        places = zip(self.offsets[i].tolist(), self.lengths[i].tolist(), strict=True)
        return [self.symbols[start : start + size] for start, size in places]


def divide(examples: Examples, splits: Arrangement) -> dict[str, Split]:
    """Examples divided into splits."""
    labels, lengths = examples.labels, examples.lengths
    offsets = (lengths.cumsum() - lengths.ravel()).reshape(lengths.shape)
    found = {}
    for split, at in splits.items():
        extras = {name: values[at] for name, values in examples.extras.items()}
        found[split] = Split(at, labels[at], examples.symbols, offsets, lengths, extras)
    return found


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task's examples on disk."""

    folder: Path
    info: dict[str, Any]  # what was recorded: task, origin, classes, vocabulary, settings, balance and lengths
    splits: dict[str, Split]  # train, dev, test, and any further ones that the source has


def prepare(
    source: Source, cache: Path, *, is_replaced: bool = False, report: Callable[[int], None] | None = None
) -> Prepared:
    """Makes a source's examples and keeps them in ``cache / source.name``, either all of them or none.

    Examples that have been prepared already are opened; others with the same name are replaced if ``is_replaced``.
    """
    folder, part = cache / source.name, cache / f".{source.name}.part"
    if _is_prepared(folder, source, is_replaced):
        return open_prepared(folder)
    check_may_write(part, LOCK)
    with only_writer(part):
        whole, replaced = part / "whole", part / "replaced"
        try:
            with tell_os_errors(f"to write {part}"):
                if not _is_prepared(folder, source, is_replaced):  # by another process
                    for rest in (whole, replaced):  # of a process that was killed
                        shutil.rmtree(rest, ignore_errors=True)
                    whole.mkdir()
                    _write(source, whole, report)
                    if folder.exists():
                        os.rename(folder, replaced)
                    os.rename(whole, folder)
        finally:
            if replaced.exists() and not folder.exists():
                os.rename(replaced, folder)
            shutil.rmtree(part, ignore_errors=True)
    return open_prepared(folder)


def _is_prepared(folder: Path, source: Source, is_replaced: bool) -> bool:
    """Whether exactly these examples are there."""
    check_may_write(folder, INFO, START)
    if not (folder / INFO).exists():
        return False
    try:
        info = _read_info(folder)
    except SbmtError:
        if is_replaced:
            return False
        raise
    wanted = json.loads(json.dumps({name: getattr(source, name) for name in IDENTITY}))
    differing = [name for name, value in wanted.items() if info[name] != value]
    if differing and not is_replaced:
        do = "replace them with --replace, or prepare into another cache"
        raise SbmtError(f"no examples of other settings in {folder}", f"some that differ in {', '.join(differing)}", do)
    return not differing


def _write(source: Source, whole: Path, report: Callable[[int], None] | None) -> None:
    """Makes all parts; writes the symbols of each at once, then the other arrays and the description."""
    columns: dict[str, list[NDArray[Any]]] = {}
    names: list[str] = []  # of each example's split
    digest = hashlib.sha256()
    with (whole / "symbols.npy").open("wb") as file:
        _write_header(file, source.symbol_type, 0)
        for split, part in source.parts():
            if part.symbols.dtype != source.symbol_type:
                raise SbmtError(f"{source.symbol_type} symbols", part.symbols.dtype, "declare that type in the source")
            _check_vocabulary(part.symbols, source.vocab_size, source.first_id)
            content = part.symbols.tobytes()
            file.write(content)
            digest.update(content)
            names += [split] * len(part.labels)
            extras = {f"extra-{name}": values for name, values in part.extras.items()}
            for name, array in {"labels": part.labels, "lengths": part.lengths, **extras}.items():
                columns.setdefault(name, []).append(array)
            if report is not None:
                report(len(names))
        if not names:
            raise SbmtError("at least one example", "none", "check the files that the examples come from")
        try:
            arrays = {name: np.concatenate(pieces) for name, pieces in columns.items()}
        except ValueError as error:
            raise SbmtError("as many documents per example in every part", error, "make all parts alike") from error
        labels, lengths = arrays["labels"], arrays["lengths"]
        file.seek(0)
        _write_header(file, source.symbol_type, int(lengths.sum()))
        file.flush()
        os.fsync(file.fileno())
    check_numbers(labels, len(source.class_names), "labels")
    digest.update(labels.astype(np.int64).tobytes())
    extras = {name.removeprefix("extra-"): x for name, x in arrays.items() if name.startswith("extra-")}
    splits = source.arrange(Pool(labels, lengths, np.array(names), extras))
    check_arrangement(splits, len(labels))
    for name, array in (arrays | {f"split-{split}": np.asarray(at) for split, at in splits.items()}).items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        write_bytes(whole / f"{name}.npy", buffer.getvalue())
    for name, text in source.files.items():
        write_bytes(whole / name, text.encode())
    info = {
        "format": FORMAT,
        "name": source.name,
        **{name: getattr(source, name) for name in IDENTITY},
        "n_documents": lengths.shape[1],
        "sha256": digest.hexdigest(),
        "splits": list(splits),
        "extras": sorted(extras),
        "notes": source.notes,
        "files": {path.name: _sha256_of(path) for path in sorted(whole.iterdir())},
    }
    write_json(whole / INFO, json.loads(json.dumps(info)), has_checksum=True)


def _write_header(file: io.BufferedWriter, symbol_type: str, n: int) -> None:
    """That of an array of n numbers; NumPy leaves room in it for larger n."""
    described = np.lib.format.dtype_to_descr(np.dtype(symbol_type))
    np.lib.format.write_array_header_1_0(file, {"descr": described, "fortran_order": False, "shape": (n,)})


def _check_vocabulary(symbols: Symbols, vocab_size: int, first_id: int) -> None:
    largest = int(symbols.max(initial=0)) + first_id
    if largest >= vocab_size:
        raise SbmtError(f"symbols whose ids are in [0, {vocab_size})", largest, "correct vocab_size or first_id")


def open_prepared(folder: Path, *, is_checked: bool = True) -> Prepared:
    """Opens the examples that :func:`prepare` made, memory-mapped.

    If ``is_checked``, all files are read and compared with their checksums.
    """
    if not (folder / INFO).exists():
        task, _, kind = folder.name.partition("-")
        do = "name prepared examples that you have (sbmt data list)"
        if task in TASKS:
            do += f", or make these with sbmt data prepare {task}{' --reduced' if kind == 'reduced' else ''}"
        raise SbmtError(f"prepared examples in {folder}", "none", do)
    info = _read_info(folder)
    try:
        if is_checked:
            if changed := [name for name, sha256 in info["files"].items() if _sha256_of(folder / name) != sha256]:
                raise ValueError(f"another checksum of {', '.join(changed)}")
        symbols, lengths, labels = (_load(folder, name) for name in ("symbols", "lengths", "labels"))
        extras = {name: _load(folder, f"extra-{name}") for name in info["extras"]}
        splits = {split: _load(folder, f"split-{split}") for split in info["splits"]}
        if is_checked:
            _check_vocabulary(symbols, info["vocab_size"], info["first_id"])
        check_numbers(labels, len(info["class_names"]), "labels")
        check_arrangement(splits, len(labels))
        return Prepared(folder, info, divide(Examples(symbols, lengths, labels, extras), splits))
    except Exception as error:  # of a damaged file NumPy raises almost anything
        do = "remove the folder and prepare them again"
        raise SbmtError(f"whole examples in {folder}", f"damage ({error})", do) from error


def _read_info(folder: Path) -> dict[str, Any]:
    """The description of examples. It has a checksum, which :func:`read_json` has compared."""
    info = read_json(folder / INFO)
    if not isinstance(info, dict) or info.get("format") != FORMAT or not info.get(CHECKSUM):
        got = f"{info.get('format')!r:.50}" if isinstance(info, dict) else type(info).__name__
        do = "prepare them again with --replace"
        raise SbmtError(f"prepared examples of format {FORMAT}, with a checksum, in {folder}", got, do)
    return info


def _load(folder: Path, name: str) -> NDArray[Any]:
    check_regular(folder / f"{name}.npy")
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return array


def _sha256_of(path: Path) -> str:
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
