"""What torch 2 does differently, by stand-ins where the installed one is older."""

import copy
import datetime
import pickle
import types

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
import tersewire.torch
from ranks import check_replicas, network, run_on_ranks, sgd, train
from tersewire.torch import DistributedOptimizer, LocalUpdates, register
from tersewire.torch._groups import ProcessGroup

STEPS = range(3)


class Compiled(torch.nn.Module):
    """As what torch.compile() returns."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model

    def forward(self, x):
        return self._orig_mod(x)

    def __getattr__(self, name):
        return super().__getattr__(name) if name == "_orig_mod" else getattr(self._orig_mod, name)


def refused(match, call, *arguments, **options):
    with pytest.raises(tersewire.Error, match=match) as raised:
        call(*arguments, **options)
    assert raised.value.code == tersewire.ErrorCode.kInvalidArgument


def case_a_compiled_model_has_its_own_names():
    names = {name for name, _ in network().named_parameters()}
    plain = DistributedDataParallel(network())
    register(plain, "3lc", policy="name=0.weight:int8")
    expected = train(plain, sgd(plain), STEPS)
    for model in (Compiled(DistributedDataParallel(network())),
                  DistributedDataParallel(Compiled(network()))):
        hook = register(model, "3lc", policy="name=0.weight:int8")
        assert torch.equal(train(model, sgd(model), STEPS), expected)
        assert set(hook.state_dict()["pushed"]) < names
        hook.close()
    for named in (lambda model: model, lambda model: model.named_parameters()):
        model = Compiled(network())
        optimizer = DistributedOptimizer(sgd(model), named(model), "3lc", policy="name=0.weight:int8")
        check_replicas(train(model, optimizer, STEPS))
        assert set(optimizer.averager.state_dict()["pushed"]) < names
    model = Compiled(DistributedDataParallel(network()))
    refused("this model is in DistributedDataParallel", LocalUpdates, model, sgd(model))


def case_copies_of_a_model_have_no_hook():
    model = DistributedDataParallel(network())
    hook = register(model, "fp32")
    for state in (hook, tersewire.torch.HookState("3lc")):
        model._comm_hooks = [(tersewire.torch.hook, state)]
        assert copy.deepcopy(model)._comm_hooks == [(tersewire.torch.hook, None)]
        assert pickle.loads(pickle.dumps(model))._comm_hooks[0][1] is None
    check_replicas(train(model, sgd(model), STEPS))


class OnOtherDevices(TorchFunctionMode):
    """As torch.set_default_device()."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        if function in (torch.empty, torch.full, torch.ones, torch.tensor, torch.zeros):
            options.setdefault("device", "meta")
        return function(*arguments, **options)


def case_another_default_device_changes_nothing():
    def trained(make):
        model = network()
        model, optimizer = make(model, sgd(model))
        return train(model, optimizer, STEPS)

    def hooked(model, optimizer):
        model = DistributedDataParallel(model)
        register(model, "3lc", spike_limit=2)
        return model, optimizer

    def wrapped(exchange):
        return lambda model, optimizer: (model, DistributedOptimizer(
            optimizer, model, "3lc", exchange=exchange))

    def local(model, optimizer):
        LocalUpdates(model, optimizer, every=1)
        return model, optimizer

    for make in (hooked, wrapped("all-gather"), wrapped("parameter-server"), local):
        plain = trained(make)
        with OnOtherDevices():
            assert torch.empty(0).device.type == "meta"
            assert torch.equal(trained(make), plain)


def case_a_scaler_leaves_fused_steps_to_every_rank_alike():
    for exchange in ("all-gather", "parameter-server"):
        model = network()
        optimizer = sgd(model)
        optimizer._step_supports_amp_scaling = True
        assert not DistributedOptimizer(optimizer, model, exchange=exchange)._step_supports_amp_scaling


def case_sharded_parameters_are_refused():
    model = network()
    model[0].weight.placements = ()  # as DTensor's
    for make in (lambda: register(DistributedDataParallel(model)),
                 lambda: DistributedOptimizer(sgd(model), model),
                 lambda: LocalUpdates(model, sgd(model))):
        refused("parameter '0.weight' is sharded", make)


def case_models_with_hooks_of_their_own_are_refused():
    for name, value, match in (("mixed_precision", "half", "has a hook of its own for mixed_prec"),
                               ("skip_all_reduce_unused_params", True, "leaves exchanges out"),
                               ("_use_python_reducer", True, "compiled autograd")):
        model = DistributedDataParallel(network())
        setattr(model, name, value)
        refused(match, register, model)
    model = DistributedDataParallel(network())
    model.module[0].weight._in_backward_optimizers = []
    refused("optimizers that step within the backward pass", register, model)
    model = DistributedDataParallel(torch.nn.Sequential(network(), network().double()),
                                    static_graph=True)
    refused("static_graph=True and parameters of 2 types", register, model)


def case_a_static_graph_is_none_to_the_hook():
    found = []
    for static in (False, True):
        model = DistributedDataParallel(network(), static_graph=static)
        register(model, "3lc")
        found.append(train(model, sgd(model), STEPS))
    assert torch.equal(*found)


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_case(ranks, tmp_path):
    run_on_ranks(CASES, ranks, tmp_path)


def group_with(kinds, **backend):
    """A process group of that torch, as far as it is looked at."""
    group = ProcessGroup.__new__(ProcessGroup)
    group._group = types.SimpleNamespace(
        _device_types=[torch.device(kind) for kind in kinds],
        _get_backend=lambda device: types.SimpleNamespace(**backend))
    return group


def test_a_groups_timeout_is_its_backends():
    limit = datetime.timedelta(seconds=7)
    options = types.SimpleNamespace(_timeout=limit)
    assert group_with(["cuda"], options=options)._timeout() == limit
    wrapped = types.SimpleNamespace(options=options)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    assert group_with(["cpu"], wrapped_pg=wrapped)._timeout() == limit
    assert group_with(["cpu"])._timeout() == dist.distributed_c10d.default_pg_timeout


def test_what_a_group_sends_is_where_its_backend_takes_it():
    assert group_with(["cpu", "cuda"])._sends_from_cpu() and group_with(["cpu"])._sends_from_cpu()
    assert not group_with(["cuda"])._sends_from_cpu()
