"""From users' own text to a training: held-out parts, and a recipe of a fitting size."""
