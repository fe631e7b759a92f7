"""Cases that run on several processes with Gloo."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_on_ranks(cases, ranks, folder):
    """Calls every case on so many processes, each of which is a rank."""
    mp.spawn(_run, (ranks, folder / "meeting", cases), nprocs=ranks)


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
