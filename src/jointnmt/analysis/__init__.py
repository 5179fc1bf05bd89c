"""Looking into models and their translations."""
