#!/usr/bin/env python3
"""What elastic ranks cost a step of DistributedOptimizer.

usage: elastic_step.py PROGRAM [--layers N] [--steps N] [--rounds N] [--codec CODEC]

PROGRAM is the tersewire that runs the hub. One rank with AdamW and layers of 512 x 512 values, so
nothing waits for a network; a fixed group and one whose ranks come and go, in turns, one process
each. One line for each: median milliseconds per step, of processor time (all threads together) and
of wall-clock time. On a shared machine, look at processor time. Needs torch, and tersewire on
PYTHONPATH.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time


def run(options):
    import torch
    from tersewire.torch import DistributedOptimizer, HubGroup

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(options.layers)])
    who = {"elastic": True, "name": "a"} if options.rank == "elastic" else {"ranks": 1, "rank": 0}
    optimizer = DistributedOptimizer(
        torch.optim.AdamW(model.parameters()), model, options.codec, threads=1,
        exchange="gradient-server", group=HubGroup(options.program, **who))
    processor, clock = [], []
    for _ in range(options.steps):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        begin, begin_processor = time.perf_counter(), time.process_time()
        optimizer.step()
        processor.append(1e3 * (time.process_time() - begin_processor))
        clock.append(1e3 * (time.perf_counter() - begin))
    optimizer.averager.close()
    values = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.rank:8} {values} values: {statistics.median(processor):.1f} ms of the "
          f"processor, {statistics.median(clock):.1f} on the clock", flush=True)


def run_with_hub(kind, options):
    hub = subprocess.Popen(
        [options.program, "hub", "--workers", "1", "--servers", "0", "--listen", "127.0.0.1:0",
         *(["--min-workers", "1"] if kind == "elastic" else [])], stderr=subprocess.PIPE, text=True)
    found = None
    while not found:
        found = re.search(r"listens at (\S+)", hub.stderr.readline())
    subprocess.run([sys.executable, __file__, found[1], "--rank", kind, "--codec", options.codec,
                    "--layers", str(options.layers), "--steps", str(options.steps)], check=True)
    hub.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codec", default="3lc")
    parser.add_argument("--rank", choices=("fixed", "elastic"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        run(options)
        return
    for _ in range(options.rounds):
        for kind in ("fixed", "elastic"):
            run_with_hub(kind, options)


if __name__ == "__main__":
    main()
