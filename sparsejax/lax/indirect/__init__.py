"""Indirect einsums: statements as data, index arrays, kernels, derivatives and batches."""
