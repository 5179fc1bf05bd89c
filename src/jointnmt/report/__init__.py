"""Comparing runs on a text: what each makes of it, where they differ, and a page that shows it."""
