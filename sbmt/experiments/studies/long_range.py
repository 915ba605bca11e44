"""The named studies of the long-range tasks; a run takes minutes on one CPU core."""

from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training.tasks import REDUCED, TASK_TITLES

FULL = Trial("full", "full attention", {"attention": "full"})
LINEAR = Trial("linear", "linear attention", {"attention": "linear"})
SBM = Trial("sbm", "SBM")
RANDOM_EQUAL = Trial("random-equal", "random mask, SBM's density", {"attention": "random_mask"}, density_of="sbm")
PENALTY = Trial("sbm-0.1", "SBM, λ = 0.1", {"density_weight": 0.1})
REFORMER = Trial("reformer", "Reformer", {"attention": "reformer"})
BLACK = Trial("full-black", "full attention, black pixels count", {"attention": "full", "quirks": False})
_MORE = {
    "listops": (PENALTY, REFORMER),
    "text": (PENALTY,),
    "retrieval": (),  # stays at chance
    "retrieval-topics": (PENALTY,),
    "image": (PENALTY,),
    "pathfinder": (PENALTY, BLACK),
}

_FILMS = REDUCED["retrieval"].override(data="retrieval-films", length=256, batch_size=16, steps=400, learning_rate=1e-3)
_CONFIGS = REDUCED | {"retrieval": _FILMS, "retrieval-topics": REDUCED["retrieval"]}

LONG_RANGE_STUDIES = {
    name: Study(
        name,
        TASK_TITLES[config.task].split(":")[0] + (", topics" if name == "retrieval-topics" else ""),
        config,
        (FULL, LINEAR, SBM, RANDOM_EQUAL, *_MORE[name]),
        2,
    )
    for name, config in _CONFIGS.items()
}
"""The study ``retrieval`` is on pairs of film reviews, ``retrieval-topics`` on generated pairs."""
