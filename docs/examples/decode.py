"""Scores of a decode loop, part of them by way of the CPU."""

import torch

weight = torch.randn(256, 256).to("cuda")
state = torch.randn(16, 256).to("cuda")
rows = torch.tensor([3, 5, 8])
for _ in range(100):
    scores = state @ weight
    shares = scores.cpu().softmax(-1).to("cuda")
    if shares.max().item() < 0:
        break
    chosen = state[rows]
    state = (shares @ weight).tanh() + chosen.mean()
print(state.norm())
