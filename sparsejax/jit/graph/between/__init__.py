"""What is stored between kernels, once they are merged, and what is computed again."""
