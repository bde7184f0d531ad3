"""Workspaces: entries inserted in any order, read back sorted, one policy per file (see `protocol`)."""
