"""DistributedOptimizer and parameters that no rank uses in a step: they stay as they are, as with DDP."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from ranks import Lines, check_replicas, run_on_ranks
from tersewire.torch import DistributedOptimizer


class Two(torch.nn.Module):
    """Uses the layers that it is told to."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.one, self.other = torch.nn.Linear(40, 40), torch.nn.Linear(40, 40)

    def forward(self, x, uses):
        return sum(layer(x).square().mean() for layer, use in zip((self.one, self.other), uses) if use)


def trained(uses, wrap=True, codec="fp32", make=torch.optim.AdamW, decay=0.1, **settings):
    """Parameters after steps, each of which uses these layers, by rank or alike."""
    model = run = Two()
    optimizer = make(model.parameters(), lr=0.01, weight_decay=decay)
    if wrap:
        DistributedOptimizer(optimizer, model, codec, **settings)
    else:
        run = DistributedDataParallel(model, find_unused_parameters=True)
    numbers = torch.Generator().manual_seed(dist.get_rank())
    for used in uses:
        used = used[dist.get_rank()] if isinstance(used[0], tuple) else used
        optimizer.zero_grad()
        run(torch.randn(8, 40, generator=numbers), used).backward()
        optimizer.step()
    check_replicas(model.one.weight)
    check_replicas(model.other.weight)
    return model


def check_as_ddp(uses, **settings):
    expected = trained(uses, wrap=False)
    for one, other in zip(trained(uses, **settings).parameters(), expected.parameters()):
        torch.testing.assert_close(one, other)
    return expected


def case_a_layer_that_is_never_used_stays_as_it_is():
    assert torch.equal(check_as_ddp([(1, 0)] * 3).other.weight, Two().other.weight)


def case_a_layer_that_is_never_used_stays_as_it_is_where_owners_update():
    check_as_ddp([(1, 0)] * 3, exchange="parameter-server")


def case_owners_cannot_tell_and_say_so():
    with Lines() as lines:
        trained([(1, 0), (1, 1), (1, 1)], exchange="parameter-server")
        assert not any("has no gradient in this step" in line for line in lines)
        trained([(1, 1), (1, 0)], exchange="parameter-server")
    assert any("'other.weight' has no gradient in this step" in line for line in lines)


def case_layers_that_take_turns_stay_as_they_are_in_the_others_steps():
    for exchange in ("gradient-server", "all-gather", "ring"):
        check_as_ddp([(1, 1), (1, 0), (0, 1), ((0, 1), (1, 0)), (0, 1)], exchange=exchange)


def case_what_residuals_hold_waits_for_the_next_use():
    def weight_after(uses):
        made = trained(uses, codec="3lc:s=1.75,lead=1", pull_codec="3lc:s=1.75,lead=1",
                       exchange="gradient-server", make=torch.optim.SGD, decay=0)
        return made.other.weight

    assert torch.equal(weight_after([(1, 1)]), weight_after([(1, 1), (1, 0), (1, 0)]))


def case_a_layer_that_one_rank_uses_is_trained_on_all():
    check_as_ddp([((1, 1), (1, 0)), ((1, 0), (1, 1))])


def case_a_layer_that_is_used_later_is_trained_from_then_on():
    check_as_ddp([(1, 0), (1, 0), (1, 1), (1, 1)])


def case_gradients_that_no_rank_has_are_none_after_synchronize():
    model = Two()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model, "3lc")
    model(torch.ones(8, 40), (1, 0)).backward()
    optimizer.synchronize()
    assert model.other.weight.grad is None and model.one.weight.grad.any()


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
