#!/usr/bin/env python3
"""Tries the installed package: beside grpcio and torch, its codecs, and ranks of a hub or of torch.

usage: try_wheel.py [--torch]

  --torch  torch is installed: two ranks train. Without it two ranks meet at a hub, if
           $TERSEWIRE_PROGRAM is the program.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile

import numpy

import tersewire

TRAINED = """
import torch, torch.distributed as dist, tersewire.torch
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(400, 10))
hook = tersewire.torch.register(model, "3lc")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 400)).square().mean().backward()
    optimizer.step()
weight = model.module.weight.detach().clone()
other = [torch.empty_like(weight) for _ in range(2)]
dist.all_gather(other, weight)
assert torch.equal(*other)
assert hook.counters.steps == 5
"""

MET = """
import datetime, sys, tersewire
end = tersewire._core._HubEnd(sys.argv[1], int(sys.argv[2]), 2, "", True, datetime.timedelta(seconds=30), "")
assert end.gather(sys.argv[2].encode()) == [b"0", b"1"]
end.close()
"""


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], check=True, timeout=300, **options)


def imports(beside):
    for order in itertools.permutations(("tersewire", *beside)):
        python("-c", "; ".join(f"import {module}" for module in order))


def codecs():
    gradient = numpy.random.default_rng(1).standard_normal(100_000).astype("float32")
    for codec in tersewire.codecs():
        encoder = tersewire.Codec(codec.name).encoder(gradient.shape)
        sent = numpy.empty_like(gradient)
        tersewire.decode(encoder.encode(gradient, 0), sent)
        assert numpy.isfinite(sent).all() and sent.any(), codec.name


def torch_ranks():
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "trained.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(TRAINED)
        python("-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
               "--nproc-per-node", "2", script)


def hub_ranks(program):
    hub = subprocess.Popen([program, "hub", "--workers", "2", "--servers", "0", "--listen", "127.0.0.1:0"],
                           stderr=subprocess.PIPE, text=True)
    try:
        address = next(found[1] for found in (re.search(r"listens at (\S+)", line) for line in hub.stderr) if found)
        ranks = [subprocess.Popen([sys.executable, "-c", MET, address, str(rank)]) for rank in range(2)]
        assert [rank.wait(60) for rank in ranks] == [0, 0]
        assert hub.wait(60) == 0
    finally:
        hub.kill()
        hub.communicate()


def main():
    has_torch = sys.argv[1:] == ["--torch"]
    assert tersewire.__file__.startswith(sys.prefix), tersewire.__file__
    imports(("grpc", "torch") if has_torch else ("grpc",))
    codecs()
    if has_torch:
        torch_ranks()
    elif os.environ.get("TERSEWIRE_PROGRAM"):
        hub_ranks(os.environ["TERSEWIRE_PROGRAM"])


if __name__ == "__main__":
    main()
