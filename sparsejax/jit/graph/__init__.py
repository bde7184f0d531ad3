"""Passes over whole programs: which operations become one kernel, and what is stored between kernels."""
