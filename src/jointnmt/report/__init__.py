"""The report on several runs: their results on a test set, their differences, and the page."""
