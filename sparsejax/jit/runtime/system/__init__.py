"""What running kernels need of the computer: memory that is used again, and threads."""
