"""Retrieval: are two documents related? Reads pairs in the layout of Long Range Arena, or generates them."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.locate import find_files, missing, read_lines, sha256_of
from sbmt.experiments.data.source import SPLITS, Examples, Source

DOCUMENT_BYTES = 10_000  # longer documents are cut to this size before encoding, as in Long Range Arena
AT_ONCE = 4096  # number of pairs held in memory at a time
FOLDERS = ("retrieval", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
PARTS = {"train": "train", "dev": "eval", "test": "test"}  # names of the splits in file names
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
GET = "download https://storage.googleapis.com/long-range-arena/lra_release.gz and unpack its folder tsv_data"
STAND_IN = (
    "These are film reviews, not papers of the ACL Anthology: each document consists of two reviews of one film, and a "
    "pair is related if both documents are about the same film. Results are not comparable with published ones."
)
_SOURCE = partial(Source, task="retrieval", class_names=("unrelated", "related"), vocab_size=257, first_id=1)


def _pairs(path: Path) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Yields the label and the two documents in each line."""
    for number, line in enumerate(read_lines(path), start=1):
        where, columns = f"{path}, line {number}", line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
        if len(columns) != 5 or not line.endswith(b"\n"):
            expected = f"five columns separated by tabs (label, id, id, text, text) and a line feed in {where}"
            raise SbmtError(expected, f"{len(columns)} columns: {line[-20:]!r}", "use the files that include the texts")
        if columns[0] not in LABELS:
            do = "correct that line, or get the file again"
            raise SbmtError(f"a label 0.0 or 1.0 in {where}", repr(columns[0][:50]), do)
        yield LABELS[columns[0]], (columns[3][:DOCUMENT_BYTES], columns[4][:DOCUMENT_BYTES])


def retrieval_files(path: Path | str) -> Source:
    """Returns a source of pairs of documents, cut to 10,000 bytes each; label 1 means that they are related.

    Source: Tay et al., Long Range Arena (ICLR 2021); texts from the ACL Anthology Network (Radev et al., 2013).
    """
    path = Path(path)
    for stem, suffix in ((stem, end) for stem in ("new_aan_pairs", "imdb_film_pairs") for end in (".tsv", ".tsv.gz")):
        names = {split: f"{stem}.{part}{suffix}" for split, part in PARTS.items()}
        if found := find_files(path, names.values(), FOLDERS):
            break
    is_official = stem == "new_aan_pairs"
    if len(found) < len(names):
        official = [f"new_aan_pairs.{part}.tsv" for part in PARTS.values()]
        raise missing(names.values() if found else official, path, found, GET)

    def parts() -> Iterator[tuple[str, Examples]]:
        for split, file in names.items():
            pairs = _pairs(found[file])
            while some := list(islice(pairs, AT_ONCE)):
                yield split, Examples.of([documents for _, documents in some], [label for label, _ in some])

    return _SOURCE(
        name="retrieval" if is_official else "retrieval-films",
        origin="official" if is_official else "stand-in",
        settings={"files": {name: sha256_of(file) for name, file in found.items()}, "document_bytes": DOCUMENT_BYTES},
        parts=parts,
        notes=() if is_official else (STAND_IN,),
    )


COMMON, OWN = 40, 8  # number of words shared by all topics, and number specific to each topic
LENGTHS = 20, 35  # minimum number of words in a document, and exclusive maximum


def topic_words(n_topics: int, seed: int = 0) -> list[list[bytes]]:
    """Draws the shared words, followed by the words of each topic. A word consists of three to seven random letters."""
    generator = np.random.Generator(np.random.PCG64([seed, 0]))

    def word() -> bytes:
        return bytes(generator.integers(ord("a"), ord("z") + 1, generator.integers(3, 8)).astype(np.uint8))

    return [[word() for _ in range(n)] for n in (COMMON, *[OWN] * n_topics)]


def generate_topic_pairs(n_pairs: int, generator: np.random.Generator, words: list[list[bytes]]) -> Examples:
    """Generates pairs of documents on one topic (label 1) or two (label 0). About half of all words are shared."""
    common, own = words[0], words[1:]

    def document(topic: int) -> bytes:
        n_words = int(generator.integers(*LENGTHS))
        is_own, which = generator.random(n_words) < 0.5, generator.integers(COMMON * OWN, size=n_words)
        chosen = zip(is_own, which, strict=True)
        return b" ".join(own[topic][w % OWN] if mine else common[w % COMMON] for mine, w in chosen)

    pairs, labels = [], []
    for _ in range(n_pairs):
        label, first = int(generator.integers(2)), int(generator.integers(len(own)))
        second = first if label else (first + 1 + int(generator.integers(len(own) - 1))) % len(own)
        pairs.append((document(first), document(second)))
        labels.append(label)
    return Examples.of(pairs, labels)


def topics_source(
    *, n_topics: int = 16, n_train: int = 20_000, n_dev: int = 1_000, n_test: int = 2_000, seed: int = 0
) -> Source:
    """Returns a source of generated pairs, as a control that needs no files. The splits share topics and words."""
    check_sizes(n_topics=n_topics - 1, n_train=n_train, n_dev=n_dev, n_test=n_test)
    sizes = dict(zip(SPLITS, (n_train, n_dev, n_test), strict=True))
    words = topic_words(n_topics, seed)

    def parts() -> Iterator[tuple[str, Examples]]:
        for stream, (split, n_pairs) in enumerate(sizes.items(), start=1):
            yield split, generate_topic_pairs(n_pairs, np.random.Generator(np.random.PCG64([seed, stream])), words)

    settings = {"n_topics": n_topics, "sizes": sizes, "seed": seed}
    return _SOURCE(name="retrieval-reduced", origin="generated", settings=settings, parts=parts)
