"""Matrices whose rows are cut and put together as they are stored: some rows at a time, so that little stands beside a result."""
