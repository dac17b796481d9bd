"""What the GPU's own counters saw, and which kernels did it: attribution of device samples to kernels."""
