"""sparsejax: sparse arrays, traced and compiled."""
