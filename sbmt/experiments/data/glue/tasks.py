"""Four tasks of GLUE: what each of them asks, and how its tables are laid out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GlueTask:
    """How a task's tables are laid out."""

    name: str  # in the library
    title: str  # the question
    folder: str  # its name in GLUE, and of the folder of its tables
    texts: tuple[str, ...]  # the one or two columns with the texts
    label: str  # the column of the label; where several have this name, the last one counts
    written: tuple[str, ...]  # how the table writes label 0, 1, …
    class_names: tuple[str, ...]  # the meaning of label 0, 1, …
    index: str = "index"  # the column that numbers the rows, where a table has one
    undecided: str | None = None  # written where the annotators did not agree on a label
    held_out: tuple[tuple[str, str], ...] = (("test", "dev"),)  # other splits than train, and the stems of their tables


_TASKS = (
    GlueTask(
        name="sst2",
        title="SST-2: is a sentence about a film positive?",
        folder="SST-2",
        texts=("sentence",),
        label="label",
        written=("0", "1"),
        class_names=("negative", "positive"),
    ),
    GlueTask(
        name="qqp",
        title="QQP: do two questions ask the same?",
        folder="QQP",
        texts=("question1", "question2"),
        label="is_duplicate",
        written=("0", "1"),
        class_names=("different", "duplicate"),
        index="id",
    ),
    GlueTask(
        name="mnli",
        title="MNLI: does one sentence follow from another, contradict it, or neither?",
        folder="MNLI",
        texts=("sentence1", "sentence2"),
        label="gold_label",
        written=("contradiction", "neutral", "entailment"),  # in the order of the paper's pipeline (RoBERTa's),
        class_names=("contradiction", "neutral", "entailment"),  # on which the F1 of labels 1 and 2 depends
        undecided="-",
        held_out=(("test", "dev_matched"), ("mismatched", "dev_mismatched")),
    ),
    GlueTask(
        name="qnli",
        title="QNLI: does a sentence hold the answer to a question?",
        folder="QNLI",
        texts=("question", "sentence"),
        label="label",
        written=("entailment", "not_entailment"),
        class_names=("entailment", "not_entailment"),
    ),
)

GLUE = {task.name: task for task in _TASKS}
"""The tasks by name: ``sst2``, ``qqp``, ``mnli``, ``qnli``."""
