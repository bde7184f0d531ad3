"""Passes over the statements of a scheduled kernel, and the plan of its loops."""
