"""Byte-level retrieval: do two documents belong together? Reads pairs in the layout of the ACL Anthology task."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from sys import maxsize
from typing import Any

import numpy as np

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import CHUNK, checked_sha256, find_files, missing, open_binary
from sbmt.experiments.data.source import Examples, Origin, Shard, Source, by_shard

DOCUMENT_BYTES = 10_000
"""Longer documents are cut here, as Long Range Arena does before it encodes them."""

SHARD_BYTES = 1 << 25
"""A plain file is read in parts of about this size, some thousands of pairs."""

FOLDERS = ("retrieval", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
PARTS = {"train": "train", "dev": "eval", "test": "test"}
"""What the files call each split."""

COLUMNS = "label, id, id, text, text between tabs"
GET = "download https://storage.googleapis.com/long-range-arena/lra_release.gz and unpack its folder tsv_data"
STAND_IN = (
    "Not the ACL Anthology: each document is two reviews of one film, and a pair is related where both are about the "
    "same film. Results do not compare with published ones."
)
LAYOUTS: tuple[tuple[str, str, Origin, dict[str, Any]], ...] = (
    ("new_aan_pairs", "retrieval", "official", {}),
    ("imdb_film_pairs", "retrieval-films", "stand-in", {"note": STAND_IN}),
)


def _records(path: Path, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Offset and content of every line that starts in ``start`` … ``stop − 1``; only a line feed ends a line."""
    with open_binary(path) as file:
        if start:
            file.seek(start - 1)
            start += len(file.readline()) - 1  # past a line that began earlier
        while start < stop and (record := file.readline()):
            yield start, record
            start += len(record)


def _line_number(path: Path, offset: int) -> int:
    """Counts from 1; only asked for once something is wrong."""
    n_lines = 1
    with open_binary(path) as file:
        while offset and (content := file.read(min(offset, CHUNK))):
            n_lines += content.count(b"\n")
            offset -= len(content)
    return n_lines


def _label(text: bytes) -> int | None:
    """0 or 1 as written in the files, such as ``1.0``; nothing else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value in (0.0, 1.0) else None


def _read(path: Path, start: int = 0, stop: int = maxsize) -> Examples:
    """The pairs of a file, or of a part of it."""
    labels, documents = [], []
    for offset, record in _records(path, start, stop):
        if offset == 0:
            record = record.removeprefix(b"\xef\xbb\xbf")  # some editors mark UTF-8 so
        columns = record.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
        if len(columns) != 5:
            where = f"{path}, line {_line_number(path, offset)}"
            raise SbmtError(f"{COLUMNS} in {where}", f"{len(columns)} columns", "get the files that hold the texts")
        label = _label(columns[0])
        if label is None:
            where = f"{path}, line {_line_number(path, offset)}"
            raise SbmtError(f"label 0.0 or 1.0 in {where}", repr(columns[0][:50]), "mend that line, or get it again")
        labels.append(label)
        documents.append((columns[3][:DOCUMENT_BYTES], columns[4][:DOCUMENT_BYTES]))
    if start == 0 and not labels:
        raise SbmtError(f"pairs in {path}", "an empty file", GET)
    symbols = np.frombuffer(b"".join(d for pair in documents for d in pair), dtype=np.uint8)
    lengths = np.array([[len(d) for d in pair] for pair in documents], dtype=np.int64).reshape(-1, 2)
    return Examples(symbols, lengths, np.array(labels, dtype=np.int64))


def _shards(path: Path, split: str) -> Iterator[Shard]:
    """A packed file is one shard: it can only be read from its start. A plain one is many."""
    if path.suffix == ".gz":
        yield Shard(split, partial(_read, path), split)
        return
    for number, start in enumerate(range(0, max(path.stat().st_size, 1), SHARD_BYTES)):
        yield Shard(f"{split}-{number:04d}", partial(_read, path, start, start + SHARD_BYTES), split)


def retrieval_files(path: Path | str) -> Source:
    """Pairs of documents as bytes, with label 1 where they are related.

    The files have no header and five columns between tabs: label, two ids, two texts. Quotation marks mean nothing,
    and only a line feed ends a line; a carriage return before it is dropped. Ids are passed over. Token id = byte + 1;
    0 is padding. A document is cut after :data:`DOCUMENT_BYTES` bytes, through a character if need be.

    Args:
        path: ``new_aan_pairs.{train,eval,test}.tsv``, plain or each packed with gzip: one of them, their folder, or a
            folder that has them in ``retrieval`` or where ``lra_release`` unpacks to. Where they are not there, the
            stand-in ``imdb_film_pairs.{train,eval,test}.tsv.gz`` is looked for in the same places.

    Returns:
        A source named ``retrieval``, or ``retrieval-films`` with origin ``stand-in``: what it is says
        ``settings["note"]``. Plain files are read in parts, so that no more than one is in memory at a time.

    Raises:
        SbmtError: If files are not there or a checksum is wrong; from a shard, with the number of the line, if a line
            has not five columns or its label is neither 0 nor 1.

    Source: Tay et al., Long Range Arena (ICLR 2021); texts from the ACL Anthology Network (Radev et al., 2013).
    """
    path = Path(path)
    for stem, name, origin, notes in LAYOUTS:
        for suffix in (".tsv", ".tsv.gz"):
            names = {split: f"{stem}.{part}{suffix}" for split, part in PARTS.items()}
            found = find_files(path, names.values(), FOLDERS)
            if not found:
                continue
            if len(found) < len(names):
                raise missing(names.values(), path, found, GET if origin == "official" else "get all three files")
            files = {name: checked_sha256(file) for name, file in found.items()}
            return Source(
                name=name,
                task="retrieval",
                origin=origin,
                class_names=("unrelated", "related"),
                vocab_size=257,
                first_id=1,
                settings={"files": files, "document_bytes": DOCUMENT_BYTES, **notes},
                shards=tuple(shard for split in names for shard in _shards(found[names[split]], split)),
                arrange=by_shard,
            )
    raise missing([f"{LAYOUTS[0][0]}.{part}.tsv" for part in PARTS.values()], path, {}, GET)
