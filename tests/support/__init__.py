"""Shared parts of tests: tiny models and runs, independent equations, stand-ins for devices, shape checks."""

from support.shape_checker import check_shapes

__all__ = ["check_shapes"]
