"""Analyses of models and their translations: the papers' figures, probes, alignments, parameter counts."""
