"""What scripts do to models, groups and optimizers that already train, or cannot: found at once."""

import gc

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer

import tersewire
from ranks import Lines, check_replicas, network, run_on_ranks, sgd, train
from tersewire.torch import (DistributedOptimizer, HookState, LocalUpdates, broadcast_parameters,
                             hook, register)


def hooked():
    model = DistributedDataParallel(network())
    return model, register(model, "3lc")


def refused(match, call, *arguments, **options):
    with pytest.raises(tersewire.Error, match=match):
        call(*arguments, **options)


def step(model):
    train(model, sgd(model), range(1))


def case_a_replaced_parameter_is_found_in_the_next_step():
    model, _hook = hooked()
    step(model)
    model.module[0].weight = torch.nn.Parameter(torch.zeros(300, 64))
    refused("parameter '0.weight' was frozen, or not there", step, model)


def case_a_model_of_which_all_is_assigned_is_found_in_the_next_step():
    model, _hook = hooked()
    step(model)
    model.module.load_state_dict(network().state_dict(), assign=True)
    refused("was frozen, or not there", step, model)


def case_an_added_parameter_is_found_in_the_next_step():
    model, _hook = hooked()
    step(model)
    model.module.append(torch.nn.Linear(10, 10))
    refused("parameter '3.weight' was frozen, or not there", step, model)


def case_a_changed_model_is_tested_without_a_word():
    model, _hook = hooked()
    model.module.append(torch.nn.Linear(10, 10))
    with torch.no_grad():
        model(torch.ones(1, 64))


def case_a_closed_hook_takes_no_step():
    model, made = hooked()
    step(model)
    made.close()
    refused("close it after the last step", step, model)


def case_closed_local_updates_take_no_step():
    model = network()
    optimizer = sgd(model)
    local = LocalUpdates(model, optimizer, every=100)
    train(model, optimizer, range(1))
    local.close()
    refused("close it after the last step", train, model, optimizer, range(1))


def case_a_closed_distributed_optimizer_takes_no_step():
    model = network()
    optimizer = DistributedOptimizer(sgd(model), model)
    train(model, optimizer, range(1))
    optimizer.averager.close()
    refused("close it after the last step", train, model, optimizer, range(1))


def case_a_device_mesh_is_no_group_and_its_group_is():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = network()
    for call in (lambda group: DistributedOptimizer(sgd(model), model, group=group),
                 lambda group: LocalUpdates(model, sgd(model), group=group),
                 lambda group: broadcast_parameters(model.state_dict(), group=group)):
        refused("a DeviceMesh has a group for each .* mesh.get_group\\(\\)", call, mesh)
    check_replicas(train(model, DistributedOptimizer(sgd(model), model, group=mesh.get_group()), range(2)))


def case_a_zero_redundancy_optimizer_is_refused_when_it_is_wrapped():
    model = network()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    refused("ZeroRedundancyOptimizer .* exchange=\"parameter-server\"", DistributedOptimizer, optimizer, model)


def case_a_zero_redundancy_optimizer_trains_with_a_hook():
    model, _hook = hooked()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    check_replicas(train(model, optimizer, range(3)))


def warnings_of(use):
    with Lines() as lines:
        use()
        gc.collect()
    return [line for line in lines if "nothing was compressed" in line]


def case_a_hook_that_is_never_used_warns_at_its_end():
    assert len(warnings_of(lambda: hooked() and None)) == 1


def case_a_state_that_nobody_registers_warns_at_its_end():
    warned = warnings_of(lambda: HookState("3lc") and None)
    assert len(warned) == 1 and "Lightning" in warned[0]


def case_hooks_that_are_used_or_closed_do_not_warn():
    def use():
        model, _hook = hooked()
        step(model)
        hooked()[1].close()
        model = DistributedDataParallel(network())
        model.register_comm_hook(HookState("3lc"), hook)
        step(model)

    assert not warnings_of(use)


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, tmp_path):
    run_on_ranks([case], 2, tmp_path)
