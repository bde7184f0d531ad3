"""The builder of LLVM text, and machine code: compiled, loaded, and kept on disk."""
