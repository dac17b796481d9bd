"""A user's program to look at: trains two transformer layers on random data for so many seconds (300)."""

import sys
import time

import torch

WIDTH, HEADS, TOKENS, BATCH = 1024, 16, 512, 16
STEPS_A_LINE = 50

torch.manual_seed(0)
model = torch.nn.Sequential(
    *(torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True) for _ in range(2))
).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data, wanted = (
    torch.randn(BATCH, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2)
)
step, began = 0, time.monotonic()
until = began + (float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
while time.monotonic() < until:
    for _ in range(STEPS_A_LINE):
        loss = torch.nn.functional.mse_loss(model(data), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    step += STEPS_A_LINE
    rate = step / (time.monotonic() - began)
    print(f"step {step:6,}  loss {loss.item():.4f}  {rate:.1f} steps/s", flush=True)
