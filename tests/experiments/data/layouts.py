"""Small files in official layouts."""

import io
import tarfile

import numpy as np

from sbmt.experiments.data.image import BATCHES

CIFAR = list(BATCHES)


def cifar_batch(seed, n=3):
    """Returns the labels and records of n images."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=n, dtype=np.uint8)
    return labels, np.concatenate([labels[:, None], rng.integers(256, size=(n, 3072), dtype=np.uint8)], axis=1)


def packed(members, mode="w:gz"):
    """Returns an archive of members (name, content). A content of None makes a link to the first member."""
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


def documents_of(examples):
    """Returns the concatenated documents of all examples as bytes."""
    ends = examples.lengths.ravel().cumsum()
    return [document.tobytes() for document in np.split(examples.symbols, ends[:-1])]
