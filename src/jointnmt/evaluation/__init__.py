"""How good are translations: corpus scores with signatures, and the significance of their differences."""
