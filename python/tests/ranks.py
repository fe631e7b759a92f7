"""Cases that run on several processes with Gloo."""

import atexit
import gc
import logging
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Ranks are forked from a process that has imported these, which takes seconds, and done nothing.
multiprocessing.set_forkserver_preload(
    ["pytest", "torch._dynamo", "torch.distributed", "tersewire.torch"])
# A hook searches all objects for its optimizers: not those, which would be most of a test's time.
gc.freeze()


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


def run_program(*command, cwd="."):
    """What a program of Python, or "-m" and a module, prints on two ranks, the rank before every line.

    As torchrun starts them, except that they are forked: it takes some 3 s of processor less.
    Raises subprocess.CalledProcessError with all that was printed where a rank fails."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        output = [os.path.join(folder, str(rank)) for rank in range(2)]
        command = [str(word) for word in command]
        failure = None
        try:
            start_ranks(_run_program, (command, cwd, store.port, output), 2)
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            failure = error
        printed = ""
        for rank, path in enumerate(output):
            with open(path) as lines:
                printed += "".join(f"[default{rank}]:{line}" for line in lines)
    if failure is not None:
        raise subprocess.CalledProcessError(1, command, printed, str(failure)) from failure
    return printed


def _run_program(rank, command, cwd, port, output):
    printed = os.open(output[rank], os.O_WRONLY | os.O_CREAT)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port), RANK=str(rank),
                      LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                      TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
                      OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    os.chdir(cwd)
    is_module = command[0] == "-m"
    sys.argv = command[1:] if is_module else command
    sys.path.insert(0, os.path.abspath(cwd) if is_module else os.path.dirname(os.path.abspath(command[0])))
    try:
        run = runpy.run_module if is_module else runpy.run_path
        run(sys.argv[0], run_name="__main__", **({"alter_sys": True} if is_module else {}))
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out
        sys.stdout.flush()


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


class Lines(logging.Handler):
    """What the package's logger says while it is there."""

    def __enter__(self):
        self.lines = []
        logger = logging.getLogger("tersewire")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        return self.lines

    def __exit__(self, *_):
        logging.getLogger("tersewire").removeHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())
