"""Reports of what was decided, and programs that are compiled ahead of time."""
