"""Errors that some test must notice, and the program that applies them to a copy of the code (`run.py`)."""
