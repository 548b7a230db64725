"""GPU kernels (Triton), each with an eager version in plain PyTorch, and the operations that choose between them."""
