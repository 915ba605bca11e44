"""Experiments: data, training, studies, figures, benchmarks and the command line. The library imports none of them."""
