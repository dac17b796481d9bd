"""The library that CUDA loads into traced programs: its C sources, and `build` that compiles them."""
