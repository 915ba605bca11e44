"""The models on sequences of one token, of padding alone, and whatever lies between."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from sbmt import DualEncoder, Encoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger, density_penalty
from tests.faults.attention_settings import DROPOUT, SETTINGS
from tests.faults.ingredients import PADDING, SIZES, gradients, is_finite, padding, real, refused, seeded

VOCABULARY, LONGEST, LABELS = 11, 70, 3
NETWORKS = {
    "encoder": lambda encoder: encoder,
    "tagger": lambda encoder: TokenTagger(encoder, LABELS),
    "classifier": lambda encoder: SequenceClassifier(encoder, LABELS, 4),
    "classifier, padded mean": lambda encoder: SequenceClassifier(encoder, LABELS, 4, is_padded_mean=True),
    "sentence, mean": lambda encoder: SentenceClassifier(encoder, LABELS, dropout=0.2),
    "sentence, first": lambda encoder: SentenceClassifier(encoder, LABELS, pooling="first"),
    "pair, products": lambda encoder: DualEncoder(encoder, LABELS, 4),
    "pair, concatenation": lambda encoder: DualEncoder(encoder, LABELS, 1, pair_features="concatenation"),
    "masked LM": MaskedLM,
}
SELECTED = ("none given", "nothing", "all real", "half")


@dataclass(frozen=True)
class NetworkCase:
    """A model and its tokens."""

    network: str
    attention: str
    settings: dict
    batch: int
    n: int
    heads: int
    d_head: int
    n_layers: int
    has_positions: bool
    dropout: float
    embedding_std: float
    padding: str
    selected: str
    kind: str
    dtype: torch.dtype
    is_training: bool
    seed: int

    def build(self):
        torch.manual_seed(self.seed)
        sizes = dict(d_model=self.heads * self.d_head, d_hidden=5, n_heads=self.heads, n_layers=self.n_layers)
        encoder = Encoder(
            VOCABULARY,
            LONGEST if self.has_positions else None,
            **sizes,
            dropout=self.dropout,
            attention_dropout=self.settings.get("dropout", 0.0),
            embedding_std=self.embedding_std,
            attention=self.attention,
            **{name: value for name, value in self.settings.items() if name != "dropout"},
        )
        return NETWORKS[self.network](encoder).to(self.dtype).train(self.is_training)

    @property
    def is_pair(self):
        return self.network.startswith("pair")


def network_cases():
    """Any model with any attention."""
    size = st.sampled_from(SIZES)
    named = st.sampled_from(list(SETTINGS)).flatmap(lambda name: st.tuples(st.just(name), SETTINGS[name]))
    return st.builds(
        lambda named, **rest: NetworkCase(attention=named[0], settings=named[1], **rest),
        named=named,
        network=st.sampled_from(list(NETWORKS)),
        batch=size,
        n=size | st.sampled_from([9, 66, 71]),
        heads=st.sampled_from([1, 2]),
        d_head=st.sampled_from([1, 2, 4]),
        n_layers=st.sampled_from([1, 2]),
        has_positions=st.booleans(),
        dropout=DROPOUT,
        embedding_std=st.sampled_from([0.02, 1e-30, 1.0, 100.0]),
        padding=st.sampled_from(PADDING),
        selected=st.sampled_from(SELECTED),
        kind=st.sampled_from(["random", "equal"]),
        dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
        is_training=st.booleans(),
        seed=st.integers(0, 1 << 32),
    )


def check_network(case):
    """Finite logits and gradients, whatever is padded; what stands at padding is not read; one seed, one answer."""
    model = case.build()
    shape = (case.batch, 2, case.n) if case.is_pair else (case.batch, case.n)
    longest = LONGEST if case.has_positions or case.attention in ("linformer", "sbm_static") else case.n
    if 0 in shape or case.n > longest:
        with refused("n ≥ 1|at most 70"):
            model(torch.zeros(shape, dtype=torch.int64))
        return "refused"
    tokens = torch.randint(VOCABULARY, shape, generator=seeded(case.seed))
    if case.kind == "equal":
        tokens = tokens[..., :1].expand(shape)
    mask = padding(case.padding, shape[0] * (2 if case.is_pair else 1), case.n, case.seed)
    is_real = real(mask, shape[0] * (2 if case.is_pair else 1), case.n).reshape(shape)
    if case.is_pair and mask is not None:
        mask = is_real
    arguments = _selected(case, is_real)
    out = _read(case, model, tokens, mask, arguments)
    assert is_finite(out.values) and out.values.dtype == case.dtype and out.values.shape == _shape(case, arguments)
    assert len(out.attention) == case.n_layers
    for attended in out.attention:
        assert ((attended.density >= 0) & (attended.density <= 1)).all()
    parameters = list(model.parameters())
    for loss in (
        out.values.square().sum(),
        *(density_penalty(out.attention, kind) for kind in ("sampled", "expected")),
    ):
        assert is_finite(loss, *gradients(loss, parameters))
    others = torch.where(is_real, tokens, torch.randint(VOCABULARY, shape, generator=seeded(case.seed + 1)))
    again = _read(case, model, others, mask, arguments)
    found, unread = out.values, again.values
    if case.network in ("encoder", "tagger", "masked LM") and not arguments:
        found, unread = found[is_real], unread[is_real]  # at padding they are of the tokens there
    torch.testing.assert_close(unread, found)
    return "answered"


def _selected(case, is_real):
    if case.network != "masked LM" or case.selected == "none given":
        return {}
    if case.selected == "half":
        return {"selected": is_real & (torch.rand(is_real.shape, generator=seeded(case.seed)) < 0.5)}
    return {"selected": is_real & (case.selected == "all real")}


def _read(case, model, tokens, mask, arguments):
    torch.manual_seed(case.seed)
    return model(tokens, mask, generator=seeded(case.seed), **arguments)


def _shape(case, arguments):
    width = case.heads * case.d_head
    by_network = {"encoder": (case.batch, case.n, width), "tagger": (case.batch, case.n, LABELS)}
    by_network["masked LM"] = (case.batch, case.n, VOCABULARY)
    if arguments:
        by_network["masked LM"] = (int(arguments["selected"].sum()), VOCABULARY)
    return by_network.get(case.network, (case.batch, LABELS))
