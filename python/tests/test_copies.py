"""Copies and pickles of optimizers and models that train compressed."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
from ranks import network, run_on_ranks, train
from tersewire.torch import DistributedOptimizer, LocalUpdates, register


class Keeping(torch.optim.AdamW):
    """Its copies and pickles have all of it, also what torch's leave out."""

    def __getstate__(self):
        return dict(vars(self))

    def __setstate__(self, state):
        vars(self).update(state)


class Around(torch.optim.Optimizer):
    """As Accelerate's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def __getstate__(self):
        return dict(vars(self))

    def __setstate__(self, state):
        vars(self).update(state)


OPTIMIZERS = {
    "plain": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "keeping": lambda model: Keeping(model.parameters(), lr=0.01),
    "around": lambda model: Around(torch.optim.AdamW(model.parameters(), lr=0.01))}


def hooked(optimizer):
    model = DistributedDataParallel(network())
    made = OPTIMIZERS[optimizer](model)
    register(model, "3lc")
    train(model, made, range(2))
    return model, made


def watched(optimizer):
    model = network()
    made = OPTIMIZERS[optimizer](model)
    local = LocalUpdates(model, made, every=2, codec="fp32")
    train(model, made, range(3))
    return local, model, made


def parameters_of(optimizer):
    return [one for group in optimizer.param_groups for one in group["params"]]


def check_independent(optimizer, copied):
    """A copy's step changes the copy as one of torch's would, and nothing else."""
    own = parameters_of(optimizer)
    before = copy.deepcopy(own)
    taken = torch.optim.AdamW(copy.deepcopy(parameters_of(copied)), lr=0.01)
    taken.load_state_dict(copy.deepcopy(getattr(optimizer, "optimizer", optimizer).state_dict()))
    for one, other in zip(parameters_of(copied), parameters_of(taken)):
        one.grad, other.grad = torch.ones_like(one), torch.ones_like(other)
    copied.step()
    taken.step()
    assert all(map(torch.equal, own, before))
    assert all(map(torch.equal, parameters_of(copied), parameters_of(taken)))


def case_a_copy_of_an_optimizer_with_a_hook_is_independent():
    for optimizer in OPTIMIZERS:
        _model, made = hooked(optimizer)
        check_independent(made, copy.deepcopy(made))


def case_a_pickled_optimizer_with_a_hook_is_independent():
    for optimizer in OPTIMIZERS:
        _model, made = hooked(optimizer)
        check_independent(made, pickle.loads(pickle.dumps(made)))


def case_a_copy_of_an_optimizer_with_local_updates_is_independent():
    for optimizer in OPTIMIZERS:
        local, _model, made = watched(optimizer)
        rounds = local.rounds
        for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            check_independent(made, copied)
        assert local.rounds == rounds  # nor does a copy's step count


def case_a_copy_can_be_hooked_and_watched_itself():
    model, made = hooked("keeping")
    copied_model, copied = copy.deepcopy((model.module, made))
    LocalUpdates(copied_model, copied, every=1, codec="fp32")
    train(copied_model, copied, range(2))
    again = DistributedDataParallel(copied_model)
    register(again, "3lc")
    train(again, copied, range(2))


def case_a_copied_or_pickled_model_has_no_hook():
    model, _made = hooked("plain")
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        model.zero_grad()
        copied.module(torch.ones(1, 64)).sum().backward()
        assert all(one.grad is None for one in model.parameters())
        register(copied, "3lc")


def case_a_distributed_optimizer_is_not_copied():
    model = network()
    optimizer = DistributedOptimizer(OPTIMIZERS["plain"](model), model)
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(tersewire.Error, match="cannot be copied or pickled"):
            call(optimizer)
    wrapped = Around(optimizer)
    with pytest.raises(tersewire.Error, match="cannot be copied or pickled"):
        copy.deepcopy(wrapped)


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
