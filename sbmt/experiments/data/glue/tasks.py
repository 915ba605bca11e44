"""Four tasks of GLUE: what each of them asks, and how its tables are laid out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GlueTask:
    """How a task's tables are laid out.

    Attributes:
        name: What the library calls it.
        title: What it asks.
        folder: What GLUE calls it, and the folder of its tables.
        texts: Columns that hold the texts: one or two.
        label: Column of the label; of several with this name the last one counts.
        written: How the table writes label 0, 1, ….
        class_names: What they mean.
        index: Column that numbers the rows, where a table has it.
        undecided: What stands for a label where annotators did not agree; None where that does not occur.
        held_out: Stem of the table of each split that is not trained on: the labels of GLUE's test tables are hidden,
            so the dev tables are what results are reported on.
    """

    name: str
    title: str
    folder: str
    texts: tuple[str, ...]
    label: str
    written: tuple[str, ...]
    class_names: tuple[str, ...]
    index: str = "index"
    undecided: str | None = None
    held_out: tuple[tuple[str, str], ...] = (("test", "dev"),)


_TASKS = (
    GlueTask(
        "sst2",
        "SST-2: is a sentence about a film positive?",
        "SST-2",
        ("sentence",),
        "label",
        ("0", "1"),
        ("negative", "positive"),
    ),
    GlueTask(
        "qqp",
        "QQP: do two questions ask the same?",
        "QQP",
        ("question1", "question2"),
        "is_duplicate",
        ("0", "1"),
        ("different", "duplicate"),
        index="id",
    ),
    GlueTask(
        "mnli",
        "MNLI: does one sentence follow from another, contradict it, or neither?",
        "MNLI",
        ("sentence1", "sentence2"),
        "gold_label",
        ("contradiction", "neutral", "entailment"),  # so ordered for RoBERTa's tokenisers in the paper's pipeline,
        ("contradiction", "neutral", "entailment"),  # whose F1 depends on which label is 1 and which is 2
        undecided="-",
        held_out=(("test", "dev_matched"), ("mismatched", "dev_mismatched")),
    ),
    GlueTask(
        "qnli",
        "QNLI: does a sentence hold the answer to a question?",
        "QNLI",
        ("question", "sentence"),
        "label",
        ("entailment", "not_entailment"),
        ("entailment", "not_entailment"),
    ),
)

GLUE = {task.name: task for task in _TASKS}
"""By name: ``sst2``, ``qqp``, ``mnli``, ``qnli``."""
