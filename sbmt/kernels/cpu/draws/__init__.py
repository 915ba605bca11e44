"""Drawing edges by the exact law: a bound for every row, keys proposed within it, and a coin for each of them."""
