"""Byte-level text: is a film review positive? Reads the reviews of IMDB from the archive that is distributed."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import checked_sha256, find_files, missing, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Source, shuffled

ARCHIVE = "aclImdb_v1.tar.gz"
PAIR = {"train": "aclImdb_train_labelled.tar.gz", "test": "aclImdb_test_labelled.tar.gz"}
GET = f"download https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}"
RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}
"""The ratings of each class, by its folder; label 0 comes first."""

PAIR_NOTE = "From a public copy of the archive, its labelled reviews alone; not compared with the archive itself."
FILE_NAME = re.compile(r"([0-9]{1,9})_([0-9]{1,2})\.txt")
DEV_SEED = 0
"""Decides which training reviews are held out."""


def _read(archive: Path, split: str) -> Examples:
    """All labelled reviews of a split: negative ones first, by number within a class, however they are stored."""

    def is_review(name: str) -> bool:
        parts = PurePosixPath(name).parts
        return len(parts) == 4 and parts[:2] == ("aclImdb", split) and parts[2] in RATINGS

    rows: dict[tuple[int, int], tuple[int, bytes]] = {}  # by label and number
    for name, content in tar_files(archive, is_review):
        label, file_name = PurePosixPath(name).parts[-2:]
        match = FILE_NAME.fullmatch(file_name)
        if match is None or int(match[2]) not in RATINGS[label]:
            named = "<id>_<rating>.txt, rated 1 to 4 in neg and 7 to 10 in pos"
            raise SbmtError(f"reviews in {archive} named {named}", name, f"{GET} again")
        rows[list(RATINGS).index(label), int(match[1])] = int(match[2]), content
    if {label for label, _ in rows} != {0, 1}:
        raise SbmtError(f"reviews of both classes for {split} in {archive}", f"{len(rows)} reviews", f"{GET} again")
    ratings, contents = zip(*(rows[key] for key in sorted(rows)), strict=True)
    return Examples.of([(content,) for content in contents], [label for label, _ in sorted(rows)], rating=list(ratings))


def _arrange(pool: Pool) -> Arrangement:
    """Shuffles every split, so that its first n examples are a fair sample of it; dev is a tenth of the training."""
    train, test = (np.flatnonzero(pool.splits == split) for split in ("train", "test"))
    train, test = (x[shuffled(len(x), DEV_SEED)] for x in (train, test))
    n_dev = -(-len(train) // 10)
    return {"train": train[n_dev:], "dev": train[:n_dev], "test": test}


def text_files(path: Path | str) -> Source:
    """The labelled IMDB reviews as bytes, neither cut nor cleaned: ``<br />`` stays.

    Token id = UTF-8 byte + 1; 0 is padding. Label 0 is negative, 1 positive. ``extras["rating"]`` holds the stars.
    ``path`` is ``aclImdb_v1.tar.gz``, or a folder that has it itself or in a folder ``text``. If it is not there, the
    pair ``aclImdb_{train,test}_labelled.tar.gz`` is looked for: the same reviews in the same order, without the
    unlabelled ones.

    The 25,000 test reviews are the test split. The dev split is a tenth of the 25,000 training reviews, drawn by a
    recorded seed. Long Range Arena uses the test reviews as its dev split, and so chooses the checkpoint by the very
    reviews on which it reports. To do the same, train on train and dev together and choose on test.

    Source: Maas et al., Learning Word Vectors for Sentiment Analysis (ACL 2011).
    """
    path = Path(path)
    archive = find_files(path, [ARCHIVE], ["text"]).get(ARCHIVE)
    pair = {} if archive else find_files(path, PAIR.values(), ["text"])
    if pair and len(pair) < len(PAIR):
        raise missing(PAIR.values(), path, pair, "get both files")
    if not archive and not pair:
        raise missing([ARCHIVE], path, {}, GET)
    places = {split: archive or pair[name] for split, name in PAIR.items()}

    def parts() -> Iterator[tuple[str, Examples]]:
        return ((split, _read(place, split)) for split, place in places.items())

    files = {place.name: checked_sha256(place) for place in dict.fromkeys(places.values())}
    return Source(
        name="text",
        task="text",
        origin="official",
        class_names=("negative", "positive"),
        vocab_size=257,
        first_id=1,
        settings={"files": files, "dev": "a tenth of the training reviews", "dev_seed": DEV_SEED},
        parts=parts,
        arrange=_arrange,
        notes=(PAIR_NOTE,) if pair else (),
    )
