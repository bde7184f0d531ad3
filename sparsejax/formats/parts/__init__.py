"""Parts of stored arrays, taken, looked up, put side by side and written: level by level, without expanding what stays as it is."""
