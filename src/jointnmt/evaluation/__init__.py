"""Evaluation of translations: corpus scores with signatures, significance, contrastive suites."""
