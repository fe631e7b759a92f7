"""Training over a hub: what comes of it is what a process group comes to, to the bit."""

import copy
import datetime
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import hubs
import tersewire
import tersewire.torch
from ranks import flat, network, sgd, start_ranks, train
from support import ROOT, raises
from tersewire import ErrorCode, _core
from tersewire.torch import (
    DistributedOptimizer, HubGroup, LocalUpdates, broadcast_parameters)

# Above what a busy machine takes to start a process.
PATIENCE = datetime.timedelta(minutes=9)


# What each does with a group, on a rank: (what must be the same with any group, on any rank), what
# must be the same with any group.


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.003)


def averaged(group, rank):
    found, sent = [], []
    for codec, exchange in (("3lc", "gradient-server"), ("3lc", "all-gather"), ("int8", "ring"),
                            ("terngrad", "all-reduce"), ("3lc", "parameter-server"),
                            ("fp32", None)):
        model = network()
        optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), codec,
                                         exchange=exchange, group=group)
        found.append(train(model, optimizer, range(4), rank))
        optimizer.averager.close()
        counters = optimizer.averager.counters
        sent.append(counters.sent_bytes)
        assert counters.steps == 4 and counters.sent_bytes > 0
    return torch.cat(found), torch.tensor(sent)


def two_at_once(group, rank):
    """The second begins while the first goes on."""
    models = [network(seed) for seed in (1, 2)]
    first = DistributedOptimizer(sgd(models[0]), models[0].named_parameters(), group=group)
    train(models[0], first, [0], rank)
    second = DistributedOptimizer(sgd(models[1]), models[1].named_parameters(), "int8",
                                  group=group)
    for step in range(1, 4):
        train(models[0], first, [step], rank)
        train(models[1], second, [step], rank)
    first.averager.close()
    train(models[1], second, [4], rank)
    return torch.cat([flat(model) for model in models]), None


def changed(group, rank):
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), group=group)
    optimizer.averager.change(exchange="gradient-server")  # before any exchange
    train(model, optimizer, [0, 1], rank)
    optimizer.averager.change(codec="3lc:s=1.75")
    return train(model, optimizer, [2, 3], rank), None


def chosen(group, rank):
    """A codec that changes as it was decided elsewhere, and one that the ranks decide on."""
    decisions = [{"step": 1, "codec": "fp32"}, {"step": 3, "codec": "3lc"}]
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), "auto", group=group,
                                     replay_decisions=decisions)
    found = train(model, optimizer, range(5), rank)
    assert optimizer.averager.counters.codec == "3lc"
    again = network()
    free = DistributedOptimizer(sgd(again), again.named_parameters(), "auto", group=group)
    assert torch.isfinite(train(again, free, range(14), rank)).all()
    assert bool(free.averager.decisions()) == (rank == 0)
    return found, None


def resumed(group, rank):
    """A state, loaded before the first step and within a run that has begun."""
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), group=group)
    train(model, optimizer, [0, 1], rank)
    saved = copy.deepcopy([model.state_dict(), optimizer.state_dict(),
                           optimizer.averager.state_dict()])
    expected = train(model, optimizer, [2, 3], rank)
    again = network()
    other = DistributedOptimizer(sgd(again), again.named_parameters(), group=group)
    for trained, target in ((again, other), (model, optimizer)):
        trained.load_state_dict(saved[0])
        target.load_state_dict(copy.deepcopy(saved[1]))  # it keeps what it is given
        target.averager.load_state_dict(saved[2])
        assert torch.equal(train(trained, target, [2, 3], rank), expected)
    return expected, None


def apart(group, rank):
    found = []
    for options in ({}, {"fragments": 2, "delay": 1, "codec": "int8"}):
        model = network(seed=rank)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        local = LocalUpdates(model, optimizer, every=4, group=group, **options)
        train(model, optimizer, range(10), rank)
        local.synchronize()
        found.append(flat(model))
        local.close()
    return torch.cat(found), None


CASES = (averaged, two_at_once, changed, chosen, resumed, apart)


def parameters_of(rank):
    """Of every kind."""
    numbers = torch.Generator().manual_seed(rank)
    return {
        "weight": torch.randn(1000, 700, generator=numbers),
        "turned": torch.randn(30, 20, generator=numbers).t(),
        "half": torch.randn(7, generator=numbers).to(torch.bfloat16),
        "steps": torch.tensor(rank),
        "mask": torch.rand(9, generator=numbers) > 0.5,
        "none": torch.empty(0, 3),
        "name": f"of rank {rank}",
    }


def check_broadcast(group):
    state, expected = parameters_of(group.rank), parameters_of(group.ranks - 1)
    broadcast_parameters(state, group.ranks - 1, group)
    assert state.pop("name") == f"of rank {group.rank}"
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


def over_both(rank, ranks, address, folder):
    torch.set_num_threads(1)
    direct = "127.0.0.1:0" if rank == 0 else None
    group = HubGroup(address, ranks, rank, timeout=PATIENCE, direct=direct)
    assert (group.rank, group.ranks) == (rank, ranks)
    over_hub = [case(group, rank) for case in CASES]
    check_broadcast(group)
    assert tersewire.torch.probe(group)["rate_bits_per_second"] > 0
    with pytest.raises(tersewire.Error, match="rank 1 has another model or other settings"):
        model = network()
        DistributedOptimizer(sgd(model), model.named_parameters(), seed=rank, group=group)
    with pytest.raises(tersewire.Error, match="rank 1 has another model or other settings"):
        broadcast_parameters({"w": torch.zeros(3 + rank)}, group=group)
    with pytest.raises(tersewire.Error, match="rank 1 has another call of tersewire.torch"):
        if rank == 1:
            broadcast_parameters({"w": torch.zeros(3)}, group=group)
        else:
            DistributedOptimizer(sgd(model), model.named_parameters(), group=group)
    raises(ErrorCode.kInvalidArgument, tersewire.torch.broadcast_optimizer_state, sgd(network()),
           group=group)
    assert not dist.is_initialized()

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank,
                            world_size=ranks)
    for case, (alike, own) in zip(CASES, over_hub):
        expected, expected_own = case(None, rank)
        assert torch.equal(alike, expected), case.__name__
        assert own is None or torch.equal(own, expected_own), case.__name__
        others = [torch.empty_like(alike) for _ in range(ranks)]
        dist.all_gather(others, alike)
        assert all(torch.equal(other, alike) for other in others), case.__name__
    for make in (adam, sgd):  # with Adam the exchange changes in the first step
        found = []
        for hook_group in (group, None):
            model = DistributedDataParallel(network())
            hook = tersewire.torch.register(model, "3lc", group=hook_group)
            found.append(train(model, make(model), range(4), rank))
            assert hook.state_dict()["exchange"] == (
                "gradient-server" if make is adam else "all-gather")
        assert torch.equal(*found)
    model = DistributedDataParallel(network())
    model.register_comm_hook(tersewire.torch.HookState("3lc", group=group), tersewire.torch.hook)
    assert torch.equal(train(model, sgd(model), range(4), rank), found[0])
    dist.barrier()


@pytest.mark.parametrize("ranks", [2, 3])
def test_it_comes_to_what_a_process_group_comes_to(ranks, tmp_path):
    with hubs.hub(ranks) as hub:
        start_ranks(over_both, (ranks, hub.address, tmp_path), ranks)


def save_on_three(rank, address, folder):
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), exchange="all-gather",
                                     group=HubGroup(address, 3, rank, timeout=PATIENCE))
    train(model, optimizer, range(3), rank)
    torch.save([model.state_dict(), optimizer.averager.state_dict()], folder / f"{rank}.pt")


def load_on_two(rank, address, folder):
    saved = [torch.load(folder / f"{old}.pt") for old in range(3)]
    found = []
    for process_group in (False, True):
        if process_group:
            dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank,
                                    world_size=2)
        model = network()
        group = None if process_group else HubGroup(address, 2, rank, timeout=PATIENCE)
        model.load_state_dict(saved[rank][0])
        optimizer = DistributedOptimizer(sgd(model), model.named_parameters(),
                                         exchange="all-gather", group=group)
        optimizer.averager.load_state_dict([state for _, state in saved])
        found.append(train(model, optimizer, range(3, 6), rank))
    assert torch.equal(*found)


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path):
    for ranks, run in ((3, save_on_three), (2, load_on_two)):
        with hubs.hub(ranks) as hub:
            start_ranks(run, (hub.address, tmp_path), ranks)


# A script as it is without tersewire's hub, but for what starts a process group.
SCRIPT = """
import torch
import tersewire.torch

torch.manual_seed(1)
model = torch.nn.Linear(20, 30)
optimizer = tersewire.torch.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), "3lc")
tersewire.torch.broadcast_parameters(model.state_dict())
data = torch.utils.data.DataLoader(list(torch.randn(12, 20)), batch_size=4, num_workers=1)
for inputs in data:  # by way of processes that are forked
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
print(optimizer.averager.rank, optimizer.averager.counters.steps)
"""


def start(script, arguments=(), **variables):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("TERSEWIRE_") and name not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen([sys.executable, "-c", script, *arguments], env={**kept, **variables}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_script_finds_its_hub_in_the_environment(tmp_path):
    hub_certificate, certificates = hubs.certificates(tmp_path, 2)
    for certified in (True, False):
        with hubs.hub(2, *(["--certs", hub_certificate] if certified else [])) as hub:
            processes = [start(SCRIPT, TERSEWIRE_HUB=hub.address, WORLD_SIZE="2",
                               TERSEWIRE_DIRECT="127.0.0.1:0",
                               **({"TERSEWIRE_CERTS": certificates[rank], "RANK": "7"}
                                  if certified else {"RANK": str(rank)}))
                         for rank in range(2)]
            for rank, process in enumerate(processes):
                output, errors = process.communicate()
                assert (process.returncode, output) == (0, f"{rank} 3\n"), errors


def test_the_example_of_the_documentation_runs(tmp_path):
    section = (ROOT / "docs" / "python.md").read_text().split("## Over a hub\n")[1]
    (example, *_) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    hub_certificate, certificates = hubs.certificates(tmp_path, 4)
    with hubs.hub(4, "--certs", hub_certificate) as hub:
        script = example.replace("hub.example:7100", hub.address)
        assert script != example
        processes = [start(script, arguments=[certificate]) for certificate in certificates]
        printed = [process.communicate() for process in processes]
    assert all(process.returncode == 0 for process in processes), printed
    assert "20 steps" in printed[0][0] and not any(output for output, _ in printed[1:])


def test_the_gpt_of_the_examples_learns():
    options = ("--steps 40 --warm-up 10 --every 10 --layers 1 --width 32 --context 32 "
               "--lr 0.01").split()
    script = (ROOT / "examples" / "char_gpt.py").read_text()
    with hubs.hub(2) as hub:
        processes = [start(script, options, TERSEWIRE_HUB=hub.address, WORLD_SIZE="2",
                           RANK=str(rank)) for rank in range(2)]
        (printed, errors), (nothing, _) = [process.communicate() for process in processes]
    # One that knows how often each character occurs has a loss of 2.9.
    assert not nothing and float(re.search(r"test loss ([\d.]+)", printed)[1]) < 2.9, errors


def test_a_certificate_is_for_its_rank_alone(tmp_path):
    hub_certificate, certificates = hubs.certificates(tmp_path, 2)
    hub = hubs.Hub(2, "--certs", hub_certificate)
    try:
        assert "its certificate is that of rank 1, not of rank 0" in raises(
            ErrorCode.kFailedPrecondition, HubGroup, hub.address, 2, 0, certificates[1])
        assert "has ranks 0 to 1" in raises(
            ErrorCode.kFailedPrecondition, HubGroup, hub.address, 3, None, certificates[1])
        raises(ErrorCode.kUnavailable, HubGroup, hub.address, 2, 0,
               timeout=datetime.timedelta(seconds=1))  # without a certificate
    finally:
        hub.process.kill()
        hub.end()


def test_mistakes_are_refused(tmp_path, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "TERSEWIRE_HUB"):
        monkeypatch.delenv(name, raising=False)
    second = datetime.timedelta(seconds=1)
    for words, code, arguments, named in (
            ("'hub.example' is not an address; write HOST:PORT", ErrorCode.kInvalidArgument,
             ("hub.example", 2, 0), {}),
            ("address=7100 is not valid", ErrorCode.kInvalidArgument, (7100, 2, 0), {}),
            ("neither ranks= nor WORLD_SIZE", ErrorCode.kInvalidArgument, ("h:1",), {}),
            ("neither rank= nor RANK", ErrorCode.kInvalidArgument, ("h:1", 2), {}),
            ("rank=True is not valid", ErrorCode.kInvalidArgument, ("h:1", 2, True), {}),
            ("there is no rank 2 of 2", ErrorCode.kInvalidArgument, ("h:1", 2, 2), {}),
            ("there is no rank -1 of 2", ErrorCode.kInvalidArgument, ("h:1", 2, -1), {}),
            ("ranks=0 is not valid", ErrorCode.kInvalidArgument, ("h:1", 0, 0), {}),
            ("ranks=0 is not valid", ErrorCode.kInvalidArgument, ("h:1", 0), {"certs": "c"}),
            ("timeout=5 is not valid", ErrorCode.kInvalidArgument, ("h:1", 2, 0), {"timeout": 5}),
            ("direct=7100 is not valid", ErrorCode.kInvalidArgument, ("h:1", 2, 0), {"direct": 7100}),
            ("is not an address at which other nodes reach this one", ErrorCode.kInvalidArgument,
             ("127.0.0.1:9", 2, 0), {"direct": "0.0.0.0:0", "insecure": True}),
            ("nothing protects what is sent there", ErrorCode.kInvalidArgument, ("h:1", 2, 0), {}),
            ("certificate.pem' cannot be read", ErrorCode.kNotFound, ("h:1", 2, 0, tmp_path), {}),
            ("certificate.pem' cannot be read", ErrorCode.kNotFound, ("h:1", 2, None, tmp_path), {}),
            ("cannot reach the hub at 127.0.0.1:9", ErrorCode.kUnavailable, ("127.0.0.1:9", 2, 0),
             {"timeout": second})):
        assert words in raises(code, HubGroup, *arguments, **named), arguments
    monkeypatch.setenv("TERSEWIRE_HUB", "127.0.0.1:9")
    assert "neither ranks= nor WORLD_SIZE" in raises(
        ErrorCode.kInvalidArgument, DistributedOptimizer, sgd(network()))


def test_who_is_missing_is_named():
    hub = hubs.Hub(3)
    try:
        assert "at the hub for rank 0, 2; check whether they were started" in raises(
            ErrorCode.kDeadlineExceeded, HubGroup, hub.address, 3, 1,
            timeout=datetime.timedelta(seconds=2))
    finally:
        hub.process.kill()
        hub.end()


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def one_that_dies(rank, address, folder):
    group = HubGroup(address, 2, rank, timeout=PATIENCE)
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), group=group,
                                     timeout=datetime.timedelta(seconds=3))
    train(model, optimizer, [0], rank)
    # The other rank may still wait for what this one's threads send.
    (folder / f"rank {rank} has taken a step").touch()
    wait_for(folder / f"rank {1 - rank} has taken a step")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for(folder / "it is dead")
    sentence = raises(ErrorCode.kDeadlineExceeded, train, model, optimizer, [1], rank)
    (folder / "sentence").write_text(sentence)


def test_a_rank_that_dies_is_named(tmp_path):
    with hubs.hub(2, code=1) as hub:
        context = start_ranks(one_that_dies, (hub.address, tmp_path), 2, join=False)
        context.processes[1].join()
        (tmp_path / "it is dead").touch()
        context.processes[0].join()
        assert context.processes[0].exitcode == 0
        assert "rank 0 has heard nothing from rank 1 for 3" in (tmp_path / "sentence").read_text()


def one_that_stops(rank, address, folder):
    group = HubGroup(address, 2, rank, timeout=datetime.timedelta(seconds=5))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    sentence = raises(ErrorCode.kDeadlineExceeded, broadcast_parameters, network().state_dict(), 0,
                      group)
    (folder / "sentence").write_text(sentence)


def test_a_broadcast_to_a_rank_that_stops_ends(tmp_path):
    with hubs.hub(2, code=1) as hub:
        context = start_ranks(one_that_stops, (hub.address, tmp_path), 2, join=False)
        context.processes[0].join()
        context.processes[1].kill()
        assert context.processes[0].exitcode == 0
        assert "rank 0 has heard nothing from rank 1 for 5" in (tmp_path / "sentence").read_text()


def over_a_hub_that_comes_back(rank, address, folder):
    group = HubGroup(address, 2, rank, timeout=PATIENCE)
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), group=group)
    train(model, optimizer, [0, 1], rank)
    (folder / f"rank {rank} has begun").touch()
    wait_for(folder / "the hub is back")
    torch.save(train(model, optimizer, [2, 3], rank), folder / f"{rank}.pt")


def test_a_hub_that_comes_back_lets_the_job_go_on(tmp_path):
    hub = hubs.Hub(2)
    context = start_ranks(over_a_hub_that_comes_back, (hub.address, tmp_path), 2, join=False)
    while not all((tmp_path / f"rank {rank} has begun").exists() for rank in range(2)):
        context.join(0.01)
    hub.process.kill()
    hub.end()
    with hubs.hub(2, address=hub.address):
        (tmp_path / "the hub is back").touch()
        while not context.join():
            pass
    assert torch.equal(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)))


def in_threads(*calls):
    """What each raised, as its sentence, or None."""
    found = [None] * len(calls)

    def run(number, call):
        try:
            call()
        except tersewire.Error as error:
            found[number] = str(error)

    threads = [threading.Thread(target=run, args=numbered) for numbered in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("said", [b"", b"\x80\x04.", b"\n\n\n", b"\xff" * 100,
                                  f"{tersewire.__version__}\n".encode()])
def test_what_a_peer_says_is_compared_and_no_more(said):
    """One that says anything else than this library would."""
    with hubs.hub(2) as hub:
        def rogue():
            end = _core._HubEnd(hub.address, 1, 2, "", False, datetime.timedelta(minutes=1), "")
            end.gather(said)
            end.close()

        def honest():
            group = HubGroup(hub.address, 2, 0)
            try:
                model = network()
                DistributedOptimizer(sgd(model), model.named_parameters(), group=group)
            finally:
                group.close()

        nothing, sentence = in_threads(rogue, honest)
        assert nothing is None and sentence.startswith("rank 1 has another ")


def test_a_closed_group_is_no_group():
    with hubs.hub(1) as hub:
        group = HubGroup(hub.address, 1, 0)
        model = network()
        optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), group=group)
        train(model, optimizer, [0], 0)
        optimizer.averager.close()
        group.close()
        group.close()
        assert "has left the hub at" in raises(
            ErrorCode.kFailedPrecondition, broadcast_parameters, model.state_dict(), 0, group)


# Rank 0 interrupts itself when it has waited for rank 1 for a while, which never steps.
WAITS = """
import os
import signal
import sys
import threading
import time
import torch
import tersewire.torch

def interrupt(waiting):
    looks = 0
    while looks < 20:
        time.sleep(0.05)
        waits = sys._current_frames()[waiting].f_code.co_name == "mean"
        looks = looks + 1 if waits else 0
    os.kill(os.getpid(), signal.SIGINT)

group = tersewire.torch.HubGroup(ADDRESS, 2, RANK)
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = tersewire.torch.DistributedOptimizer(torch.optim.SGD([parameter], lr=1), group=group)
optimizer.step()
if RANK == 0:
    threading.Thread(target=interrupt, args=[threading.get_ident()]).start()
else:
    sys.stdin.readline()
optimizer.step()
"""


def waiting(address, rank):
    script = WAITS.replace("ADDRESS", repr(address)).replace("RANK", str(rank))
    return subprocess.Popen([sys.executable, "-c", script], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_control_c_ends_a_step_on_every_rank():
    with hubs.hub(2, code=1) as hub:
        processes = [waiting(hub.address, rank) for rank in range(2)]
        processes[0].wait()
        errors = [process.communicate("\n")[1] for process in processes]
        assert "KeyboardInterrupt" in errors[0], errors
        assert "rank 0 was interrupted; start every rank again" in errors[1], errors
        assert [process.returncode for process in processes] == [-signal.SIGINT, 1]


def test_control_c_ends_waiting_for_ranks():
    hub = hubs.Hub(2)
    try:
        process = waiting(hub.address, 0)
        while not any("rank 0 is here" in line for line in hub.lines):
            hub.lines.append(hub.process.stderr.readline())
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
        assert process.returncode == -signal.SIGINT
    finally:
        hub.process.kill()
        hub.end()
