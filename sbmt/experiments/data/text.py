"""Text classification byte by byte: is a film review positive? Reads the IMDB reviews from their original archive."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import find_files, missing, sha256_of, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Source, shuffled

ARCHIVE = "aclImdb_v1.tar.gz"
PAIR = {"train": "aclImdb_train_labelled.tar.gz", "test": "aclImdb_test_labelled.tar.gz"}
GET = f"download https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}"
PAIR_NOTE = "Read from a public copy of the labelled reviews, which has not been compared with the original archive."
NAME = re.compile(r"([0-9]{1,9})_([0-9]{1,2})\.txt")  # number and rating of a review
CLASSES = ("neg", "pos")  # folders of the reviews with labels 0 and 1
DEV_SEED = 0  # seed that selects the held-out training reviews


def _read(archive: Path, split: str) -> Examples:
    """Reads all labelled reviews of a split, sorted by class (negative first) and by number within each class."""

    def is_review(name: str) -> bool:
        parts = PurePosixPath(name).parts
        return len(parts) == 4 and parts[:2] == ("aclImdb", split) and parts[2] in CLASSES

    rows: list[tuple[int, int, int, bytes]] = []  # label, number, rating, text
    for name, content in tar_files(archive, is_review):
        folder, file_name = PurePosixPath(name).parts[-2:]
        if (match := NAME.fullmatch(file_name)) is None:
            raise SbmtError(f"reviews in {archive} named <id>_<rating>.txt", name, f"{GET} again")
        rows.append((CLASSES.index(folder), int(match[1]), int(match[2]), content))
    rows.sort()
    labels = [label for label, *_ in rows]
    if set(labels) != {0, 1}:
        raise SbmtError(f"reviews of both classes for {split} in {archive}", f"{len(rows)} reviews", f"{GET} again")
    return Examples.of([(text,) for *_, text in rows], labels, rating=[rating for _, _, rating, _ in rows])


def _arrange(pool: Pool) -> Arrangement:
    """Shuffles every split, so that its first examples are a random sample, and holds out a tenth of train as dev."""
    train, test = (np.flatnonzero(pool.splits == split) for split in ("train", "test"))
    train, test = (x[shuffled(len(x), DEV_SEED)] for x in (train, test))
    n_dev = -(-len(train) // 10)
    return {"train": train[n_dev:], "dev": train[:n_dev], "test": test}


def text_files(path: Path | str) -> Source:
    """Returns a source of the labelled IMDB reviews as unmodified bytes. A tenth of the training reviews becomes dev.

    Source: Maas et al., Learning Word Vectors for Sentiment Analysis (ACL 2011).
    """
    path = Path(path)
    archive = find_files(path, [ARCHIVE], ["text"]).get(ARCHIVE)
    pair = {} if archive else find_files(path, PAIR.values(), ["text"])
    if not archive and len(pair) < len(PAIR):
        raise missing(PAIR.values() if pair else [ARCHIVE], path, pair, GET)
    places = {split: archive or pair[name] for split, name in PAIR.items()}

    def parts() -> Iterator[tuple[str, Examples]]:
        return ((split, _read(place, split)) for split, place in places.items())

    files = {place.name: sha256_of(place) for place in dict.fromkeys(places.values())}
    settings = {"files": files, "dev": "a tenth of the training reviews", "dev_seed": DEV_SEED}
    classes, notes = ("negative", "positive"), (PAIR_NOTE,) if pair else ()
    return Source("text", "text", "official", classes, 257, 1, settings, parts, _arrange, notes=notes)
