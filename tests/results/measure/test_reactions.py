"""Tests atom maps on attention made by hand; the model's own maps require the package ``rxnmapper``."""

from collections import Counter
from importlib.util import find_spec

import pytest
import torch

import sbmt
from results.measure import atom_maps
from results.measure.atom_maps import atom_map, maps
from results.measure.smiles import REACTIONS, atoms_of, reactions, tokens_of


def attention(reaction, pairs):
    """Returns attention weights from each product atom to a reactant atom, and half as much in reverse."""
    tokens = tokens_of(reaction)
    places = atoms_of(tokens)[0]
    weights = torch.zeros(len(tokens), len(tokens))
    for (product, reactant), weight in pairs.items():
        weights[places[product], places[reactant]] = weight
        weights[places[reactant], places[product]] = weight / 2
    return weights, tokens


def test_a_smiles_is_read_as_a_graph():
    places, elements, bonds = atoms_of(tokens_of("[nH]1ccc(Cl)c1.[Na+]>>C%12=C%12"))
    assert elements == ["N", "C", "C", "C", "Cl", "C", "Na", "C", "C"]
    assert places == [0, 2, 3, 4, 6, 8, 11, 13, 16]
    assert [tuple(pair) for pair in bonds.triu().nonzero().tolist()] == [
        (0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (3, 5), (7, 8)]  # fmt: skip


def test_text_that_is_no_smiles_is_refused():
    with pytest.raises(sbmt.SbmtError, match="got '!' in 'CC!O>>CCO'"):
        tokens_of("CC!O>>CCO")


def test_the_largest_attention_is_mapped_first_and_each_atom_once():
    # reactants C0 C1 O2, product C3 O4 C5
    weights, tokens = attention("CCO>>COC", {(3, 0): 0.5, (5, 0): 0.6, (5, 1): 0.1, (3, 1): 0.2, (4, 2): 0.1})
    assert atom_map(weights, tokens) == [1, 2, 0]


def test_attention_counts_in_both_directions_and_only_between_atoms_of_one_element():
    weights, tokens = attention("CCO>>CC", {(3, 0): 0.4, (3, 1): 0.3, (4, 2): 0.9})
    weights[1, 4] += 0.5  # from the reactant's second carbon back to the product's first
    assert atom_map(weights, tokens) == [1, -1]


def test_neighbours_of_mapped_atoms_attract_each_other():
    # two ethyl groups in the reactants: O3 fixes which of the two carbons next to an oxygen is meant
    pairs = {(8, 3): 0.9, (7, 1): 0.05, (7, 4): 0.04, (6, 0): 0.03, (6, 5): 0.02}
    weights, tokens = attention("CCN.OCC>>CCO", pairs)
    assert atom_map(weights, tokens) == [5, 4, 3]
    assert atom_map(weights * (weights < 0.4), tokens) == [0, 1, -1]  # without the oxygen's attention


@pytest.mark.parametrize("part", [0, 1])
def test_reactions_are_balanced_and_parts_have_nothing_in_common(part):
    found = reactions(part, 8)
    assert found == reactions(part, 8) and len(found) == len(set(found)) > 100
    assert not set(found) & set(reactions(1 - part, 36))
    for reaction in found:
        sides = [Counter(atoms_of(tokens_of(side))[1]) for side in reaction.split(">>")]
        assert sides[1] <= sides[0], reaction


@pytest.mark.parametrize("published", REACTIONS["published"], ids=lambda published: published["smiles"])
def test_published_maps_lead_from_every_atom_of_the_product_to_one_of_its_element(published):
    reactants, product = (atoms_of(tokens_of(side))[1] for side in published["smiles"].split(">>"))
    assert [reactants[i] for i in published["map"]] == product and len({*published["map"]}) == len(product)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(atom_maps, "find_spec", lambda name: None)
    with pytest.raises(sbmt.SbmtError, match=r"expected the package rxnmapper, .* pip install --no-deps rxnmapper==0"):
        atom_maps.mapper.__wrapped__()


@pytest.mark.skipif(find_spec(atom_maps.PACKAGE) is None, reason="needs pip install --no-deps rxnmapper==0.4.3")
def test_full_attention_gives_the_published_maps():
    from results.measure.reactions import under_full_attention

    sparse = under_full_attention(sbmt.sparsify(atom_maps.mapper()[0], edges_per_query=1.0, n_clusters=16))
    published = REACTIONS["published"]
    assert maps(sparse, [one["smiles"] for one in published]) == [one["map"] for one in published]
