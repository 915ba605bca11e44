"""Scripts that measure: ``python results/measure/NAME.py`` writes ``results/NAME.json``, most of them; see each."""
