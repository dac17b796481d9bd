"""A user's program to look at: a transformer that reads prompts (prefill) and writes tokens (decode).

Random weights in bf16, eager PyTorch, for so many seconds (300). Prefill is bound by the tensor cores, and
decode, one token at a time, by reading the weights.
"""

import sys
import time

import torch
from torch.nn import functional

WIDTH, HEADS, LAYERS, HIDDEN = 4096, 32, 8, 11008
PROMPT, TOKENS = 2048, 128
EACH = WIDTH // HEADS


class Layer:
    """Attention with a cache of keys and values, then a gated linear unit."""

    def __init__(self) -> None:
        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) / rows**0.5

        self.qkv, self.out = weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH)
        self.up, self.gate, self.down = (
            weight(WIDTH, HIDDEN),
            weight(WIDTH, HIDDEN),
            weight(HIDDEN, WIDTH),
        )
        shape = (2, HEADS, PROMPT + TOKENS, EACH)
        self.cache = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)

    def __call__(self, x: torch.Tensor, at: int) -> torch.Tensor:
        length = len(x)
        qkv = functional.rms_norm(x, (WIDTH,)) @ self.qkv
        query, key, value = qkv.view(length, 3, HEADS, EACH).permute(1, 2, 0, 3)
        self.cache[0, :, at : at + length] = key
        self.cache[1, :, at : at + length] = value
        seen = self.cache[:, None, :, : at + length]
        attended = functional.scaled_dot_product_attention(
            query[None], seen[0], seen[1], is_causal=length > 1
        )
        x = x + attended[0].transpose(0, 1).reshape(length, WIDTH) @ self.out
        y = functional.rms_norm(x, (WIDTH,))
        return x + (functional.silu(y @ self.gate) * (y @ self.up)) @ self.down


torch.manual_seed(0)
layers = [Layer() for _ in range(LAYERS)]
began = time.monotonic()
until = began + (float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
texts = 0
with torch.inference_mode():
    while time.monotonic() < until:
        x = torch.randn(PROMPT, WIDTH, device="cuda", dtype=torch.bfloat16)
        for at in (0, *range(PROMPT, PROMPT + TOKENS)):
            for layer in layers:
                x = layer(x, at)
            x = x[-1:]
        torch.cuda.synchronize()
        texts += 1
        rate = texts * TOKENS / (time.monotonic() - began)
        print(f"text {texts:5,}  {rate:.0f} tokens/s", flush=True)
