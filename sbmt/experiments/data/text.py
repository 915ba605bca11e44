"""Byte-level text: is a film review positive? Reads the reviews of IMDB from the files that are distributed."""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import checked_sha256, find_files, missing, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Source, shuffled
from sbmt.experiments.files import read_file

ARCHIVE = "aclImdb_v1.tar.gz"
PAIR = {"train": "aclImdb_train_labelled.tar.gz", "test": "aclImdb_test_labelled.tar.gz"}
FOLDER = "aclImdb"
GET = f"download https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}"
RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}
"""The ratings of each class, by its folder; label 0 comes first."""

PAIR_NOTE = "From a public copy of the archive, its labelled reviews alone; not compared with the archive itself."
FILE_NAME = re.compile(r"([0-9]{1,9})_([0-9]{1,2})\.txt")
DEV_SEED = 0
"""Decides which training reviews are held out."""


def _reviews(place: Path, split: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the labelled reviews of a split, in an archive or in the folder to which it unpacks."""

    def is_review(name: str) -> bool:
        parts = PurePosixPath(name).parts
        return len(parts) == 4 and parts[:2] == (FOLDER, split) and parts[2] in RATINGS

    if place.is_file():
        yield from tar_files(place, is_review)
        return
    for label in RATINGS:
        folder = place / split / label
        if not folder.is_dir():
            raise SbmtError(f"reviews in {folder}", "no such folder", f"{GET} and unpack all of it")
        for path in sorted(folder.iterdir()):
            yield f"{FOLDER}/{split}/{label}/{path.name}", read_file(path)


def _sha256(place: Path, split: str) -> str:
    """SHA-256 of names, sizes and contents."""
    digest = hashlib.sha256()
    for name, content in _reviews(place, split):
        digest.update(os.fsencode(f"{name}\0{len(content)}\0") + content)
    return digest.hexdigest()


def _read(place: Path, split: str) -> Examples:
    """All reviews of a split: negative ones first, by number within a class, however they are stored."""
    rows: dict[tuple[int, int], tuple[int, bytes]] = {}  # by label and number
    for name, content in _reviews(place, split):
        label, file_name = PurePosixPath(name).parts[-2:]
        match = FILE_NAME.fullmatch(file_name)
        if match is None or int(match[2]) not in RATINGS[label]:
            named = "<id>_<rating>.txt, rated 1 to 4 in neg and 7 to 10 in pos"
            raise SbmtError(f"reviews in {place} named {named}", name, f"remove it, or {GET} again")
        key = list(RATINGS).index(label), int(match[1])
        if key in rows:
            raise SbmtError(f"one review per class and number for {split} in {place}", "two", f"{GET} again")
        rows[key] = int(match[2]), content
    if {label for label, _ in rows} != {0, 1}:
        raise SbmtError(f"reviews of both classes for {split} in {place}", f"{len(rows)} reviews", f"{GET} again")
    ratings, contents = zip(*(rows[key] for key in sorted(rows)), strict=True)
    return Examples.of([(content,) for content in contents], [label for label, _ in sorted(rows)], rating=list(ratings))


def _arrange(pool: Pool) -> Arrangement:
    """Shuffles every split, so that its first n examples are a fair sample of it; dev is a tenth of the training."""
    train, test = (np.flatnonzero(pool.splits == split) for split in ("train", "test"))
    train, test = (x[shuffled(len(x), DEV_SEED)] for x in (train, test))
    n_dev = -(-len(train) // 10)
    return {"train": train[n_dev:], "dev": train[:n_dev], "test": test}


def _places(path: Path) -> dict[str, Path]:
    """The place of each split: one archive, its unpacked folder, or one archive per split."""
    pair = find_files(path, PAIR.values(), ["text"])
    archive = find_files(path, [ARCHIVE], ["text"]).get(ARCHIVE)
    if path.is_file() and not pair:
        archive = path  # under whatever name
    for place in (path, path / FOLDER, path / "text" / FOLDER):
        if archive is None and (place / "train" / "neg").is_dir():
            archive = place
    if archive is not None:
        return {"train": archive, "test": archive}
    if len(pair) < len(PAIR):
        names = PAIR.values() if pair else [f"{ARCHIVE} or the folder {FOLDER}"]
        raise missing(names, path, pair, "get both files" if pair else GET)
    return {split: pair[name] for split, name in PAIR.items()}


def text_files(path: Path | str) -> Source:
    """The labelled IMDB reviews as bytes, neither cut nor cleaned: ``<br />`` stays.

    Token id = UTF-8 byte + 1; 0 is padding. Label 0 is negative, 1 positive. ``extras["rating"]`` holds the stars.

    The 25,000 test reviews are the test split. The dev split is a tenth of the 25,000 training reviews, drawn by a
    recorded seed. Long Range Arena uses the test reviews as its dev split, and so chooses the checkpoint by the very
    reviews on which it reports. To do the same, train on train and dev together and choose on test.

    Args:
        path: ``aclImdb_v1.tar.gz``, or an archive with the same members under another name; the folder ``aclImdb`` to
            which it unpacks; the pair ``aclImdb_{train,test}_labelled.tar.gz``; or a folder that has one of these
            itself or in a folder ``text``. The first kind of this list that is found is taken. All of them give the
            same examples in the same order. Unlabelled reviews are ignored.

    Raises:
        SbmtError: If none of these is found, a checksum is wrong, or a review is no regular file. From a part, if an
            archive is damaged or has no reviews, or a review's name lacks a number or has an impossible rating.

    Source: Maas et al., Learning Word Vectors for Sentiment Analysis (ACL 2011).
    """
    places = _places(Path(path))
    if places["train"].is_file():
        files = {place.name: checked_sha256(place) for place in dict.fromkeys(places.values())}
    else:
        files = {f"{FOLDER}/{split}": _sha256(place, split) for split, place in places.items()}
    return Source(
        name="text",
        task="text",
        origin="official",
        class_names=("negative", "positive"),
        vocab_size=257,
        first_id=1,
        settings={"files": files, "dev": "a tenth of the training reviews", "dev_seed": DEV_SEED},
        parts=lambda: ((split, _read(place, split)) for split, place in places.items()),
        arrange=_arrange,
        notes=(PAIR_NOTE,) if set(files) == set(PAIR.values()) else (),
    )
