"""Indirect einsums; see `sparsejax.insum` and docs/insum.md."""
