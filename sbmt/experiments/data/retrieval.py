"""Retrieval: do two documents belong together? Pairs from files in the layout of Long Range Arena, or generated."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.locate import checked_sha256, columns_of, find_files, missing, read_lines
from sbmt.experiments.data.source import SPLITS, Examples, Origin, Parts, Source

DOCUMENT_BYTES = 10_000
"""Longer documents are cut to this size, as Long Range Arena does before it encodes them."""

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
AT_ONCE = 4096
"""Pairs of a file in memory."""


def _parts(files: dict[str, Path]) -> Iterator[tuple[str, Examples]]:
    """The pairs of every split, some at a time."""
    for split, path in files.items():
        pairs = _pairs(path)
        n_parts = 0
        while some := list(islice(pairs, AT_ONCE)):
            yield split, Examples.of([documents for _, documents in some], [label for label, _ in some])
            n_parts += 1
        if not n_parts:
            raise SbmtError(f"pairs in {path}", "an empty file", GET)


def _pairs(path: Path) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Label and documents of each line."""
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        if not line.endswith(b"\n"):
            do = "get the file again: it is cut off; if it is not, end its last line"
            raise SbmtError(f"a line feed at the end of the last row in {where}", repr(line[-20:]), do)
        columns = columns_of(line)
        if len(columns) != 5:
            raise SbmtError(f"{COLUMNS} in {where}", f"{len(columns)} columns", "get the files that contain the texts")
        if (label := LABEL.fullmatch(columns[0])) is None:
            do = "correct that line, or get the file again"
            raise SbmtError(f"a label 0.0 or 1.0 in {where}", repr(columns[0][:50]), do)
        yield int(label[1]), (columns[3][:DOCUMENT_BYTES], columns[4][:DOCUMENT_BYTES])


def retrieval_files(path: Path | str) -> Source:
    """Pairs of documents as bytes, with label 1 where they are related.

    The files have no header and five columns separated by tabs: label, two ids, two texts. Quotation marks have no
    meaning, and only a line feed ends a line. Token id = byte + 1; 0 is padding. A document is cut after
    :data:`DOCUMENT_BYTES` bytes, even within a character.

    Args:
        path: ``new_aan_pairs.{train,eval,test}.tsv``, either plain or packed with gzip: one of the three files, their
            folder, or a folder that has them in ``retrieval`` or where ``lra_release`` puts them. If they are not
            there, the stand-in ``imdb_film_pairs.{train,eval,test}.tsv.gz`` is looked for in the same places.

    Source: Tay et al., Long Range Arena (ICLR 2021); texts from the ACL Anthology Network (Radev et al., 2013).
    """
    path = Path(path)
    for stem in ("new_aan_pairs", "imdb_film_pairs"):
        for suffix in (".tsv", ".tsv.gz"):
            names = {split: f"{stem}.{part}{suffix}" for split, part in PARTS.items()}
            found = find_files(path, names.values(), FOLDERS)
            if not found:
                continue
            is_official = stem == "new_aan_pairs"
            if len(found) < len(names):
                raise missing(names.values(), path, found, GET if is_official else "get all three files")
            files = {name: checked_sha256(file) for name, file in found.items()}
            settings = {"files": files, "document_bytes": DOCUMENT_BYTES}
            name = "retrieval" if is_official else "retrieval-films"
            origin: Origin = "official" if is_official else "stand-in"
            parts = partial(_parts, {split: found[file] for split, file in names.items()})
            return _source(name, origin, settings, parts, () if is_official else (STAND_IN,))
    raise missing([f"new_aan_pairs.{part}.tsv" for part in PARTS.values()], path, {}, GET)


def _source(name: str, origin: Origin, settings: dict[str, Any], parts: Parts, notes: tuple[str, ...] = ()) -> Source:
    classes = ("unrelated", "related")
    return Source(name, "retrieval", origin, classes, 257, 1, settings, parts, notes=notes)


COMMON, OWN = 40, 8
"""Number of words that all topics share, and of words that belong to each topic."""
LENGTHS = 20, 35
"""Documents have at least the first number of words, and fewer than the second."""


def topic_words(n_topics: int, seed: int = 0) -> list[list[bytes]]:
    """The common words, then those of each topic. A word is three to seven random letters.

    Example:
        >>> common, first = topic_words(1)
        >>> len(common), len(first)
        (40, 8)
    """
    check_sizes(n_topics=n_topics)
    generator = np.random.Generator(np.random.PCG64([seed, 0]))

    def word() -> bytes:
        return bytes(generator.integers(ord("a"), ord("z") + 1, generator.integers(3, 8)).astype(np.uint8))

    return [[word() for _ in range(n)] for n in (COMMON, *[OWN] * n_topics)]


def generate_topic_pairs(n_pairs: int, generator: np.random.Generator, words: list[list[bytes]]) -> Examples:
    """Pairs of documents, of one topic (label 1) or of two (label 0), with equal chances.

    A fair coin decides for every word whether it is one of its document's topic, or a common one. ``words`` come from
    :func:`topic_words`, for at least two topics.
    """
    common, own = words[0], words[1:]
    pairs, labels = [], []
    for _ in range(n_pairs):
        label = int(generator.integers(2))
        first = int(generator.integers(len(own)))
        second = first if label else (first + 1 + int(generator.integers(len(own) - 1))) % len(own)
        documents = []
        for topic in (first, second):
            n_words = int(generator.integers(*LENGTHS))
            is_own, which = generator.random(n_words) < 0.5, generator.integers(COMMON * OWN, size=n_words)
            chosen = zip(is_own, which, strict=True)
            documents.append(b" ".join(own[topic][w % OWN] if mine else common[w % COMMON] for mine, w in chosen))
        pairs.append(tuple(documents))
        labels.append(label)
    return Examples.of(pairs, labels)


def topics_source(
    *, n_topics: int = 16, n_train: int = 20_000, n_dev: int = 1_000, n_test: int = 2_000, seed: int = 0
) -> Source:
    """Generated pairs as a source, a control that needs no files. The splits share topics and words, but no documents.

    Source: ours. The benchmark's pairs are citations between papers, which are not freely available.
    """
    check_sizes(n_topics=n_topics - 1, n_train=n_train, n_dev=n_dev, n_test=n_test)
    sizes = dict(zip(SPLITS, (n_train, n_dev, n_test), strict=True))
    words = topic_words(n_topics, seed)

    def parts() -> Iterator[tuple[str, Examples]]:
        for stream, (split, n_pairs) in enumerate(sizes.items(), start=1):
            yield split, generate_topic_pairs(n_pairs, np.random.Generator(np.random.PCG64([seed, stream])), words)

    settings = {"n_topics": n_topics, "sizes": sizes, "seed": seed}
    return _source("retrieval-reduced", "generated", settings, parts)
