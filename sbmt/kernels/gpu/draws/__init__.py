"""Drawing edges by the exact law."""
