"""Training while torch's default type is no float32: what this package computes does not depend on it."""

import contextlib

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from ranks import flat, network, run_on_ranks
from tersewire.torch import DistributedOptimizer, LocalUpdates, broadcast_parameters, register


@contextlib.contextmanager
def default_type(kind):
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def trained_by(start):
    """Parameters after steps of which some gradients are spikes."""
    model, run, optimizer = start()
    numbers = torch.Generator().manual_seed(dist.get_rank())
    for step in range(6):
        batch = torch.randn(8, 64, dtype=torch.float32, generator=numbers)
        optimizer.zero_grad()
        (run(batch).square().mean() * (50 if step == 4 else 1)).backward()
        optimizer.step()
    return flat(model)


def check_alike(start):
    expected = trained_by(start)
    for kind in (torch.bfloat16, torch.float16, torch.float64):
        with default_type(kind):
            assert torch.equal(trained_by(start), expected)


def float_network():
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        return network()
    finally:
        torch.set_default_dtype(kind)


def case_a_hook_trains_to_the_same_bits():
    def start():
        model = float_network()
        run = DistributedDataParallel(model)
        optimizer = adamw(model)
        register(run, "3lc")
        return model, run, optimizer

    check_alike(start)


def with_optimizer(**settings):
    model = float_network()
    optimizer = DistributedOptimizer(adamw(model), model, "3lc", **settings)
    broadcast_parameters(model.state_dict())
    return model, model, optimizer


def case_a_distributed_optimizer_trains_to_the_same_bits():
    check_alike(with_optimizer)


def case_shares_train_to_the_same_bits():
    check_alike(lambda: with_optimizer(exchange="parameter-server"))


def case_local_updates_train_to_the_same_bits():
    def start():
        model = float_network()
        optimizer = adamw(model)
        LocalUpdates(model, optimizer, every=2, codec="3lc", outer="nesterov:lr=1,momentum=0.5")
        return model, model, optimizer

    check_alike(start)


def case_learning_rates_are_compared_whole():
    """Of what ranks compare before the first step: bfloat16 would make these rates the same."""
    model = float_network()
    optimizer = adamw(model)
    with default_type(torch.bfloat16):
        for parameter in model.parameters():
            optimizer.state[parameter]["rate"] = 1 + 1e-5 * dist.get_rank()
        optimizer = DistributedOptimizer(optimizer, model, "fp32")
        model(torch.ones(2, 64, dtype=torch.float32)).sum().backward()
        with pytest.raises(Exception, match="other values in its optimizer's state than rank 0"):
            optimizer.step()


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
