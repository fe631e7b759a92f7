#!/usr/bin/env python3
"""What hooks of DistributedDataParallel and local updates cost and gain: time, bytes, accuracy.

    lab/netlab run --nodes 4 --rate 10mbit -- \\
      python3 bench/torch_hooks.py lenet --data MNIST --design ddp --design 3lc --time 20
    torchrun --nproc_per_node 4 bench/torch_hooks.py lenet --data MNIST --design 3lc --accuracy 300
    torchrun --nproc_per_node 2 bench/torch_hooks.py gpt --data TEXT --design 3lc --accuracy 400

A design is one of

    ddp               DistributedDataParallel, unchanged
    none              no exchange: computation time only
    fp16              PyTorch's own; its bf16 is refused without NCCL
    powersgd-R:START  PyTorch's own of rank R, which sends START steps (10) uncompressed
    post-local-K      PyTorch's own PostLocalSGDOptimizer: models are averaged every K steps, after
                      2 K - 1 steps of DistributedDataParallel
    CODEC             tersewire.torch's, in its exchange of choice
    EXCHANGE/CODEC    in another; parameter-server is that of a DistributedOptimizer, without
                      DistributedDataParallel, and each rank clips its own gradient
    local-K/CODEC     its LocalUpdates every K steps, with --outer and --delay
    local-K/EXCHANGE/CODEC
    sites-K/CODEC/CODEC  two sites, each half of the ranks: DistributedDataParallel within, with the
                      first codec, and LocalUpdates between them every K steps, with the second

With --hub our designs go through that hub, of sites-K what the two sites exchange, and the others,
as always, from rank to rank:

    tersewire hub --workers 8 --servers 0 --certs hub --listen 10.77.0.1:7100        on node 0
    lab/netlab run -- python3 bench/torch_hooks.py gpt --data TEXT --design local-10/3lc \
      --hub 10.77.0.1:7100 --certs node --time 20                 node0 to node7: 'tersewire certs'

Rank 0 prints one line per design and kind of measurement; bench/torch_hooks_table.py turns the
lines of --json into a table.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import statistics
import time

# OpenBLAS asks once, when it is loaded; its threads would spin in every rank.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (debugging_hooks, default_hooks,
                                                         post_localSGD_hook, powerSGD_hook)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch_models import TASKS

import tersewire.torch

# netlab's nodes, each an MPI rank.
NETLAB_INTERFACE = "eth0"
NETLAB_MEETING = "tcp://10.77.0.1:29500"

HOOKS = {
    "none": debugging_hooks.noop_hook,
    "fp16": default_hooks.fp16_compress_hook,
}
POWERSGD = "powersgd-"
POWERSGD_START = 10
POST_LOCAL = re.compile(r"post-local-(\d+)")
LOCAL = re.compile(r"local-(\d+)/(.+)")
SITES = re.compile(r"sites-(\d+)/([^/]+)/([^/]+)")
SHARES = "parameter-server"

LEAST_RATE = 0.01  # of the cosine, as in recipes/
TEST_BATCH = 250


def meet():
    """Ranks meet; returns the interface that carries their traffic, None if it is unknown."""
    if "OMPI_COMM_WORLD_RANK" not in os.environ:  # torchrun
        dist.init_process_group("gloo")
        return None
    os.environ["GLOO_SOCKET_IFNAME"] = NETLAB_INTERFACE
    dist.init_process_group("gloo", init_method=NETLAB_MEETING,
                            rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                            world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    return NETLAB_INTERFACE


def powersgd(state, bucket):
    """PyTorch's hook waits, in Gloo's threads, for work that these threads must do: two buckets at
    once would deadlock (pytorch/pytorch#48478)."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    if state.iter >= state.start_powerSGD_iter:
        future.wait()
    return future


def attach(model, design, group, spike_limit):
    """Registers the design's hook. Returns ours, which counts; None for others."""
    if design == "ddp":
        return None
    if design in HOOKS:
        model.register_comm_hook(None, HOOKS[design])
        return None
    if design.startswith(POWERSGD):
        rank, _, start = design[len(POWERSGD):].partition(":")
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(rank),
                                            start_powerSGD_iter=int(start or POWERSGD_START))
        model.register_comm_hook(state, powersgd)
        return None
    exchange, _, codec = design.rpartition("/")
    return tersewire.torch.register(model, codec, exchange=exchange or None, group=group,
                                    spike_limit=spike_limit)


def average_models(model, optimizer, every):
    """Registers PyTorch's post-local SGD, each rank a subgroup of its own. Returns its optimizer."""
    start = 2 * every - 1  # so that models are alike after every so many steps
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    model.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=start),
        post_localSGD_hook.post_localSGD_hook)
    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(every, warmup_steps=start))


def steps_a_round(design):
    """Steps until all ranks have one model again."""
    for pattern in (POST_LOCAL, LOCAL, SITES):
        found = pattern.fullmatch(design)
        if found:
            return int(found[1])
    return 1


def site_of(rank):
    """Of two, each half of the ranks."""
    return 2 * rank // dist.get_world_size()


def train_in_sites(model, optimizer, design, outer, delay, hub):
    """(the model in a site's DistributedDataParallel, its hook, what exchanges between sites)."""
    every, within, between = SITES.fullmatch(design).groups()
    ranks = range(dist.get_world_size())
    groups = [dist.new_group([rank for rank in ranks if site_of(rank) == site]) for site in (0, 1)]
    first_ranks = dist.new_group([0, len(ranks) // 2])
    model = DistributedDataParallel(model, process_group=groups[site_of(dist.get_rank())])
    model.broadcast_buffers = False
    return (model, tersewire.torch.register(model, within),
            tersewire.torch.LocalUpdates(model, optimizer, int(every), outer, between, delay=delay,
                                         group=hub or first_ranks))


class Training:
    """A design's model, and what its training has used so far on this rank."""

    def __init__(self, task, design, samples, interface, group=None, seed=1, delay=0,
                 outer="sgd:lr=1", spike_limit=None):
        torch.manual_seed(seed)
        self.network = task.network(samples.different)
        self.optimizer = task.optimizer(self.network.parameters(), task.lr, task.weight_decay)
        self.steps_a_round = steps_a_round(design)
        self.within = None  # the hook within a site
        local = LOCAL.fullmatch(design)
        exchange, _, codec = design.rpartition("/")
        if local:
            self.model = self.network
            exchange, _, codec = local[2].rpartition("/")
            self.hook = tersewire.torch.LocalUpdates(
                self.network, self.optimizer, self.steps_a_round, outer, codec, delay=delay,
                exchange=exchange or None, group=group)
        elif SITES.fullmatch(design):
            self.model, self.within, self.hook = train_in_sites(
                self.network, self.optimizer, design, outer, delay, group)
        elif exchange == SHARES:
            self.model = self.network
            self.hook = tersewire.torch.DistributedOptimizer(
                self.optimizer, self.network.named_parameters(), codec, exchange=SHARES,
                group=group).averager
        else:
            self.model = DistributedDataParallel(self.network)
            # Batch normalization statistics stay unchanged: gradients are measured. As an argument
            # it is deprecated from torch 2.13 on.
            self.model.broadcast_buffers = False
            if POST_LOCAL.fullmatch(design):
                self.hook = None
                self.optimizer = average_models(self.model, self.optimizer, self.steps_a_round)
            else:
                self.hook = attach(self.model, design, group, spike_limit)
        self.task = task
        self.samples = samples
        self.order = numpy.random.default_rng(seed).permutation(len(samples))
        self.interface = interface

    def step(self, step, rate=1.0):
        inputs, classes = self._batch(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.task.lr * rate
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(inputs), classes).backward()
        if self.task.clip:  # the mean, where a hook has had the rank's own
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.task.clip)
        self.optimizer.step()

    def used(self):
        """Since its start; compare two of them."""
        used = {"cpu_seconds": time.process_time()}
        if self.interface:
            used["tx_bytes"], used["rx_bytes"] = carried_bytes(self.interface)
        if self.hook:
            for name, counter in (("hook_bytes", "sent_bytes"), ("codec_seconds", "codec_seconds"),
                                  ("exchange_seconds", "exchange_seconds")):
                used[name] = sum(getattr(hook.counters, counter) for hook in self._hooks())
        return used

    def close(self):
        for hook in self._hooks():
            hook.close()

    def _hooks(self):
        return [hook for hook in (self.within, self.hook) if hook]

    def _batch(self, step):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        begin = (step * ranks + rank) * self.task.batch
        chosen = self.order[numpy.arange(begin, begin + self.task.batch) % len(self.order)]
        inputs, classes = self.samples.batch(chosen)
        if self.task.augment:
            inputs = self.task.augment(inputs, numpy.random.default_rng((step, rank)))
        return inputs, classes


def carried_bytes(interface):
    """(sent, received), headers included; of this process's network namespace."""
    for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            numbers = counts.split()
            return int(numbers[8]), int(numbers[0])
    raise SystemExit(f"there is no interface {interface} here; run it under lab/netlab or torchrun")


def largest(values):
    """Of all ranks, each."""
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.tolist()


def largest_a_step(before, after, steps):
    values = largest([(after[name] - before[name]) / steps for name in after])
    return {f"{name}_a_step": value for name, value in zip(after, values)}


def measure_time(training, warm_up, steps):
    """The learning rate stays at its initial value."""
    seconds = []
    every = training.steps_a_round
    dist.barrier()
    for step in range(warm_up + steps):
        if step == warm_up:
            before = training.used()
        begin = time.perf_counter()
        training.step(step)
        seconds.append(time.perf_counter() - begin)
    used = largest_a_step(before, training.used(), steps)
    seconds = largest(seconds)
    rounds = [sum(seconds[begin:begin + every]) for begin in range(warm_up, warm_up + steps, every)]
    return {"kind": "time", "warm_up": warm_up,
            "seconds_a_step": statistics.median(rounds) / every, **used, "seconds": seconds}


def part_of_the_rate(step, steps, warm_up):
    """A cosine, below a warm-up from the rate of one rank, as in recipes/."""
    falling = LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * step / steps)) / 2
    start = 1 / dist.get_world_size()
    return falling * (start + (1 - start) * step / warm_up if step < warm_up else 1)


def measure_accuracy(training, steps, every, test):
    curve, losses = [], []
    for step in range(steps):
        training.step(step, part_of_the_rate(step, steps, steps * training.task.warm_up))
        if (step + 1) % every == 0 or step + 1 == steps:
            accuracy, loss = test_of(training.network, test)
            curve.append((step + 1, accuracy))
            losses.append((step + 1, loss))
    line = {"kind": "accuracy", "accuracy": curve[-1][1], "curve": curve, "loss": losses[-1][1],
            "losses": losses}
    if training.hook:
        (line["hook_bytes_a_step"],) = largest([training.used()["hook_bytes"] / steps])
    return line


@torch.no_grad()
def test_of(network, test):
    """Accuracy and loss. Each rank sees a part of the samples, under the mean of all ranks'
    statistics."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for statistic in network.buffers():
        if statistic.is_floating_point():
            dist.all_reduce(statistic)
            statistic /= ranks
    network.eval()
    sums = torch.zeros(3, dtype=torch.float64)  # labels that were found, losses, labels
    for begin in range(rank * TEST_BATCH, len(test), ranks * TEST_BATCH):
        inputs, classes = test.batch(slice(begin, begin + TEST_BATCH))
        scores = network(inputs)
        sums[0] += (scores.argmax(1) == classes).sum()
        sums[1] += torch.nn.functional.cross_entropy(scores, classes, reduction="sum")
        sums[2] += len(classes)
    dist.all_reduce(sums)
    network.train()
    correct, loss, labels = sums.tolist()
    return correct / labels, loss / labels


def report(line, as_json):
    if dist.get_rank() != 0:
        return
    if as_json:
        print(json.dumps(line), flush=True)
        return
    if line["kind"] == "time":
        found = f"{1e3 * line['seconds_a_step']:.1f} ms a step"
    else:
        found = (f"{100 * line['accuracy']:.2f} %, test loss {line['loss']:.4f} after "
                 f"{line['curve'][-1][0]} steps")
    sent = line.get("tx_bytes_a_step", line.get("hook_bytes_a_step"))
    print(f"{line['model']:10} {line['design']:30} {found}"
          + (f", {sent:.0f} bytes sent a step" if sent else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=TASKS)
    parser.add_argument("--data", type=pathlib.Path, required=True,
                        help="the directory with MNIST's IDX files or CIFAR-10's binary version; for gpt "
                             "a text file")
    parser.add_argument("--design", action="append", required=True)
    parser.add_argument("--time", type=int, metavar="STEPS", help="time this many steps")
    parser.add_argument("--warm-up", type=int, default=30, metavar="STEPS",
                        help="before the timed steps, to fill residuals (30)")
    parser.add_argument("--accuracy", type=int, metavar="STEPS", help="train for this many steps")
    parser.add_argument("--every", type=int, default=50, metavar="STEPS",
                        help="between two tests (50)")
    parser.add_argument("--lr", type=float, help="learning rate, instead of the model's own")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order (1)")
    parser.add_argument("--outer", default="sgd:lr=1", help="outer optimizer of local-K (sgd:lr=1)")
    parser.add_argument("--delay", type=int, default=0, metavar="STEPS",
                        help="by which local-K's exchanges may take longer than a step (0)")
    parser.add_argument("--spike-limit", type=float, metavar="TIMES",
                        help="of our hooks, instead of their own; inf: none")
    parser.add_argument("--hub", metavar="HOST:PORT", help="hub for our designs")
    parser.add_argument("--certs", metavar="NAME",
                        help="a rank's directory for it is NAME and the rank's number")
    parser.add_argument("--direct", action="store_true",
                        help="with --hub: netlab's nodes connect to each other too")
    parser.add_argument("--link", help="name of the links in the lines of --json: 10mbit")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    in_sites = [bool(SITES.fullmatch(design)) for design in arguments.design]
    if arguments.hub and len(set(in_sites)) > 1:
        parser.error("a hub is of all ranks or of two sites; run sites-K by itself")
    if not arguments.time and not arguments.accuracy:
        parser.error("say what to measure: --time, --accuracy or both")
    for design in arguments.design:
        counts = [(arguments.time, arguments.warm_up), (arguments.accuracy, arguments.every)]
        if any(count % steps_a_round(design) for kind in counts if kind[0] for count in kind):
            parser.error(f"{design} needs multiples of its steps for --time and --warm-up, or "
                         "--accuracy and --every, so that ranks have one model then")

    torch.set_num_threads(1)
    interface = meet()
    group = None
    if arguments.hub:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        direct = f"10.77.0.{rank + 1}:0" if arguments.direct else None
        joins = True
        if all(in_sites):
            joins = rank in (0, ranks // 2)
            rank, ranks = site_of(rank), 2
        own = f"{arguments.certs}{rank}" if arguments.certs else None
        if joins:
            group = tersewire.torch.HubGroup(arguments.hub, ranks, rank, own, insecure=not own,
                                             direct=direct)
    task = TASKS[arguments.model]
    if arguments.lr:
        task = dataclasses.replace(task, lr=arguments.lr)
    samples = task.samples(arguments.data, "train")
    test = task.samples(arguments.data, "test") if arguments.accuracy else None
    kinds = []
    if arguments.time:
        kinds.append(lambda training: measure_time(training, arguments.warm_up, arguments.time))
    if arguments.accuracy:
        kinds.append(lambda training: measure_accuracy(training, arguments.accuracy,
                                                       arguments.every, test))
    inputs, classes = samples.batch(slice(0, task.batch))  # a process's first step takes longer
    torch.nn.functional.cross_entropy(task.network(samples.different)(inputs), classes).backward()
    for design in arguments.design:
        for measure in kinds:
            training = Training(task, design, samples, interface, group, arguments.seed,
                                arguments.delay, arguments.outer, arguments.spike_limit)
            report({"model": arguments.model, "design": design, "link": arguments.link,
                    "ranks": dist.get_world_size(), "seed": arguments.seed, "lr": task.lr,
                    "outer": arguments.outer, "delay": arguments.delay,
                    "spike_limit": arguments.spike_limit, **measure(training)},
                   arguments.json)
            training.close()
    if group:
        group.close()
    # Gloo's threads would take down a rank that ends while another still talks to it.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
