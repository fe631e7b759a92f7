"""Cases that run on several processes with Gloo."""

import multiprocessing

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Ranks are forked from a process that has imported these, which takes a second, and done nothing.
multiprocessing.set_forkserver_preload(["pytest", "torch.distributed", "tersewire.torch"])


def start_ranks(function, arguments, ranks, join=True):
    """As torch.multiprocessing.spawn()."""
    return mp.start_processes(function, arguments, ranks, join, start_method="forkserver")


def run_on_ranks(cases, ranks, folder):
    """Calls every case on so many processes, each of which is a rank."""
    start_ranks(_run, (ranks, folder / "meeting", cases), ranks)


def _run(rank, ranks, meeting, cases):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for case in cases:
        case()
    dist.barrier()


def on_all_ranks(value):
    gathered = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, value)
    return gathered


def check_replicas(value):
    for other in on_all_ranks(value):
        assert torch.equal(other, value)


def network(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.Tanh(), torch.nn.Linear(300, 10))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def train(model, optimizer, steps, rank=None):
    """Of data that a step and a rank, or else the process group's, give; returns the parameters."""
    rank = dist.get_rank() if rank is None else rank
    for step in steps:
        numbers = torch.Generator().manual_seed(1000 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(8, 64, generator=numbers)).square().mean().backward()
        optimizer.step()
    return flat(model)
