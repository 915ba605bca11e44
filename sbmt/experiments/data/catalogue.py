"""The tasks by name, and where the examples of each come from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.glue import GLUE, glue_files
from sbmt.experiments.data.image import image_files
from sbmt.experiments.data.listops import listops_files, listops_source
from sbmt.experiments.data.locate import data_folder
from sbmt.experiments.data.pathfinder import PathfinderSettings, pathfinder_folder, pathfinder_source
from sbmt.experiments.data.retrieval import retrieval_files, topics_source
from sbmt.experiments.data.source import Source
from sbmt.experiments.data.text import text_files


@dataclass(frozen=True)
class Entry:
    """How a task's examples are found or made."""

    read: Callable[[Path], Source]  # from files
    generate: Callable[[], Source] | None = None  # without files, where that is possible
    reduced: Callable[[], Source] | None = None  # the small source of the reduced runs, where that is a different one


SMALL_TREES = dict(min_length=20, max_length=100, max_depth=6, max_args=5)
SMALL_IMAGES = PathfinderSettings(size=12, contour_length=3, n_distractors=0, seed_distance=5.0)

CATALOGUE = {
    "listops": Entry(
        listops_files,
        listops_source,
        lambda: listops_source(n_train=20_000, n_dev=1_000, n_test=2_000, **SMALL_TREES, name="listops-reduced"),
    ),
    "text": Entry(text_files),
    "retrieval": Entry(retrieval_files, reduced=topics_source),
    "image": Entry(image_files),
    "pathfinder": Entry(
        pathfinder_folder,
        pathfinder_source,
        lambda: pathfinder_source(SMALL_IMAGES, n_images=20_000, name="pathfinder-reduced"),
    ),
    **{task: Entry(partial(glue_files, task)) for task in GLUE},
}


def find_source(task: str, path: Path | None = None, *, is_reduced: bool = False) -> Source:
    """The source of a task's examples.

    Args:
        task: A key of :data:`CATALOGUE`. (A corpus is made by :func:`~sbmt.experiments.data.corpus.corpus_source`.)
        path: The task's files. None generates ``listops`` and ``pathfinder``, and looks for the other tasks' files in
            :func:`~sbmt.experiments.data.locate.data_folder`.
        is_reduced: Whether to take the small examples of the reduced runs, where those are different.
    """
    entry = choose("task", task, CATALOGUE)
    if is_reduced and entry.reduced is not None:
        if path is not None:
            raise SbmtError(f"no files for the reduced {task}, which is generated", path, "leave one of the two out")
        return entry.reduced()
    if path is None and entry.generate is not None:
        return entry.generate()
    if path is None:
        folder = data_folder()
        path = folder / task if (folder / task).is_dir() else folder
    return entry.read(path)
