"""Ways of using torch 2: compiled models and steps, default devices, models that others shard."""

import copy
import datetime
import pickle
import types

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import _apply_optimizer_in_backward

import tersewire
import tersewire.torch
from ranks import Lines, check_replicas, flat, network, run_on_ranks, sgd, train
from tersewire.torch import (DistributedOptimizer, HookState, LocalUpdates, broadcast_parameters,
                             dry_run, hook, register)

STEPS = range(3)


def refused(match, call, *arguments, **options):
    with pytest.raises(tersewire.Error, match=match) as raised:
        call(*arguments, **options)
    assert raised.value.code == tersewire.ErrorCode.kInvalidArgument


def compiled(model):
    return torch.compile(model, backend="eager")


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train_by(step, model, optimizer, steps=STEPS):
    """As train(), with a step() of one's own."""
    return train(model, types.SimpleNamespace(zero_grad=optimizer.zero_grad, step=step), steps)


def case_a_compiled_model_has_its_own_names():
    names = {name for name, _ in network().named_parameters()}
    plain = DistributedDataParallel(network())
    register(plain, "3lc", policy="name=0.weight:int8")
    expected = train(plain, sgd(plain), STEPS)
    for model in (compiled(DistributedDataParallel(network())),
                  DistributedDataParallel(compiled(network()))):
        made = register(model, "3lc", policy="name=0.weight:int8")
        assert torch.equal(train(model, sgd(model), STEPS), expected)
        assert set(made.state_dict()["pushed"]) < names
        made.close()
    for named in (lambda model: model, lambda model: model.named_parameters()):
        model = compiled(network())
        optimizer = DistributedOptimizer(sgd(model), named(model), "3lc", policy="name=0.weight:int8")
        check_replicas(train(model, optimizer, STEPS))
        assert set(optimizer.averager.state_dict()["pushed"]) < names
    model = compiled(DistributedDataParallel(network()))
    refused("this model is in DistributedDataParallel", LocalUpdates, model, sgd(model))


def case_a_checkpointed_module_has_its_own_names():
    model = network()
    model[0] = checkpoint_wrapper(model[0])
    wrapped = DistributedDataParallel(model)
    made = register(wrapped, "3lc", policy="name=0.weight:int8")
    check_replicas(train(wrapped, sgd(wrapped), STEPS))
    assert "0.weight " in made.summary() and "_checkpoint" not in made.summary()
    assert set(made.state_dict()["pushed"]) < {name for name, _ in network().named_parameters()}
    made.close()


def case_a_step_compiled_after_register_is_as_uncompiled():
    check_compiled_with_hook(compile_first=False)


def case_a_step_compiled_before_register_is_as_uncompiled():
    check_compiled_with_hook(compile_first=True)


def check_compiled_with_hook(compile_first):
    def trained(compiles):
        model = DistributedDataParallel(network())
        optimizer = adamw(model)
        step = compiled(optimizer.step) if compiles and compile_first else optimizer.step
        made = register(model, "3lc")
        step = compiled(optimizer.step) if compiles and not compile_first else step
        assert made.rate_gain == 1
        found = train_by(step, model, optimizer)
        assert made.rate_gain > 1 and optimizer.param_groups[0]["lr"] == 0.01
        made.close()
        return found

    torch.testing.assert_close(trained(True), trained(False))


def case_a_compiled_step_of_a_distributed_optimizer_exchanges():
    for compiling in (lambda optimizer: compiled(lambda: optimizer.step()),
                      lambda optimizer: compiled(optimizer.step)):
        found = []
        for compiles in (False, True):
            model = network()
            optimizer = DistributedOptimizer(adamw(model), model, "3lc")
            step = compiling(optimizer) if compiles else optimizer.step
            found.append(train_by(step, model, optimizer))
            assert optimizer.averager.counters.steps == len(STEPS)
            optimizer.averager.close()
        check_replicas(found[1])
        torch.testing.assert_close(*found)


def case_a_step_compiled_before_distributed_optimizer_is_refused():
    for taking in (compiled, lambda step: step):
        model = network()
        optimizer = adamw(model)
        step = taking(optimizer.step)
        optimizer = DistributedOptimizer(optimizer, model)
        before = flat(model)
        refused("was taken from this optimizer before DistributedOptimizer", train_by, step, model,
                optimizer)
        assert torch.equal(flat(model), before)
        optimizer.averager.close()


def case_an_optimizer_whose_step_was_replaced_is_refused():
    optimizer = adamw(network())
    optimizer.step = compiled(optimizer.step)
    refused("step was replaced, as by torch.compile", DistributedOptimizer, optimizer)
    optimizer = adamw(network())
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    refused("a scheduler has this optimizer already", DistributedOptimizer, optimizer)


def case_rounds_of_local_updates_follow_a_compiled_step():
    for compile_first in (True, False):
        model = network()
        optimizer = adamw(model)
        step = compiled(optimizer.step) if compile_first else None
        local = LocalUpdates(model, optimizer, every=2, codec="3lc")
        step = step or compiled(optimizer.step)
        train_by(step, model, optimizer, range(6))
        assert local.rounds == 3
        check_replicas(flat(model))
        local.close()


class Outer(torch.optim.AdamW):
    """Whose step() calls that of its base, which has hooks too once there was one of the base."""

    def step(self, closure=None):
        return super().step(closure)


def case_a_step_within_another_counts_once():
    torch.optim.AdamW(network().parameters())
    assert torch.optim.AdamW.step.hooked
    model = network()
    optimizer = Outer(model.parameters(), lr=0.01)
    local = LocalUpdates(model, optimizer, every=2, codec="fp32")
    train(model, optimizer, range(4))
    assert local.rounds == 2
    local.close()


def case_hooks_of_steps_see_the_rates_that_scripts_set():
    def hooked():
        model = DistributedDataParallel(network())
        register(model, "3lc")
        return model, adamw(model)

    def wrapped():
        model = network()
        return model, DistributedOptimizer(adamw(model), model, "3lc", exchange="gradient-server")

    class Noting(torch.optim.AdamW):
        pass

    for make in (hooked, wrapped):
        seen = []

        def note(optimizer, *_):
            seen.append(optimizer.param_groups[0]["lr"])

        def reduce(optimizer, *_):
            optimizer.param_groups[0]["lr"] = 0.001

        model, optimizer = make()
        optimizer.register_step_pre_hook(note)
        optimizer.register_step_post_hook(note)
        train(model, optimizer, [0])
        optimizer.register_step_pre_hook(note)  # after ours
        optimizer.register_step_post_hook(note)
        train(model, optimizer, [1])
        assert seen == [0.01] * 6
        before = flat(model)
        optimizer.register_step_pre_hook(reduce)
        train(model, optimizer, [2])
        assert optimizer.param_groups[0]["lr"] == 0.001
        # The rate that was set, times 1.5.
        assert (flat(model) - before).abs().max() < 0.0016


def case_a_step_that_fails_leaves_the_rates():
    class Fails(torch.optim.AdamW):
        def step(self, closure=None):
            raise KeyError("lr")

    model = DistributedDataParallel(network())
    register(model, "3lc")
    optimizer = Fails(model.parameters(), lr=0.01)
    with pytest.raises(KeyError):
        train(model, optimizer, [0])
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.01
    with pytest.raises(KeyError):
        train(model, optimizer, [1])
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.01


def case_copies_of_an_optimizer_are_independent():
    model = DistributedDataParallel(network())
    register(model, "3lc")
    optimizer = adamw(model)
    train(model, optimizer, [0])
    alone = network()
    watched = adamw(alone)
    local = LocalUpdates(alone, watched, every=1)
    train(alone, watched, [0])
    for original, of in ((optimizer, model), (watched, alone)):
        again = copy.deepcopy(original)
        assert pickle.loads(pickle.dumps(original)).state_dict()["param_groups"]
        before, rounds = flat(of), local.rounds
        values = [value for group in again.param_groups for value in group["params"]]
        for value in values:
            value.grad = torch.ones_like(value)
        again.step()
        assert torch.equal(flat(of), before) and local.rounds == rounds
        assert not torch.equal(torch.cat([value.flatten() for value in values]), before)
    local.close()


def case_copies_of_a_model_have_no_hook():
    model = DistributedDataParallel(network())
    made = register(model, "fp32")
    for state in (made, HookState("3lc")):
        model._comm_hooks = [(hook, state)]
        assert copy.deepcopy(model)._comm_hooks == [(hook, None)]
        assert pickle.loads(pickle.dumps(model))._comm_hooks[0][1] is None
    check_replicas(train(model, sgd(model), STEPS))


def case_another_default_device_changes_nothing():
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

    def result(make, device):
        model = network()
        optimizer = sgd(model)
        try:
            torch.set_default_device(device)
            model, optimizer = make(model, optimizer)
            for step in STEPS:
                with torch.device("cpu"):
                    batch = torch.randn(8, 64, generator=torch.Generator().manual_seed(
                        1000 * step + dist.get_rank()))
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
        finally:
            torch.set_default_device(None)
        return flat(model)

    for make in (hooked, wrapped("all-gather"), wrapped("parameter-server"), local):
        assert torch.equal(result(make, "meta"), result(make, None))


def case_a_scaler_leaves_fused_steps_to_every_rank_alike():
    for exchange in ("all-gather", "parameter-server"):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
        assert optimizer._step_supports_amp_scaling
        assert not DistributedOptimizer(optimizer, model, exchange=exchange)._step_supports_amp_scaling


def fsdp1():
    return FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)


def fsdp2():
    model = network()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def case_sharded_models_are_refused_with_what_works():
    for make in (fsdp1, fsdp2):
        model = make()
        for call in (lambda: register(model), lambda: DistributedOptimizer(sgd(model), model),
                     lambda: LocalUpdates(model, sgd(model)), lambda: dry_run(model, ["3lc"])):
            refused(r"0\.weight' is sharded .* not supported yet; train the model in "
                    "DistributedDataParallel, or unwrapped", call)
    refused("is sharded", broadcast_parameters, fsdp2().state_dict())


def case_a_replicated_model_takes_a_hook_state():
    model = network()
    replicate(model)
    refused("makes its DistributedDataParallel in its first forward pass; call model.register_comm_hook",
            register, model)
    state = HookState("3lc")
    model.register_comm_hook(state, hook)
    train(model, sgd(model), STEPS)
    check_replicas(flat(model))
    assert state.hook.counters.steps == len(STEPS)
    state.hook.close()


def case_a_model_within_ddp_is_refused_with_what_works():
    model = network()
    around = DistributedDataParallel(model)
    refused("is in DistributedDataParallel; pass that", register, model)
    register(around).close()


def case_a_subclass_with_a_hook_of_its_own_is_refused():
    class Managed(DistributedDataParallel):  # as torchft's
        def __init__(self, model):
            super().__init__(model)
            self.register_comm_hook(None, self.all_reduce)

        @staticmethod
        def all_reduce(state, bucket):
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

    refused("this Managed has a hook already, all_reduce, and takes one", register, Managed(network()))


def case_models_with_hooks_of_their_own_are_refused():
    from torch.nn.parallel.distributed import _MixedPrecision

    model = DistributedDataParallel(network(), mixed_precision=_MixedPrecision(torch.float32))
    refused("has a hook of its own for mixed_precision", register, model)
    net = network()
    _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.1})
    refused("optimizers that step within the backward pass", register, DistributedDataParallel(net))
    model = DistributedDataParallel(network(), skip_all_reduce_unused_params=True)
    refused("leaves exchanges out", register, model)
    model = DistributedDataParallel(torch.nn.Sequential(network(), network().double()),
                                    static_graph=True)
    refused("static_graph=True and parameters of 2 types", register, model)


def case_the_python_reducer_is_refused():
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        model = DistributedDataParallel(network())
    refused("'python_reducer', which calls no hook; set it to 'ddp_optimizer'", register, model)


def case_parameters_whose_exchange_is_delayed_are_exact():
    net = network()
    first = net[0].weight
    model = DistributedDataParallel(net, delay_all_reduce_named_params=[("0.weight", first)],
                                    param_to_hook_all_reduce=net[2].bias)
    made = register(model, "3lc")
    for step in STEPS:
        train(model, sgd(model), [step])
    for parameter in model.module[2].parameters():
        check_replicas(parameter.grad)
    assert "0.weight" not in made.summary()
    made.close()


def case_a_model_whose_exchanges_are_all_delayed_is_refused():
    net = torch.nn.Sequential(torch.nn.Linear(64, 10))
    net[0].bias.requires_grad_(False)
    model = DistributedDataParallel(net, delay_all_reduce_named_params=[("0.weight", net[0].weight)],
                                    param_to_hook_all_reduce=net[0].weight)
    refused("delay_all_reduce_named_params= of all parameters", register, model)


def case_a_static_graph_is_none_to_the_hook():
    found = []
    for static in (False, True):
        model = DistributedDataParallel(network(), static_graph=static)
        register(model, "3lc")
        found.append(train(model, sgd(model), STEPS))
    assert torch.equal(*found)


def case_a_group_of_one_rank_says_so_once():
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    tersewire.torch._tensors.say_once.cache_clear()
    with Lines() as lines:
        for _ in range(2):
            model = DistributedDataParallel(network(), process_group=alone)
            register(model, "fp32").close()
    assert [line for line in lines if "has one rank, which trains alone" in line] == lines
    assert len(lines) == 1


def case_muon_beside_adam_leaves_adams_settings():
    model = DistributedDataParallel(network())
    made = register(model, "3lc")
    weights = [value for value in model.parameters() if value.dim() == 2]
    others = [value for value in model.parameters() if value.dim() != 2]
    seen = []
    optimizers = (noting(torch.optim.Muon, seen)(weights, lr=0.01),
                  noting(torch.optim.AdamW, seen)(others, lr=0.01))
    both = types.SimpleNamespace(
        zero_grad=lambda: [one.zero_grad() for one in optimizers],
        step=lambda: [one.step() for one in optimizers])
    check_replicas(train(model, both, range(2)))
    assert seen == [0.01, pytest.approx(0.01 * made.rate_gain)] * 2 and made.rate_gain > 1
    made.close()


def noting(kind, seen):
    def step(self, closure=None):
        seen.append(self.param_groups[0]["lr"])
        return kind.step(self, closure)

    return type(f"Noting{kind.__name__}", (kind,), {"step": step})


def case_optimizers_of_whole_tensors_have_no_shares():
    for make in (torch.optim.Muon, torch.optim.Adafactor, torch.optim.SparseAdam):
        model = torch.nn.Sequential(torch.nn.Linear(64, 300, bias=False))
        refused(f"a {make.__name__} cannot update parts of '0.weight', .*use exchange gradient-server",
                DistributedOptimizer, make(model.parameters(), lr=0.01), model, exchange="parameter-server")


class InPython(dist.ProcessGroup):
    """A process group written in Python, around another."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self._inner = inner

    def getBackendName(self):
        return "in-python"

    def allgather(self, *arguments):
        return self._inner.allgather(*arguments)

    def allreduce(self, *arguments):
        return self._inner.allreduce(*arguments)

    def broadcast(self, *arguments):
        return self._inner.broadcast(*arguments)

    def barrier(self, *arguments):
        return self._inner.barrier(*arguments)


def case_a_group_written_in_python_works_and_says_no_limit():
    dist.Backend.register_backend(
        "in-python", lambda store, rank, ranks, timeout: InPython(
            dist.ProcessGroupGloo(store, rank, ranks, timeout)), devices=["cpu"])
    group = dist.new_group(backend="in-python")
    tersewire.torch._tensors.say_once.cache_clear()
    model = network()
    with Lines() as lines:
        broadcast_parameters(model.state_dict(), group=group)
        optimizer = DistributedOptimizer(sgd(model), model, "fp32", group=group)
    assert "the process group does not say its time limit, so a rank waits" in " ".join(lines)
    expected = train(*with_plain_group(), STEPS)
    assert torch.equal(train(model, optimizer, STEPS), expected)
    optimizer.averager.close()


def with_plain_group():
    model = network()
    return model, DistributedOptimizer(sgd(model), model, "fp32")


def case_time_limits_beyond_the_librarys_are_its_longest():
    for limit in (datetime.timedelta(days=365), datetime.timedelta(seconds=2**31)):
        group = dist.new_group(timeout=limit)
        model = DistributedDataParallel(network(), process_group=group)
        made = register(model, "fp32")
        check_replicas(train(model, sgd(model), [0]))
        made.close()
    model = DistributedDataParallel(network())
    register(model, "fp32", timeout=datetime.timedelta.max).close()


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, ranks, tmp_path):
    run_on_ranks([case], ranks, tmp_path)
