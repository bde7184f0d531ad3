"""Level types, one file each, over what they share: the protocol (`level`), how kernels write them (`walk`), segments in NumPy (`segments`)."""
