"""Elementary functions over lanes."""
