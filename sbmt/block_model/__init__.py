"""The block model of a mask: memberships and a block matrix, which give every pair its edge probability."""
