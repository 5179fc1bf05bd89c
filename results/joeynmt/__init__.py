"""Another toolkit's Transformer on the same pieces, as a check that the baseline here is strong."""
