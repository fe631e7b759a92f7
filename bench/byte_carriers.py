#!/usr/bin/env python3
"""Sending bytes: our tcp transport, or send and recv of PyTorch's process group (Gloo).

usage: byte_carriers.py PROGRAM [--bytes N]... [--rounds N] [--runs N]

PROGRAM is byte_carrier.cpp, compiled. Two processes on loopback take turns sending each other a
message of that many bytes, first over the one, then over the other, for that many rounds. Prints
medians over runs of microseconds per round trip, and of both processes' processor time for one.
Needs torch.
"""

import argparse
import resource
import statistics
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def processor_us():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 1e6 * (used.ru_utime + used.ru_stime)


def rank_of_gloo(rank, folder, size, rounds, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    message, times = torch.ones(size, dtype=torch.uint8), []
    dist.barrier()
    before = processor_us()
    for _ in range(rounds):
        begin = time.perf_counter()
        for sender in (0, 1):
            (dist.send if rank == sender else dist.recv)(message, 1 - rank)
        times.append(1e6 * (time.perf_counter() - begin))
    results.put((rank, statistics.median(times), (processor_us() - before) / rounds))
    dist.barrier()


def gloo(size, rounds):
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("spawn").SimpleQueue()
        mp.spawn(rank_of_gloo, (folder, size, rounds, results), nprocs=2)
        found = sorted(results.get() for _ in range(2))
    return found[0][1], sum(processor for *_, processor in found)


def tcp(program, size, rounds):
    printed = subprocess.run([program, str(size), str(rounds)], check=True, capture_output=True,
                             text=True).stdout
    return tuple(map(float, printed.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--bytes", action="append", type=int)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'bytes':>10} {'tcp us':>10} {'gloo us':>10} {'tcp cpu us':>11} {'gloo cpu us':>11}")
    for size in arguments.bytes or [1 << 12, 1 << 16, 1 << 20, 1 << 24]:
        runs = [(tcp(arguments.program, size, arguments.rounds), gloo(size, arguments.rounds))
                for _ in range(arguments.runs)]
        ours, theirs = ([statistics.median(values) for values in zip(*of_one)]
                        for of_one in zip(*runs))
        print(f"{size:>10} {ours[0]:>10.0f} {theirs[0]:>10.0f} {ours[1]:>11.0f} {theirs[1]:>11.0f}",
              flush=True)


if __name__ == "__main__":
    main()
