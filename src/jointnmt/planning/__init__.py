"""From files of one's own text to a training: reading, checking, holding out, and a recipe of a fitting size."""
