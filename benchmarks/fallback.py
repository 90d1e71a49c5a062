"""What `contribbot fallback` costs: a training step and a decode loop, watched and not, in turns.

    python -m benchmarks.fallback [--device cuda] [--pairs 15] [--only decode]

Two processes, one of them watched, run the same steps in turns, three pairs of turns; then two new
ones. Their start, torch's import and a warm-up are not counted. It prints the ratio watched / not
watched of each pair, and their median, least and most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

WIDTH, HEADS, LAYERS = 512, 8, 8
#: Pairs that two processes make before new ones begin.
TURNS: Final = 3


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


def decode(device: str, mode: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    """Return 16 tokens of one sequence, eager, one after the other: all operators are small."""
    model = nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    head = nn.Linear(WIDTH, WIDTH).to(device)
    embed = nn.Embedding(WIDTH, WIDTH).to(device)

    def step() -> None:
        with mode():
            caches = [[torch.zeros(1, HEADS, 32, WIDTH // HEADS, device=device)] * 2 for _ in model]
            token = torch.zeros(1, 1, dtype=torch.long, device=device)
            for _ in range(16):
                x = embed(token)
                for block, cache in zip(model, caches, strict=True):
                    x = block(x, cache)
                token = head(x).argmax(-1)

    return step


WORK: Final[dict[str, Callable[[str], Callable[[], None]]]] = {
    "train": train,
    "decode": lambda device: decode(device, torch.inference_mode),
    "decode, no_grad": lambda device: decode(device, torch.no_grad),
}


def work(name: str, device: str, seconds: float) -> None:
    """Print the median seconds of a step, for each line of standard input."""
    step = WORK[name](device)

    def timed() -> float:
        started = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    for _ in range(3):
        timed()
    print("ready", flush=True)
    for _ in sys.stdin:
        end = time.perf_counter() + seconds
        times = [timed()]
        while time.perf_counter() < end:
            times.append(timed())
        print(statistics.median(times), flush=True)


def begin(name: str, device: str, seconds: float, *before: str) -> subprocess.Popen[str]:
    """Start a process that runs a workload in turns."""
    return subprocess.Popen(
        [*before, sys.executable, __file__, "--work", name, "--device", device,
         "--seconds", str(seconds)],
        cwd=Path(__file__).parent.parent, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def turn(process: subprocess.Popen[str]) -> float:
    """Let a process take its turn, and return the seconds of a step."""
    print(file=process.stdin, flush=True)
    return float(said(process))


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process writes."""
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise SystemExit(f"the workload ended with {process.wait()}")
    return line.strip()


def main() -> None:
    """Measure pairs of turns, or take them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", choices=WORK)
    parser.add_argument("--work", choices=WORK)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.device, options.seconds)
        return
    watch = (sys.executable, "-m", "contribbot", "fallback", "--device", options.device, "--")
    for name in [options.only] if options.only else WORK:
        ratios: list[float] = []
        while len(ratios) < options.pairs:
            plain, watched = (
                begin(name, options.device, options.seconds, *before) for before in ((), watch)
            )
            with plain, watched:
                said(plain)
                said(watched)
                for _ in range(min(TURNS, options.pairs - len(ratios))):
                    one, other = turn(plain), turn(watched)
                    ratios.append(other / one)
                    print(f"{name}: {one * 1e3:.2f} ms, watched {other * 1e3:.2f} ms: "
                          f"{ratios[-1]:.3f}x", flush=True)  # fmt: skip
        print(f"{name}: median {statistics.median(ratios):.2f}x ({min(ratios):.2f} to "
              f"{max(ratios):.2f}, {len(ratios)} pairs)", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
