"""What kernels, loops and conversions are expected to cost, in nanoseconds of a machine."""
