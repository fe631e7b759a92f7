#!/usr/bin/env python3
"""How long a transformer whose gradients have spikes stays on its first plateau.

    torchrun --nproc_per_node 4 bench/plateau.py --design ddp --design 3lc --design 3lc:s=1.75
    torchrun --nproc_per_node 4 bench/plateau.py --design 3lc --spike-limit inf --seed 2

It continues arithmetic progressions: two layers of width 64, AdamW, the mean gradient clipped at 1. It
learns nothing for a while, in which a gradient is now and then 20 times as long as others, and then all
at once. A design is ddp, plain DistributedDataParallel, or CODEC or EXCHANGE/CODEC of tersewire.torch.
Rank 0 prints after how many steps the mean loss of the last ten was below 1.
"""

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tersewire.torch

NUMBERS, LENGTH, WIDTH = 32, 16, 64
BATCH = 8  # progressions a rank and step
RISES = 50  # steps in which the learning rate rises
EVERY = 10


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers, self.places = nn.Embedding(NUMBERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        nn.init.normal_(self.numbers.weight, std=0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True,
                                       norm_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, numbers):
        x = self.numbers(numbers) + self.places.weight
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, later)
        return self.norm(x) @ self.numbers.weight.T


def progressions(numbers):
    """By 3 from an even number, by 6 from an odd one."""
    first = torch.randint(0, NUMBERS, (BATCH, 1), generator=numbers)
    return (first + 3 * (1 + first % 2) * torch.arange(LENGTH + 1)) % NUMBERS


def steps_on_the_plateau(design, arguments):
    """None if it has not left it."""
    torch.manual_seed(arguments.seed)
    model = DistributedDataParallel(Transformer())
    exchange, _, codec = design.rpartition("/")
    hook = None if design == "ddp" else tersewire.torch.register(
        model, codec, exchange=exchange or None, spike_limit=arguments.spike_limit)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, weight_decay=0.1)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / RISES))
    numbers = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    losses = torch.zeros(())
    left = None
    for step in range(1, arguments.steps + 1):
        drawn = progressions(numbers)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(drawn[:, :-1]).flatten(0, 1), drawn[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        rate.step()
        losses += loss.detach() / EVERY / dist.get_world_size()
        if step % EVERY == 0:
            dist.all_reduce(losses)
            if losses < 1:
                left = step
                break
            losses.zero_()
    if hook:
        hook.close()
    return left


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--design", action="append", required=True)
    parser.add_argument("--seed", type=int, default=1, help="of weights and data (1)")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate (0.003)")
    parser.add_argument("--steps", type=int, default=1000, help="after which it gives up (1000)")
    parser.add_argument("--spike-limit", type=float, metavar="TIMES",
                        help="of our hooks, instead of their own; inf: none")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for design in arguments.design:
        left = steps_on_the_plateau(design, arguments)
        if dist.get_rank() == 0:
            found = f"left it after {left}" if left else f"did not leave it in {arguments.steps}"
            print(f"{design:24} seed {arguments.seed}: {found} steps", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
