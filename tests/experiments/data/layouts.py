"""The smallest files in each task's official layout."""

import io
import tarfile

import numpy as np

from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.data.image import BATCHES
from tests.experiments.data.glue_layout import DEV_MNLI, table
from tests.experiments.data.pathfinder_layout import lay_out

CIFAR = list(BATCHES)


def cifar_batch(seed, n=3):
    """Labels and records of n images."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=n, dtype=np.uint8)
    return labels, np.concatenate([labels[:, None], rng.integers(256, size=(n, 3072), dtype=np.uint8)], axis=1)


def packed(members, mode="w:gz"):
    """An archive of the members given as (name, content); a content of None makes a link to the first."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, members[0][0]
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content or b""))
    return file.getvalue()


def files_of(task):
    """Contents by path."""
    match task:
        case "listops":
            content = b"Source\tTarget\r\n( ( ( [MAX 2 ) 9 ) ] )\t9\r\n"
            return {f"basic_{part}.tsv": content for part in ("train", "val", "test")}
        case "retrieval":
            content = b"1.0\tP01-1\tP02-2\tone\ttwo\n"
            return {f"new_aan_pairs.{part}.tsv": content for part in ("train", "eval", "test")}
        case "text":
            places = [f"{split}/{name}" for split in ("train", "test") for name in ("neg/0_1", "pos/0_7", "pos/1_10")]
            return {"aclImdb_v1.tar.gz": packed([(f"aclImdb/{place}.txt", place.encode()) for place in places])}
        case "image":
            batches = [(f"cifar-10-batches-bin/{name}", cifar_batch(i)[1].tobytes()) for i, name in enumerate(CIFAR)]
            return {"cifar-10-binary.tar.gz": packed(batches)}
    tables = {}
    for stem in ("train", *(stem for _, stem in GLUE[task].held_out)):
        texts = [("good", "bad")[: len(GLUE[task].texts)]] * 3
        tables[f"{stem}.tsv"] = table(task, texts, GLUE[task].written[:1] * 3, DEV_MNLI if "dev_m" in stem else None)
    return tables


def write_files(task, folder):
    """Writes the official files of a task into a folder; returns it."""
    if task == "pathfinder":
        lay_out(folder, {"1": 10})
        return folder
    for name, content in files_of(task).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def documents_of(examples):
    """The documents of all examples, end to end, as bytes."""
    ends = examples.lengths.ravel().cumsum()
    return [document.tobytes() for document in np.split(examples.symbols, ends[:-1])]
