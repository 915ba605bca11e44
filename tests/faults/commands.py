"""Every command that writes files, as small as it can be, for the folder that the fixture ``made`` lays out."""

from dataclasses import replace

from sbmt.experiments.studies import language as language_studies
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training import tasks
from sbmt.experiments.training.tasks import MlmConfig, RepeatedTokensConfig
from tests.experiments.benchmarks.tiny import use_tiny_grids
from tests.experiments.data.glue_layout import table
from tests.experiments.training.tiny_language import NETWORK, sentences
from tests.experiments.training.tiny_language import TRAINING as MLM_TRAINING

REPEATED = "--length 8 --batch-size 4 --steps 12 --d-model 8 --d-hidden 8 --test-sequences 8 --attention full"
LISTOPS = (
    "--data toy-listops --length 20 --batch-size 8 --steps 6 --warmup-steps 1 --eval-every 2 --d-model 8 --d-hidden 8 "
    "--embedding-std 1"
)
LANGUAGE = (
    "--length 16 --d-model 8 --d-hidden 8 --n-heads 2 --n-layers 2 "
    "--batch-size 4 --steps 6 --warmup-steps 1 --eval-every 2 --learning-rate 0.01 --attention full"
)
TRAINING = {
    "repeated": f"train repeated-tokens {REPEATED}",
    "listops": f"train listops {LISTOPS} --attention full",
    "mlm": f"train mlm {LANGUAGE} --embedding-std 0.3",
    "sst2": f"train glue --task sst2 --from mlm {LANGUAGE}",
}
"""How the runs of the fixture ``made`` are trained."""

WRITING = {
    **{f"train {name}": f"{command} --output new" for name, command in TRAINING.items()},
    "demo": "demo --steps 2 --workers 1 --output new",
    "study": "study tiny --output new --json new.json --figure new.png",
    "glue": "glue --trial full --task sst2 --reduced --output new",
    "data prepare": "data prepare qnli",
    "data prepare corpus": "data prepare corpus --vocab-size 280 --reduced",
    "predict": "predict sst2 answers.tsv --output new.tsv",
    "inspect": "inspect repeated --output new.png",
    "inspect listops": "inspect listops --examples 4 --output new.png",
    "sample": "sample --n-tokens 8 --output new.png",
    "bench": "bench --quick --suite backends --threads 1 --json new.json",
    "cost": "cost --attention full-fused --length 64 --no-memory --json new.json",
}
"""Each writes to ``new``, ``new.json`` and the like; ``data prepare`` writes to the cache."""


def make_small(patch):
    """Makes commands without size options small, and checkpoints frequent."""
    words = REPEATED.replace("--", "").split()
    pairs = zip(words[::2], words[1::2], strict=True)
    fields = {name.replace("-", "_"): int(x) if x.isdigit() else x for name, x in pairs}
    trials = Trial("full", "full attention"), Trial("equal", "its density", {"attention": "random_mask"}, "full")
    config = RepeatedTokensConfig(**fields)
    few_clusters = config.override(attention="sbm", n_clusters=2)  # the demo's trials are settings of SBM
    patch.setitem(STUDIES, "demo", replace(STUDIES["demo"], config=few_clusters))
    patch.setitem(STUDIES, "tiny", Study("tiny", "two of them", config, trials, n_seeds=2))
    patch.setattr(tasks.GeneratedConfig, "checkpoint_every", 4)
    patch.setattr(language_studies, "REDUCED_MLM", MlmConfig(**NETWORK | MLM_TRAINING | {"attention": "full"}))
    use_tiny_grids(patch)


def make_qnli(here):
    """Writes the tables of a task that is not prepared yet."""
    (here / "data" / "QNLI").mkdir()
    for number, (stem, n) in enumerate({"train": 40, "dev": 13}.items()):
        texts = list(zip(sentences(n, number), sentences(n, number + 9), strict=True))
        labels = [("entailment", "not_entailment")[row % 2] for row in range(n)]
        (here / "data" / "QNLI" / f"{stem}.tsv").write_bytes(table("qnli", texts, labels))
