"""What a kernel computes, as data: tensors, expressions, loops, and what is asked of them."""
