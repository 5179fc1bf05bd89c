"""Committed translations and logs of trained systems, and the tables and figures made from them."""
