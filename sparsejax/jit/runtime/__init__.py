"""Plans and calls: what is compiled meets arrays."""
