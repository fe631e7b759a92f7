#!/usr/bin/env python3
"""A character GPT whose ranks train by themselves and meet now and then, or exchange every gradient.

    torchrun --nproc_per_node 2 examples/char_gpt.py
    torchrun --nproc_per_node 2 examples/char_gpt.py --fragments 5 --delay 4
    torchrun --nproc_per_node 2 \\
        examples/char_gpt.py --every 0 --codec 3lc --text FILE
    torchrun --nproc_per_node 4 \\
        examples/char_gpt.py --every 0 --codec 3lc --shares
    TERSEWIRE_HUB=HOST:PORT TERSEWIRE_CERTS=node3 WORLD_SIZE=4 python examples/char_gpt.py

With --every 50 ranks exchange how far they came in 50 steps (tersewire.torch.LocalUpdates), with
--every 0 gradients in every step (DistributedDataParallel with tersewire's hook, which needs a
process group), with --shares too each rank owns a share of the model and of AdamW's state
(tersewire.torch.DistributedOptimizer), which from three ranks on learns more. Over a hub ranks may
be anywhere. The text is the one built into tersewire; its last tenth is the test. A model that
knows nothing has a loss of ln(characters), about 3.7.
"""

import argparse
import math
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tersewire.data
import tersewire.torch


class CharacterGPT(nn.Module):
    def __init__(self, characters, layers, heads, width, context):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width),
                                            enable_nested_tensor=False)
        self.out = nn.Linear(width, characters)
        # Nobody looks at what comes later. Gloo cannot broadcast truth values, so it is numbers.
        later = torch.full((context, context), -math.inf).triu(1)
        self.register_buffer("later", later, persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text):
        x = self.characters(text) + self.places.weight
        return self.out(self.blocks(x, self.later))


def load(path):
    """The text's characters as numbers, to learn from and to test on, and how many there are."""
    text = path.read_text() if path else tersewire.data.text()
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    values = torch.tensor([numbers[character] for character in text])
    test = len(values) // 10
    return values[:-test], values[-test:], len(characters)


def loss_of(model, values, starts, context):
    pieces = torch.stack([values[start:start + context + 1] for start in starts])
    scores = model(pieces[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())


def rate_at(step, steps, warm_up):
    """Of the highest: it rises, and falls as a cosine to a tenth."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))


def train(model, values, options):
    """Trains the model; what exchanged it, with its counters."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    if options.every:
        computed = model
        exchange = tersewire.torch.LocalUpdates(
            model, optimizer, options.every, options.outer, options.codec,
            fragments=options.fragments, delay=options.delay)
    elif options.shares:
        computed = model
        exchange = tersewire.torch.DistributedOptimizer(
            optimizer, model.named_parameters(), options.codec,
            exchange="parameter-server").averager
    else:
        computed = DistributedDataParallel(model)
        exchange = tersewire.torch.register(computed, options.codec)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_at(step, options.steps, options.warm_up))
    draws = torch.Generator().manual_seed(1 + exchange.rank)  # each rank has its own samples
    for _ in range(options.steps):
        starts = torch.randint(len(values) - options.context, (options.batch,), generator=draws)
        optimizer.zero_grad()
        loss_of(computed, values, starts, options.context).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    if options.every:
        exchange.synchronize()
    exchange.close()
    return exchange


@torch.no_grad()
def test_loss(model, values, context):
    starts = torch.arange(0, len(values) - context, context)
    losses = [loss_of(model, values, chosen, context) * len(chosen) for chosen in starts.split(32)]
    return sum(losses).item() / len(starts)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=50, help="steps between exchanges; 0: DDP")
    parser.add_argument("--shares", action="store_true", help="with --every 0: no DDP, see above")
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--outer")
    parser.add_argument("--fragments", type=int, default=1)
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8, help="samples a step of each process")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=128, help="characters of a sample")
    options = parser.parse_args()
    if options.shares and options.every:
        parser.error("--shares is for --every 0")
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        raise SystemExit("one process has nobody to send to; start more of them, as --help says")
    torch.set_num_threads(1)  # processes share the machine's cores
    if "TERSEWIRE_HUB" not in os.environ:
        dist.init_process_group("gloo")
    values, test, characters = load(options.text)
    torch.manual_seed(1)
    model = CharacterGPT(characters, options.layers, options.heads, options.width, options.context)

    begin = time.perf_counter()
    exchange = train(model, values, options)
    seconds, counters = time.perf_counter() - begin, exchange.counters
    if exchange.rank == 0:
        sent = counters.sent_bytes / options.steps
        plain = 4 * sum(parameter.numel() for parameter in model.parameters())
        print(f"test loss {test_loss(model, test, options.context):.3f}, {sent:,.0f} bytes sent a "
              f"step ({plain / sent:,.0f}x less than the gradients), {seconds:.1f} s, of which "
              f"{counters.transfer_seconds:.1f} s waiting for other ranks", flush=True)


if __name__ == "__main__":
    main()
