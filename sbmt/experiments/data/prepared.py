"""Prepared examples, which are stored on disk as arrays once and memory-mapped from then on."""

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments import files
from sbmt.experiments.data.locate import sha256_of
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Source, Symbols, check_arrangement, check_numbers
from sbmt.experiments.files import LOCK, check_may_write, check_regular, read_json, tell_os_errors, write_json

FORMAT = 2
INFO = "info.json"
START = b'{\n "format": '  # first bytes of every ``info.json`` written by this module, which identify the folder
# Entries of ``info.json`` that the source determines. If one of them differs, the examples differ.
IDENTITY = ("task", "origin", "class_names", "vocab_size", "first_id", "settings", "symbol_type")


@dataclass(frozen=True, eq=False)
class Split:
    """The memory-mapped examples of one split."""

    indices: NDArray[np.int64]  # (n_examples,), positions of the examples in the pool
    labels: NDArray[np.int64]  # (n_examples,)
    symbols: Symbols  # concatenation of all documents of the pool, as uint8, uint16 or uint32
    offsets: NDArray[np.int64]  # (n_pool, n_documents), start of each document in ``symbols``
    lengths: NDArray[np.int64]  # (n_pool, n_documents)
    extras: dict[str, NDArray[Any]]  # additional numbers for each example of the split

    def __len__(self) -> int:
        return len(self.indices)

    def documents(self, example: int) -> list[NDArray[Any]]:
        """Returns the documents of an example in full, with the data type of :attr:`symbols`."""
        i = self.indices[example]
        places = zip(self.offsets[i].tolist(), self.lengths[i].tolist(), strict=True)
        return [self.symbols[start : start + size] for start, size in places]


def divide(examples: Examples, splits: Arrangement) -> dict[str, Split]:
    """Divides examples into splits."""
    labels, lengths = examples.labels, examples.lengths
    offsets = (lengths.cumsum() - lengths.ravel()).reshape(lengths.shape)
    return {
        split: Split(at, labels[at], examples.symbols, offsets, lengths, {k: x[at] for k, x in examples.extras.items()})
        for split, at in splits.items()
    }


@dataclass(frozen=True, eq=False)
class Prepared:
    """The prepared examples of a task in a folder."""

    folder: Path
    info: dict[str, Any]  # contents of ``info.json``: task, origin, classes, vocabulary, settings
    splits: dict[str, Split]  # train, dev, test, and any additional splits of the source


def prepare(source: Source, cache: Path, *, report: Callable[[int], None] | None = None) -> Prepared:
    """Writes a source's examples atomically to ``cache / source.name`` unless they are there, and opens them."""
    folder, part = cache / source.name, cache / f".{source.name}.part"
    if not _is_prepared(folder, source):
        check_may_write(part, part / LOCK)
        with files.only_writer(part):
            try:
                with tell_os_errors(f"write {part}"):
                    if not _is_prepared(folder, source):  # another process may have finished
                        shutil.rmtree(part / "whole", ignore_errors=True)  # left by a process that was killed
                        (part / "whole").mkdir()
                        _write(source, part / "whole", report)
                        os.rename(part / "whole", folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return open_prepared(folder)


def _is_prepared(folder: Path, source: Source) -> bool:
    """Returns whether the source's examples are in the folder; raises SbmtError if others are there."""
    check_may_write(folder, folder / INFO, START)
    if not (folder / INFO).exists():
        return False
    info = _read_info(folder)
    wanted = json.loads(json.dumps({name: getattr(source, name) for name in IDENTITY}))
    if differing := [name for name, value in wanted.items() if info[name] != value]:
        do = "delete that folder, or use another cache"
        raise SbmtError(f"the examples in {folder} differ in {', '.join(differing)}: {do}")
    return True


def _write(source: Source, whole: Path, report: Callable[[int], None] | None) -> None:
    """Writes the symbols part by part, as the source produces them, and then the other arrays and ``info.json``."""
    columns: dict[str, list[NDArray[Any]]] = {}
    names: list[str] = []  # the split of each example
    digest = hashlib.sha256()
    contents: dict[str, Any] = defaultdict(hashlib.sha256)  # one hash per split
    raw = whole / "symbols.raw"
    with raw.open("wb") as file:
        pieces: Iterable[Any] = source.parts() or [None]
        for made in pieces:
            split, part = made if isinstance(made, tuple) and len(made) == 2 else ("", made)
            if not isinstance(split, str) or not isinstance(part, Examples):
                do = "change the source's parts function"
                raise SbmtError("pairs of a split name and Examples", type(part).__name__, do)
            if part.symbols.dtype != source.symbol_type:
                raise SbmtError(f"{source.symbol_type} symbols", part.symbols.dtype, "declare this type in the source")
            largest = int(part.symbols.max(initial=0)) + source.first_id
            if largest >= source.vocab_size:
                do = "correct vocab_size or first_id"
                raise SbmtError(f"symbols whose ids are in [0, {source.vocab_size})", largest, do)
            content = part.symbols.tobytes()
            file.write(content)
            digest.update(content)
            contents[split].update(content)
            names += [split] * len(part.labels)
            for name, array in {"labels": part.labels, "lengths": part.lengths, **part.extras}.items():
                columns.setdefault(name, []).append(array)
            if report is not None:
                report(len(names))
    if not raw.stat().st_size:
        raise SbmtError("at least one example", "none", "check the files that contain the examples")
    equal = [split for split, x in contents.items() if [y.digest() for y in contents.values()].count(x.digest()) > 1]
    if equal:
        do = "use different data for training and testing"
        raise SbmtError("different examples in every split", f"the same examples in {' and '.join(equal)}", do)
    try:
        extras = {name: np.concatenate(pieces) for name, pieces in columns.items()}
    except ValueError as error:
        raise SbmtError("equal numbers of documents per example in all parts", error, "make them equal") from error
    labels, lengths = extras.pop("labels"), extras.pop("lengths")
    check_numbers(labels, len(source.class_names), "labels")
    digest.update(labels.astype(np.int64).tobytes())
    splits = source.arrange(Pool(labels, lengths, np.array(names), extras))
    check_arrangement(splits, len(labels))
    arrays = {"symbols": np.memmap(raw, source.symbol_type, "r"), "labels": labels, "lengths": lengths}
    arrays |= {f"extra-{name}": values for name, values in extras.items()}
    arrays |= {f"split-{split}": at for split, at in splits.items()}
    for name, array in arrays.items():
        np.save(whole / f"{name}.npy", array, allow_pickle=False)
    raw.unlink()
    for name, text in source.files.items():
        (whole / name).write_bytes(text.encode())
    info = {
        "format": FORMAT,
        "name": source.name,
        **{name: getattr(source, name) for name in IDENTITY},
        "n_documents": lengths.shape[1],
        "sha256": digest.hexdigest(),
        "splits": list(splits),
        "extras": sorted(extras),
        "notes": source.notes,
        "files": {path.name: sha256_of(path) for path in sorted(whole.iterdir())},
    }
    write_json(whole / INFO, json.loads(json.dumps(info)), has_checksum=True)


def open_prepared(folder: Path, *, is_checked: bool = True) -> Prepared:
    """Memory-maps examples that :func:`prepare` has written, and verifies all checksums if ``is_checked`` is true."""
    if not (folder / INFO).exists():
        task, _, kind = folder.name.partition("-")
        option = " --reduced" if kind == "reduced" else f" --name {folder.name}" if task == "corpus" and kind else ""
        do = f"choose examples that sbmt data list shows, or run sbmt data prepare {task}{option}"
        raise SbmtError(f"prepared examples in {folder}", "none", do)
    info = _read_info(folder)
    try:
        if is_checked:
            if changed := [name for name, sha256 in info["files"].items() if sha256_of(folder / name) != sha256]:
                raise ValueError(f"wrong checksum of {', '.join(changed)}")
        symbols, lengths, labels = (_load(folder, name) for name in ("symbols", "lengths", "labels"))
        extras = {name: _load(folder, f"extra-{name}") for name in info["extras"]}
        splits = {split: _load(folder, f"split-{split}") for split in info["splits"]}
        check_numbers(labels, len(info["class_names"]), "labels")
        check_arrangement(splits, len(labels))
        return Prepared(folder, info, divide(Examples(symbols, lengths, labels, extras), splits))
    except Exception as error:  # NumPy may raise almost anything for a damaged file
        if isinstance(error.__cause__ or error, PermissionError):
            raise SbmtError(f"no permission to read {folder}: grant it with chmod") from error
        do = "delete the folder and prepare them again"
        raise SbmtError(f"the examples in {folder} are damaged ({error}): {do}") from error


def _read_info(folder: Path) -> dict[str, Any]:
    """Reads the description of prepared examples, and checks that its format is the current one."""
    info = read_json(folder / INFO, has_checksum=True)
    if info.get("format") != FORMAT:
        do = "delete the folder and prepare them again"
        raise SbmtError(f"prepared examples in format {FORMAT} in {folder}", "another format", do)
    return info


def _load(folder: Path, name: str) -> NDArray[Any]:
    check_regular(folder / f"{name}.npy")
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return array
