"""Errors that some test has to notice, and what puts them into a copy of the code (`run.py`)."""
