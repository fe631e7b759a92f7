#!/usr/bin/env python3
"""A small convolutional network in DistributedDataParallel, trained once with each codec.

    torchrun --nproc_per_node 2 examples/mnist_ddp.py
    torchrun --nproc_per_node 2 \\
        examples/mnist_ddp.py --codec fp32 --codec terngrad --data mnist/

The images are those built into tersewire; --data names a directory with MNIST's four IDX files.
It takes half a minute on two cores.
"""

import argparse
import gzip
import itertools
import os
import pathlib
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import tersewire.data
import tersewire.torch

CODECS = ["fp32", "int8", "3lc", "adacomp"]


def read_idx(path):
    """An array from an IDX file, plain or gzipped."""
    zipped = path.with_name(path.name + ".gz")
    data = path.read_bytes() if path.exists() else gzip.decompress(zipped.read_bytes())
    sides = data[3]
    shape = numpy.frombuffer(data, ">i4", sides, offset=4)
    return numpy.frombuffer(data, "uint8", offset=4 + 4 * sides).reshape(shape)


def load(directory, train):
    if directory:
        name = "train" if train else "t10k"
        images = read_idx(directory / f"{name}-images-idx3-ubyte")
        labels = read_idx(directory / f"{name}-labels-idx1-ubyte").astype("int64")
    else:
        images, labels = tersewire.data.digits(train)
    pixels = torch.from_numpy(images.astype("float32"))
    return TensorDataset((pixels.unsqueeze(1) / 255 - 0.13) / 0.31, torch.from_numpy(labels))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 32, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10))


def batches(data, size):
    """Without end: this rank's part of the data, in another order every epoch."""
    sampler = DistributedSampler(data)
    loader = DataLoader(data, size, sampler=sampler, drop_last=True)
    if not len(loader):
        raise SystemExit(f"--batch {size} exceeds the {len(sampler)} images of each process; pass "
                         "less")
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def train(data, codec, arguments):
    """The trained network, the hook's counters and the seconds of a step."""
    torch.manual_seed(1)
    model = DistributedDataParallel(network())
    hook = tersewire.torch.register(model, codec)  # the one line that plain DDP does not have
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    begin = time.perf_counter()
    for images, labels in itertools.islice(batches(data, arguments.batch), arguments.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    seconds = (time.perf_counter() - begin) / arguments.steps
    hook.close()
    return model.module, hook.counters, seconds


@torch.no_grad()
def accuracy(model, data):
    images, labels = data.tensors
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", action="append", help=f"may be repeated; default: {CODECS}")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32, help="images a step of each process")
    parser.add_argument("--lr", type=float, default=0.01)
    arguments = parser.parse_args()
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        raise SystemExit("one process has nobody to send to; start more of them, as --help says")
    torch.set_num_threads(1)  # processes share the machine's cores
    dist.init_process_group("gloo")
    training, test = load(arguments.data, True), load(arguments.data, False)

    codecs = arguments.codec or CODECS
    width = max(12, *map(len, codecs))
    first_bytes = None
    if dist.get_rank() == 0:
        print(f"{'codec':{width}} {'accuracy':>8} {'bytes sent a step':>18} {'ratio':>8} "
              f"{'s a step':>9}")
    for codec in codecs:
        model, counters, seconds = train(training, codec, arguments)
        sent = counters.sent_bytes / counters.steps
        first_bytes = first_bytes or sent
        if dist.get_rank() == 0:
            print(f"{codec:{width}} {accuracy(model, test):>8.2%} {sent:>18,.0f} "
                  f"{first_bytes / sent:>7.1f}x {seconds:>9.4f}", flush=True)


if __name__ == "__main__":
    main()
