"""Tables in the layouts of GLUE, written column by column as its papers and readers describe them."""

PARSES = ("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse")
MNLI = ("index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2")
LABELLED = {
    "sst2": ("sentence", "label"),
    "qqp": ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
    "mnli": (*MNLI, "label1", "gold_label"),
    "qnli": ("index", "question", "sentence", "label"),
}
UNLABELLED = {
    "sst2": ("index", "sentence"),
    "qqp": ("id", "question1", "question2"),
    "mnli": MNLI,
    "qnli": ("index", "question", "sentence"),
}
TEXTS = {"sst2": ("sentence",), "qqp": ("question1", "question2"), "mnli": ("sentence1", "sentence2")}
TEXTS["qnli"] = ("question", "sentence")
DEV_MNLI = (*MNLI, *(f"label{i}" for i in range(1, 6)), "gold_label")


def table(task, texts, labels, columns=None):
    """Returns the bytes of a table. Labels of None leave the column out, as in GLUE's test tables."""
    columns = columns or (UNLABELLED if labels is None else LABELLED)[task]
    lines = [columns]
    for i, row in enumerate(texts):
        cells = dict.fromkeys(columns, "-") | dict(zip(TEXTS[task], row, strict=True))
        cells |= {name: str(i) for name in ("index", "id") if name in columns}
        if labels is not None:
            cells[columns[-1]] = labels[i]
        lines.append([cells[name] for name in columns])
    return b"".join("\t".join(line).encode() + b"\n" for line in lines)
