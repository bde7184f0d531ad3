"""Operations that are calls of NumPy, SciPy and LAPACK on whole arrays: one operation, one block, with its derivatives and batches."""
