"""GLUE: four tasks on sentences and pairs of sentences."""
