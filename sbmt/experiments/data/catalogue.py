"""A catalogue of all tasks and the sources of their examples."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.glue import GLUE, glue_files
from sbmt.experiments.data.image import image_files
from sbmt.experiments.data.listops import listops_source
from sbmt.experiments.data.locate import data_folder
from sbmt.experiments.data.pathfinder import PathfinderSettings, pathfinder_source
from sbmt.experiments.data.release import listops_files, pathfinder_files
from sbmt.experiments.data.retrieval import retrieval_files, topics_source
from sbmt.experiments.data.source import Source
from sbmt.experiments.data.text import text_files

SMALL_TREES = dict(n_train=20_000, n_dev=1_000, n_test=2_000, min_length=20, max_length=100, max_depth=6, max_args=5)
SMALL_IMAGES = PathfinderSettings(size=12, contour_length=3, distractor_length=1, n_distractors=0, seed_distance=5.0)

FROM_FILES: dict[str, Callable[[Path], Source]] = {
    "listops": listops_files,
    "pathfinder": pathfinder_files,
    "text": text_files,
    "retrieval": retrieval_files,
    "image": image_files,
    **{task: partial(glue_files, task) for task in GLUE},
}
GENERATED: dict[str, Callable[[], Source]] = {"listops": listops_source, "pathfinder": pathfinder_source}
REDUCED: dict[str, Callable[[], Source]] = {  # only tasks whose reduced runs use different examples
    "listops": partial(listops_source, name="listops-reduced", **SMALL_TREES),
    "retrieval": topics_source,
    "pathfinder": partial(pathfinder_source, SMALL_IMAGES, n_images=20_000, name="pathfinder-reduced"),
}


def find_source(task: str, path: Path | None = None, *, is_reduced: bool = False) -> Source:
    """Returns the source of a task's examples: files in ``path``, or a generator, or else files in ``$SBMT_DATA``."""
    choose("task", task, dict.fromkeys([*GENERATED, *FROM_FILES]))
    if is_reduced and task in REDUCED:
        if path is not None:
            raise SbmtError(f"reduced {task} examples are generated, not read from files: omit --from or --reduced")
        return REDUCED[task]()
    if path is None and task in GENERATED:
        return GENERATED[task]()
    folder = data_folder()
    default = folder / task if (folder / task).is_dir() else folder
    return FROM_FILES[task](path or default)
