"""IR 1 to IR 1."""
