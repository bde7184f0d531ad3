"""Indirect einsums; see `sparsejax.insum` and docs/guide/insum.md."""
