"""Retrieval from files: pairs of documents as bytes, in the layout of the ACL Anthology task."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from sys import maxsize
from typing import Any

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import (
    checked_sha256,
    columns_of,
    find_files,
    line_number,
    missing,
    read_lines,
)
from sbmt.experiments.data.source import Examples, Origin, Shard, Source, by_shard

DOCUMENT_BYTES = 10_000
"""Longer documents are cut to this size, as Long Range Arena does before it encodes them."""

SHARD_BYTES = 1 << 25
"""A plain file is read in parts of about this size, a few thousand pairs."""

FOLDERS = ("retrieval", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
PARTS = {"train": "train", "dev": "eval", "test": "test"}
"""What the files call each split."""

LABEL = re.compile(rb"([01])(\.0*)?")
"""How a label is written: 0 or 1, with or without zeros after a decimal point."""

COLUMNS = "label, id, id, text, text, separated by tabs"
GET = "download https://storage.googleapis.com/long-range-arena/lra_release.gz and unpack its folder tsv_data"
STAND_IN = (
    "Not the ACL Anthology: each document is two reviews of one film, and a pair is related where both are about the "
    "same film. Results do not compare with published ones."
)
LAYOUTS: tuple[tuple[str, str, Origin, dict[str, Any]], ...] = (
    ("new_aan_pairs", "retrieval", "official", {}),
    ("imdb_film_pairs", "retrieval-films", "stand-in", {"note": STAND_IN}),
)


def _read(path: Path, start: int = 0, stop: int = maxsize) -> Examples:
    """The pairs of a file, or those whose lines start in a part of it."""
    labels, documents = [], []

    def wrong(offset: int, expected: str, got: object, do: str) -> SbmtError:
        return SbmtError(f"{expected} in {path}, line {line_number(path, offset)}", got, do)

    for offset, line in read_lines(path, start, stop):
        if not line.endswith(b"\n"):
            do = "get the file again: it is cut off; if it is not, end its last line"
            raise wrong(offset, "a line feed at the end of the last row", repr(line[-20:]), do)
        columns = columns_of(line)
        if len(columns) != 5:
            raise wrong(offset, COLUMNS, f"{len(columns)} columns", "get the files that contain the texts")
        label = LABEL.fullmatch(columns[0])
        if label is None:
            do = "correct that line, or get the file again"
            raise wrong(offset, "a label 0.0 or 1.0", repr(columns[0][:50]), do)
        labels.append(int(label[1]))
        documents.append((columns[3][:DOCUMENT_BYTES], columns[4][:DOCUMENT_BYTES]))
    if start == 0 and not labels:
        raise SbmtError(f"pairs in {path}", "an empty file", GET)
    examples = Examples.of(documents, labels)
    return replace(examples, lengths=examples.lengths.reshape(-1, 2))  # where a part has no pairs


def _shards(path: Path, split: str) -> Iterator[Shard]:
    """One shard for a packed file, which can only be read from its start, and many for a plain one."""
    if path.suffix == ".gz":
        yield Shard(split, partial(_read, path), split)
        return
    for number, start in enumerate(range(0, max(path.stat().st_size, 1), SHARD_BYTES)):
        yield Shard(f"{split}-{number:04d}", partial(_read, path, start, start + SHARD_BYTES), split)


def retrieval_files(path: Path | str) -> Source:
    """Pairs of documents as bytes, with label 1 where they are related.

    The files have no header and five columns separated by tabs: label, two ids, two texts. Quotation marks have no
    meaning, and only a line feed ends a line. Token id = byte + 1; 0 is padding. A document is cut after
    :data:`DOCUMENT_BYTES` bytes, even within a character.

    Args:
        path: ``new_aan_pairs.{train,eval,test}.tsv``, either plain or packed with gzip: one of the three files, their
            folder, or a folder that has them in ``retrieval`` or where ``lra_release`` puts them. If they are not
            there, the stand-in ``imdb_film_pairs.{train,eval,test}.tsv.gz`` is looked for in the same places.

    Returns:
        A source named ``retrieval``, or ``retrieval-films`` with origin ``stand-in``. Plain files are read in parts,
        so that only one part is in memory at a time.

    Raises:
        SbmtError: If files are missing or a checksum is wrong. From a shard, with the number of the line, if a line
            does not have five columns, its label is neither 0 nor 1, or the last line does not end.

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
