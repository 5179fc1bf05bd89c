"""Committed translations and logs of trained systems, and the tables and figures that are made from them."""
