"""The block model of a mask: memberships and a block matrix, from which every pair has its probability."""
