"""The laboratory: data, training, studies, figures, benchmarks and the command line. The library knows none of it."""
