"""Another toolkit's Transformer on the same pieces, so that the baseline here is no straw man."""
