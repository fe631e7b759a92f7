#!/usr/bin/env python3
"""What the hook of tersewire.torch costs beyond the codec itself.

usage: hook_overhead.py [--codec CODEC]... [--bytes N]... [--tensors N]... [--rounds N] [--ddp]

One rank, so nothing waits for a network: the exchange gradient-server encodes a gradient, a server
in its own thread sums it and encodes the mean, and that is decoded: pushed by the calling thread
(DistributedOptimizer) or, with --ddp, by the hook's (register). In turns with it, the same four
calls of the codec, by hand and in place, each for all tensors of a bucket before the next. Median
microseconds per step, of wall-clock time and of processor time of all threads together, and the
hook's as ratios to the calls'. On a shared machine, look at processor time. With --ddp many tensors
are sent as PyTorch's buckets, and processor time includes the backward pass. Needs torch, and
tersewire on PYTHONPATH.
"""

import argparse
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import tersewire
from tersewire.torch import DistributedOptimizer, register


class Products(torch.nn.Module):
    """Its gradients are the inputs."""

    def __init__(self, parameters):
        super().__init__()
        self.weights = torch.nn.ParameterList(parameters)

    def forward(self, gradients):
        return sum((w * g).sum() for w, g in zip(self.weights, gradients))


def plain_step(encoders, tensors, step):
    pushed = [push.encode(values, step) for (push, _), values in zip(encoders, tensors)]
    for payload, values in zip(pushed, tensors):
        values.fill(0)
        tersewire.decode_add(payload, 1.0, values)
    pulled = [pull.encode(values, step) for (_, pull), values in zip(encoders, tensors)]
    for payload, values in zip(pulled, tensors):
        tersewire.decode(payload, values)


def measured(call, *arguments):
    """(wall-clock seconds, processor seconds)"""
    begin, begin_processor = time.perf_counter(), time.process_time()
    call(*arguments)
    return time.perf_counter() - begin, time.process_time() - begin_processor


def exchange_of(parameters, codec, ddp):
    """(what counts, what takes the gradients)"""
    if ddp:
        model = torch.nn.parallel.DistributedDataParallel(Products(parameters))
        hook = register(model, codec, policy="", exchange="gradient-server")
        return hook, lambda gradients: model(gradients).backward()
    averager = DistributedOptimizer(torch.optim.SGD(parameters, lr=1), codec=codec, policy="",
                                    exchange="gradient-server").averager
    return averager, lambda gradients: averager.average(gradients.view(-1))


def hook_step(averager, exchange, gradients):
    before = averager.counters.exchange_seconds
    _, processor = measured(exchange, gradients)
    return averager.counters.exchange_seconds - before, processor


def measure(codec, tensors, size, rounds, ddp):
    gradient = torch.randn(size // 4, generator=torch.Generator().manual_seed(1)) ** 3 * 1e-3
    parameters = [torch.nn.Parameter(gradient.clone()) for _ in range(tensors)]
    averager, exchange = exchange_of(parameters, codec, ddp)
    encoders = [[tersewire.Codec(codec).encoder(gradient.shape, sender=sender, tensor=tensor)
                 for sender in (0, 1)] for tensor in range(tensors)]
    gradients = gradient.repeat(tensors, 1)
    buffer = torch.empty_like(gradients)
    steps = []
    for step in range(rounds):
        buffer.copy_(gradients)
        plain = measured(plain_step, encoders, buffer.numpy(), step)
        buffer.copy_(gradients)
        steps.append((*plain, *hook_step(averager, exchange, buffer)))
    averager.close()
    # Residuals and memory settle first.
    settled = steps[rounds // 4:]
    times = [1e6 * statistics.median(values) for values in zip(*settled)]
    ratios = [statistics.median(step[2 + which] / step[which] for step in settled)
              for which in (0, 1)]
    print(f"{codec:14} {tensors:>7} {size:>10} " + " ".join(f"{us:>10.1f}" for us in times)
          + " ".join(f"{ratio:>11.3f}" for ratio in ratios), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codec", action="append")
    parser.add_argument("--bytes", action="append", type=int)
    parser.add_argument("--tensors", action="append", type=int, help="per bucket, each of --bytes")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--ddp", action="store_true", help="through register()")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as meeting:
        dist.init_process_group("gloo", init_method=f"file://{meeting}/ranks", rank=0, world_size=1)
        print(f"{'codec':14} {'tensors':>7} {'bytes':>10} {'calls us':>10} {'cpu us':>10} "
              f"{'hook us':>10} {'cpu us':>10} {'hook/calls':>10} {'of cpu':>11}")
        for size in arguments.bytes or [1 << 20, 1 << 22]:
            for tensors in arguments.tensors or [1, (25 << 20) // size]:
                for codec in arguments.codec or ["fp32", "3lc", "terngrad", "int8", "adacomp"]:
                    measure(codec, tensors, size, arguments.rounds, arguments.ddp)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
