"""Text as tokens: a vocabulary learned from text, and a corpus for masked language modelling."""
