"""The block model of a mask: memberships and a block matrix, which determine the edge probability of every pair."""
