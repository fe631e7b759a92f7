"""Optimizers that compute several gradients in a step, by a closure or between two calls."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
from ranks import check_replicas, flat, network, run_on_ranks, train
from tersewire.torch import DistributedOptimizer, LocalUpdates, register

STEPS = 30


class Sam(torch.optim.Optimizer):
    """Steps by the gradient at where the first one leads (Foret et al., 2021)."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.base = torch.optim.SGD(self.param_groups, lr=lr)

    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        if closure is not None:
            self.climb()
            torch.enable_grad()(closure)()
        self.descend()
        return loss

    @torch.no_grad()
    def climb(self):
        parameters = self.param_groups[0]["params"]
        norm = torch.stack([one.grad.norm() for one in parameters]).norm()
        self._climbed = [0.05 * one.grad / norm for one in parameters]
        for parameter, by in zip(parameters, self._climbed):
            parameter.add_(by)

    @torch.no_grad()
    def descend(self):
        for parameter, by in zip(self.param_groups[0]["params"], getattr(self, "_climbed", ())):
            parameter.sub_(by)
        self.base.step()


def lbfgs(parameters):
    # On all ranks alike, whatever each rank's loss.
    return torch.optim.LBFGS(parameters, lr=0.3, max_iter=3, tolerance_grad=0, tolerance_change=0)


def sam(parameters):
    return Sam(parameters, lr=0.2)


def trained(model, optimizer, step=None):
    """The share of the loss that is left after steps that each see all of their rank's data."""
    numbers = torch.Generator().manual_seed(dist.get_rank())
    inputs = torch.randn(64, 64, generator=numbers)
    targets = inputs[:, :1].tanh()

    def closure():
        optimizer.zero_grad()
        loss = (model(inputs)[:, :1] - targets).square().mean()
        loss.backward()
        return loss

    def loss():
        with torch.no_grad():
            value = (getattr(model, "module", model)(inputs)[:, :1] - targets).square().mean()
            dist.all_reduce(value)
        return value.item()

    before = loss()
    for _ in range(STEPS):
        if step is None:
            optimizer.step(closure)
        else:
            step(closure)
    check_replicas(flat(model))
    return loss() / before


def in_two_calls(optimizer):
    def step(closure):
        closure()
        optimizer.climb()
        closure()
        optimizer.descend()

    return step


def with_hook(make, codec, in_calls=False):
    """What trained() returns, with a hook unless the codec is None."""
    model = DistributedDataParallel(network())
    optimizer = make(model.parameters())
    made = None if codec is None else register(model, codec)
    loss = trained(model, optimizer, in_two_calls(optimizer) if in_calls else None)
    if made is not None:
        assert made.counters.steps == STEPS * (3 if make is lbfgs else 2)
        made.close()
    return loss


def check_learns_as_plain(make, **options):
    plain = with_hook(make, None, **options)
    for codec, tolerance in ("fp32", 0), ("int8", 0.02), ("3lc", 0.2):
        assert with_hook(make, codec, **options) <= plain + tolerance


def case_lbfgs_with_a_hook():
    check_learns_as_plain(lbfgs)


def case_sam_with_a_hook():
    check_learns_as_plain(sam)


def case_sam_in_two_calls_with_a_hook():
    check_learns_as_plain(sam, in_calls=True)


def case_only_a_step_applies_a_gradient():
    """What a pass left in residuals is undone where parameters were moved and moved back, as SAM does."""
    ends = []
    for climbs in False, True:
        model = DistributedDataParallel(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        made = register(model, "3lc:s=1.75")
        for step in range(4):
            if climbs and step:
                optimizer.zero_grad()
                model(torch.ones(8, 64)).square().mean().backward()
                with torch.no_grad():
                    before = [parameter.clone() for parameter in model.parameters()]
                    for parameter, was in zip(model.parameters(), before):
                        parameter.add_(parameter.grad)
                        parameter.copy_(was)
            train(model, optimizer, [step])
        ends.append(flat(model))
        made.close()
    assert torch.equal(*ends)


def case_local_updates():
    for make in lbfgs, sam:
        model = network()
        optimizer = make(model.parameters())
        updates = LocalUpdates(model, optimizer, 3, codec="int8")
        trained(model, optimizer)
        assert updates.counters.steps == STEPS // 3
        updates.close()


def case_an_optimizer_averages_one_gradient_a_step():
    model = network()
    with pytest.raises(tersewire.Error, match="a LBFGS computes several gradients in a step"):
        DistributedOptimizer(lbfgs(model.parameters()), model)
    optimizer = DistributedOptimizer(sam(model.parameters()), model, "fp32")
    with pytest.raises(tersewire.Error, match="a Sam computes several gradients in a step, .*register"):
        trained(model, optimizer)
    optimizer.averager.close()


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
