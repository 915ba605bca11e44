"""Four tasks of GLUE: what each of them asks, and how its tables are laid out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GlueTask:
    """How a task's tables are laid out.

    Attributes:
        name: What the library calls it.
        title: What it asks.
        folder: What GLUE calls it, which is also the folder of its tables.
        texts: The one or two columns with the texts.
        label: Column of the label; where several have this name, the last one counts.
        written: How the table writes label 0, 1, ….
        class_names: The meaning of label 0, 1, ….
        index: Column that numbers the rows, where a table has one.
        undecided: What the table writes where the annotators did not agree on a label; None if that does not occur.
        held_out: Name of the table, without its ending, of each split that is not trained on. The labels of GLUE's
            test tables are hidden, so results are reported on the dev tables.
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
        ("contradiction", "neutral", "entailment"),  # in the order of the paper's pipeline (RoBERTa's),
        ("contradiction", "neutral", "entailment"),  # on which the F1 of labels 1 and 2 depends
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
"""The tasks by name: ``sst2``, ``qqp``, ``mnli``, ``qnli``."""
