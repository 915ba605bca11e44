"""Fixtures for tests of tasks: the folder of the real data, and small files in official layouts."""

import os
from pathlib import Path

import numpy as np
import pytest

from sbmt.experiments.data.source import Pool
from tests.experiments.data.layouts import documents_of


@pytest.fixture(scope="session")
def shared_data():
    """Returns the folder of the real data, or skips the test if there is none."""
    folder = os.environ.get("SBMT_DATA")
    if not folder or not (Path(folder) / "text").is_dir():
        pytest.skip("the folder SBMT_DATA with real data is not there")
    return Path(folder)


@pytest.fixture(scope="session")
def pool_of():
    """Produces every part of a source, and returns the facts about all examples and their documents."""

    def make(source):
        parts = list(source.parts())
        pool = Pool(
            np.concatenate([examples.labels for _, examples in parts]),
            np.concatenate([examples.lengths for _, examples in parts]),
            np.concatenate([np.full(len(examples.labels), split) for split, examples in parts]),
            {name: np.concatenate([examples.extras[name] for _, examples in parts]) for name in parts[0][1].extras},
        )
        documents = [document for _, examples in parts if len(examples.labels) for document in documents_of(examples)]
        n_documents = pool.lengths.shape[1]
        return pool, [tuple(documents[i : i + n_documents]) for i in range(0, len(documents), n_documents)]

    return make
