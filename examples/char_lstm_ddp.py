#!/usr/bin/env python3
"""A character LSTM in DistributedDataParallel, trained once with each codec.

    torchrun --nproc_per_node 2 examples/char_lstm_ddp.py
    torchrun --nproc_per_node 2 \\
        examples/char_lstm_ddp.py --codec fp32 --codec int8 --text FILE

The text is the one built into tersewire; its last tenth is the test. A model that knows nothing
needs log2(characters) bits for each, about five. It takes three quarters of a minute on two cores.
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

CODECS = ["fp32", "int8", "3lc", "adacomp"]
LENGTH = 50  # characters of a sample


class CharacterLSTM(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, 32)
        self.lstm = nn.LSTM(32, 160, batch_first=True)
        self.out = nn.Linear(160, characters)

    def forward(self, text):
        return self.out(self.lstm(self.embedding(text))[0])


def load(path):
    """The text's characters as numbers, to learn from and to test on, and how many there are."""
    text = path.read_text() if path else tersewire.data.text()
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    values = torch.tensor([numbers[character] for character in text])
    test = len(values) // 10
    return values[:-test], values[-test:], len(characters)


def samples(values, starts):
    """Pieces of the text, and for each of their characters the one that follows."""
    pieces = torch.stack([values[start:start + LENGTH + 1] for start in starts])
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model, inputs, following):
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), following.flatten())


def train(values, characters, codec, arguments):
    """The trained network, the hook's counters and the seconds of a step."""
    torch.manual_seed(1)
    model = DistributedDataParallel(CharacterLSTM(characters))
    hook = tersewire.torch.register(model, codec)  # the one line that plain DDP does not have
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    draws = torch.Generator().manual_seed(1 + dist.get_rank())  # each rank has its own samples
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        starts = torch.randint(len(values) - LENGTH, (arguments.batch,), generator=draws)
        optimizer.zero_grad()
        loss_of(model, *samples(values, starts)).backward()
        optimizer.step()
    seconds = (time.perf_counter() - begin) / arguments.steps
    hook.close()
    return model.module, hook.counters, seconds


@torch.no_grad()
def bits_a_character(model, values):
    starts = range(0, len(values) - LENGTH, LENGTH)
    return loss_of(model, *samples(values, starts)).item() / math.log(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", action="append", help=f"may be repeated; default: {CODECS}")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8, help="samples a step of each process")
    parser.add_argument("--lr", type=float, default=0.01)
    arguments = parser.parse_args()
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        raise SystemExit("one process has nobody to send to; start more of them, as --help says")
    torch.set_num_threads(1)  # processes share the machine's cores
    dist.init_process_group("gloo")
    training, test, characters = load(arguments.text)

    codecs = arguments.codec or CODECS
    width = max(12, *map(len, codecs))
    first_bytes = None
    if dist.get_rank() == 0:
        print(f"{'codec':{width}} {'bits a char':>11} {'bytes sent a step':>18} {'ratio':>8} "
              f"{'s a step':>9}")
    for codec in codecs:
        model, counters, seconds = train(training, characters, codec, arguments)
        sent = counters.sent_bytes / counters.steps
        first_bytes = first_bytes or sent
        if dist.get_rank() == 0:
            print(f"{codec:{width}} {bits_a_character(model, test):>11.3f} {sent:>18,.0f} "
                  f"{first_bytes / sent:>7.1f}x {seconds:>9.4f}", flush=True)


if __name__ == "__main__":
    main()
