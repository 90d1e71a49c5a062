"""What `contribbot fallback` costs: a training step and a decode loop, watched and not, in turns.

    python -m benchmarks.fallback [--device cuda] [--pairs 5]

Each run is a process of its own, which times its steps after a warm-up; starting it and importing
torch are not counted. It prints the ratio watched / not watched of each pair, and their median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

WIDTH, HEADS, LAYERS = 512, 8, 8


class Block(nn.Module):
    """A transformer's layer, with a cache of keys and values when it decodes."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, cache: list[Tensor] | None) -> Tensor:
        """Return the layer's output for (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        if cache is not None:
            key, value = (torch.cat(pair, 2) for pair in zip(cache, (key, value), strict=True))
            cache[:] = [key, value]
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=cache is None
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        x = x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))
        return x  # noqa: RET504  beside the line above


def train(device: str) -> Callable[[], None]:
    """Return a training step: 16 sequences of 256 tokens, AdamW."""
    model = nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(16, 256, WIDTH, device=device)

    def step() -> None:
        x = batch
        for block in model:
            x = block(x, None)
        x.square().mean().backward()  # type: ignore[no-untyped-call]  # torch has no types there
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def decode(device: str) -> Callable[[], None]:
    """Return 16 tokens of one sequence, eager, one after the other: all operators are small."""
    model = nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    head = nn.Linear(WIDTH, WIDTH).to(device)
    embed = nn.Embedding(WIDTH, WIDTH).to(device)

    @torch.inference_mode()
    def step() -> None:
        caches = [[torch.zeros(1, HEADS, 32, WIDTH // HEADS, device=device)] * 2 for _ in model]
        token = torch.zeros(1, 1, dtype=torch.long, device=device)
        for _ in range(16):
            x = embed(token)
            for block, cache in zip(model, caches, strict=True):
                x = block(x, cache)
            token = head(x).argmax(-1)

    return step


WORK = {"train": train, "decode": decode}


def work(name: str, device: str, seconds: float) -> None:
    """Print the median of the seconds of a step."""
    step = WORK[name](device)
    times: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    print("seconds", statistics.median(times[len(times) // 3 :]))


def timed(name: str, device: str, seconds: float, *before: str) -> tuple[float, str]:
    """Run a workload in a process, and return the seconds of a step and what was reported."""
    ran = subprocess.run(
        [*before, sys.executable, __file__, "--work", name, "--device", device,
         "--seconds", str(seconds)],
        cwd=Path(__file__).parent.parent, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = ran.stdout + ran.stderr
    return float(text.partition("seconds ")[2].split()[0]), ran.stdout


def main() -> None:
    """Measure pairs of runs, or be one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--work", choices=WORK)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.device, options.seconds)
        return
    device = ("--device", options.device)
    watch = (sys.executable, "-m", "contribbot", "fallback", "--json", *device, "--")
    for name in WORK:
        ratios = []
        for _ in range(options.pairs):
            plain, _ = timed(name, options.device, options.seconds)
            watched, said = timed(name, options.device, options.seconds, *watch)
            report = json.loads(said)
            ratios.append(watched / plain)
            print(
                f"{name}: {plain * 1e3:.2f} ms, watched {watched * 1e3:.2f} ms: {ratios[-1]:.3f}x;"
                f" {report['gpu_operators']} operators, {len(report['findings'])} findings",
                flush=True,
            )
        print(f"{name}: median {statistics.median(ratios):.3f}x of {len(ratios)} pairs", flush=True)


if __name__ == "__main__":
    main()
