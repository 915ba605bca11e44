"""The paper's claims about costs (Tables 3, 5 and 6), held against what this library counts and measures."""
