"""DistributedOptimizer, on 1, 2 and 3 processes with Gloo."""

import contextlib
import copy
import datetime
import functools
import gc
import math
import os
import pickle
import threading
import time
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
import tersewire.torch
from ranks import check_replicas, flat, on_all_ranks, run_on_ranks, start_ranks
from tersewire.torch import DistributedOptimizer, _groups, broadcast_parameters
from tersewire.torch._spikes import Norms

STEPS = 5


def network(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(256, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))


def momentum(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **options)


def batch(step, rank):
    numbers = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, 1, 8, 8, generator=numbers)


def loss(model, step, rank):
    return model(batch(step, rank)).square().mean()


def train(model, optimizer, steps=range(STEPS)):
    for step in steps:
        optimizer.zero_grad()
        loss(model, step, dist.get_rank()).backward()
        optimizer.step()
    return flat(model)


def reference():
    """One process that takes the mean over all ranks' losses."""
    model = network()
    optimizer = momentum(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(dist.get_world_size()):
            (loss(model, step, rank) / dist.get_world_size()).backward()
        optimizer.step()
    return flat(model)


class Wrapper(torch.optim.Optimizer):
    """Of another optimizer, as Accelerate's."""

    def __init__(self, make, parameters, lr):
        self.optimizer = make(parameters, lr=lr)
        super().__init__(self.optimizer.param_groups, {"lr": lr})

    def step(self):
        self.optimizer.step()


def case_means_for_adam_keep_no_residual():
    """What a server delivers late makes Adam's steps smaller; SGD learns more with it."""
    def keeps_one(make=torch.optim.AdamW, codec="3lc", **settings):
        model = network()
        optimizer = DistributedOptimizer(
            make(model.parameters(), lr=0.001), model.named_parameters(), codec, policy="",
            exchange="gradient-server", **settings)
        check_replicas(train(model, optimizer))
        state = optimizer.averager.state_dict()
        assert state["pushed"]
        return any(values.any() for values in state["pulled"].values())

    assert not keeps_one() and not keeps_one(torch.optim.RMSprop)
    assert keeps_one(torch.optim.SGD) and keeps_one(functools.partial(Wrapper, torch.optim.SGD))
    assert not keeps_one(functools.partial(Wrapper, torch.optim.Adam))
    assert keeps_one(codec="3lc:ef=on") and keeps_one(pull_codec="3lc") and keeps_one(codec="topk")
    chosen = {"codec": "auto", "replay_decisions": [{"step": 1, "codec": "3lc"}]}
    assert not keeps_one(**chosen) and keeps_one(torch.optim.SGD, **chosen)


def case_the_rates_of_adam_are_the_codecs():
    rates = []

    def noting(kind):
        class Noting(kind):
            def step(self, closure=None):
                rates.append(self.param_groups[0]["lr"])
                return super().step(closure)

        return Noting

    def trained(exchange, codec="3lc", make=torch.optim.AdamW, lr=0.01, **options):
        """The model, and the rate of the last step."""
        model = network()
        optimizer = DistributedOptimizer(noting(make)(model.parameters(), lr=lr), model, codec,
                                         exchange=exchange, **options)
        result = train(model, optimizer)
        assert optimizer.param_groups[0]["lr"] == lr
        check_replicas(result)
        return result, rates[-1], optimizer.averager.rate_gain

    for exchange in ("gradient-server", "parameter-server"):
        gained, rate, gain = trained(exchange)
        assert (rate, gain) == (0.015, 1.5)
        plain, rate, gain = trained(exchange, lr=0.015, rate_gain=1)
        assert (rate, gain) == (0.015, 1) and torch.equal(gained, plain)
    assert trained("all-gather", "3lc:s=1.75")[1:] == (0.015, 1.5)
    # Steps whose gradients are sent as they are keep theirs. A share takes them part by part.
    for exchange in ("gradient-server", "parameter-server"):
        rates.clear()
        trained(exchange, warm_up_steps=STEPS - 1)
        rates[:] = [rate for rate in rates if rate != 0.1]  # with which optimizers are tried
        steps = [rates[begin::len(rates) // STEPS] for begin in range(len(rates) // STEPS)]
        assert steps and all(of_part == [0.01] * (STEPS - 1) + [0.015] for of_part in steps)
    assert trained("all-gather", "int8")[1:] == (0.01, 1)
    assert trained("all-gather", make=torch.optim.SGD)[1:] == (0.01, 1)
    assert trained("parameter-server", make=torch.optim.SGD, rate_gain=2)[1:] == (0.02, 2)
    for exchange in ("gradient-server", "parameter-server"):
        rate = torch.tensor(0.01)
        trained(exchange, make=torch.optim.SGD, lr=rate, rate_gain=2)
        assert rate.item() == pytest.approx(0.01) and rates[-1].item() == pytest.approx(0.02)


def spiky(optimizer, model, amplitudes):
    """Exchanges one gradient at each of these; returns their sum, of what came and what ranks keep."""
    names, values = zip(*((name, p.numel()) for name, p in model.named_parameters()))
    direction = torch.randn(sum(values), generator=torch.Generator().manual_seed(1))
    came = torch.zeros_like(direction)
    for amplitude in amplitudes:
        mean = amplitude * direction
        optimizer.averager.average(mean)
        came += mean
    pushed = optimizer.averager.state_dict()["pushed"]
    kept = torch.cat([pushed[name].flatten() for name in names])
    dist.all_reduce(kept)
    came += kept / dist.get_world_size()
    return float(came @ direction / (direction @ direction)), mean


def case_spikes_stay_out_of_residuals():
    """With Adam: what scripts clip after the exchange would come back for many steps."""
    ranks = dist.get_world_size()
    amplitudes = [1.0] * 12
    amplitudes[8] = 100.0 if dist.get_rank() == 0 else 1.0

    def expect(at_the_spike, make=torch.optim.AdamW, **options):
        model = network()
        optimizer = DistributedOptimizer(make(model.parameters(), lr=0.001), model, policy="",
                                         exchange="all-gather", **options)
        found, _ = spiky(optimizer, model, amplitudes)
        assert found == pytest.approx(11 + (ranks - 1 + at_the_spike) / ranks, rel=1e-3)

    expect(4)
    expect(20, spike_limit=20)
    expect(100, spike_limit=math.inf)
    expect(100, torch.optim.SGD)
    expect(4, torch.optim.SGD, spike_limit=4)
    expect(100, warm_up_steps=9)  # sent as it is
    for wrong in (0.5, math.nan, "4"):
        with pytest.raises(tersewire.Error, match="spike_limit=.* is not valid; pass a number from 1"):
            expect(4, spike_limit=wrong)


def case_norms_are_part_of_the_state():
    def made(state=None):
        model = network()
        optimizer = DistributedOptimizer(torch.optim.AdamW(model.parameters()), model,
                                         exchange="all-gather")
        if state:
            optimizer.averager.load_state_dict(state)
        return optimizer, model

    whole = made()
    spiky(*whole, [1] * 8)
    state = whole[0].averager.state_dict()
    without = {name: value for name, value in state.items() if name != "norms"}
    found, resumed, forgotten = (spiky(*each, [100])[1]
                                 for each in (whole, made(state), made(without)))
    assert torch.equal(found, resumed) and not torch.equal(found, forgotten)


def test_a_spike_is_far_above_the_median_of_the_last_norms():
    def limited(amplitudes, limit=4.0):
        norms, found = Norms(2), []
        for amplitude in amplitudes:
            gradient = torch.tensor([0.6, -0.8]) * amplitude
            norms.limit([(1, gradient)], torch.tensor([1.0, limit]))
            found.append(-float(gradient[1]) / 0.8)
        return pytest.approx(found, nan_ok=True)

    assert limited([1, 5, 1, 3]) == [1, 4, 1, 3]
    assert limited([1, 5, 1, 3], math.inf) == [1, 5, 1, 3]
    # Where the training has come to other gradients, that is no spike.
    assert limited([1] * 9 + [50] * 6) == [1] * 9 + [4] * 5 + [50]
    assert limited([1] * 9 + [0.001] * 6 + [1]) == [1] * 9 + [0.001] * 6 + [0.004]
    # Of a parameter that was not used nothing is learnt, nor of what is not finite.
    assert limited([1] * 3 + [0] * 20 + [9]) == [1] * 3 + [0] * 20 + [4]
    assert limited([1, math.inf, 9, math.nan, 9]) == [1, math.inf, 4, math.nan, 4]


def case_fp32_is_training_on_all_batches():
    for exchange in ("gradient-server", "all-gather", "ring", "all-reduce", "parameter-server"):
        model = network()
        optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32",
                                         exchange=exchange)
        found = train(model, optimizer)
        check_replicas(found)
        torch.testing.assert_close(found, reference())
        assert optimizer.averager.counters.steps == STEPS
        optimizer.averager.close()


def case_compressed_replicas_are_equal():
    for codec, exchange in (("3lc:s=1.75", "gradient-server"), ("terngrad", "all-reduce"),
                            ("inceptionn", "ring"), ("3lc:ef=21", "parameter-server")):
        model = network()
        optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), codec,
                                         exchange=exchange)
        check_replicas(train(model, optimizer))
        counters = optimizer.averager.counters
        if dist.get_world_size() > 1:
            assert 0 < counters.sent_bytes < counters.gradient_bytes
        assert "3.weight" in optimizer.averager.summary()
        optimizer.averager.close()


def case_it_is_the_same_optimizer():
    model = network()
    inner = momentum(model)
    optimizer = DistributedOptimizer(inner)
    assert optimizer is inner and isinstance(optimizer, torch.optim.SGD)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train(model, optimizer, [0])
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
    assert optimizer.averager.counters.steps == 1
    assert "parameter 0" in optimizer.averager.summary()
    optimizer.averager.close()


def case_gradients_are_clipped_after_synchronize():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")
    loss(model, 0, dist.get_rank()).backward()
    optimizer.synchronize()
    means = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    check_replicas(means)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.001)
    with optimizer.skip_synchronize():
        optimizer.step()
    assert optimizer.averager.counters.steps == 1
    train(model, optimizer, [1])
    assert optimizer.averager.counters.steps == 2
    optimizer.averager.close()


def case_a_backward_pass_after_synchronize_is_exchanged():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")
    for zeroed in (True, False):
        loss(model, 0, dist.get_rank()).backward()
        optimizer.synchronize()  # and no step
        if zeroed:
            optimizer.zero_grad()
        loss(model, 1, dist.get_rank()).backward()
        optimizer.step()
        check_replicas(flat(model))
        optimizer.zero_grad()
    optimizer.averager.close()


def case_a_rank_that_skips_a_step_is_named():
    """Before synchronize(), as a GradScaler does without it, or between that and step()."""
    ranks = dist.get_world_size()
    if ranks == 1:
        return
    for synchronized in (False, True):
        model = network()
        optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
        with pytest.raises(tersewire.Error, match="worker 1 has skipped more steps than worker"):
            for step in range(6):
                if step == 2:
                    dist.barrier()  # or one that is still in the step before ends there
                # All throw some away first, as who trains two networks in turns does.
                loss(model, step, dist.get_rank()).backward()
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                loss(model, step, dist.get_rank()).backward()
                if synchronized:
                    optimizer.synchronize()
                if step != 2 or dist.get_rank() != 1:
                    optimizer.step()
                optimizer.zero_grad()
        assert step in (2, 3, 4)
        optimizer.averager.close()


class Fails(torch.optim.Adam):
    """Once, as where memory for the optimizer's state is short."""

    fails = False

    def step(self, closure=None):
        fails, self.fails = self.fails, False
        if fails:
            raise MemoryError
        super().step(closure)


def case_a_step_that_fails_on_one_rank_is_noticed():
    """Where its script catches the exception and goes on."""
    if dist.get_world_size() == 1:
        return
    model = network()
    optimizer = DistributedOptimizer(Fails(model.parameters()), model)
    with pytest.raises(tersewire.Error, match="worker 1 has skipped more steps than worker"):
        for step in range(3):
            optimizer.fails = step == 1 and dist.get_rank() == 1
            with contextlib.suppress(MemoryError):
                train(model, optimizer, [step])
    optimizer.averager.close()


def case_a_step_that_failed_is_taken_again():
    model = network()
    optimizer = DistributedOptimizer(Fails(model.parameters()), model)
    optimizer.fails = dist.get_rank() == 0
    loss(model, 0, dist.get_rank()).backward()
    with contextlib.suppress(MemoryError):
        optimizer.step()
    if dist.get_rank() == 0:
        optimizer.step()
    check_replicas(train(model, optimizer, range(1, STEPS)))
    assert optimizer.averager.counters.steps == STEPS
    optimizer.averager.close()


def case_replicas_that_begin_apart_are_refused():
    if dist.get_world_size() == 1:
        return
    for options in ({}, {"exchange": "parameter-server"}):
        model = network(seed=dist.get_rank())
        optimizer = tersewire.torch.DistributedOptimizer(momentum(model), model, "int8", **options)
        loss(model, 0, dist.get_rank()).backward()
        with pytest.raises(tersewire.Error, match="rank 1 begins with other parameters than rank 0"):
            optimizer.step()
        optimizer.averager.close()


def case_what_is_beside_the_parameters_is_alike_too():
    if dist.get_world_size() == 1:
        return
    for what in ("parameters", "values in its optimizer's state"):
        model = network()
        optimizer = momentum(model)
        if what == "parameters":
            model[0].weight.requires_grad_(False).mul_(1 + dist.get_rank())
            optimizer = torch.optim.SGD(list(model.parameters())[1:], lr=0.05)
        elif dist.get_rank() == 1:
            train(model, optimizer, range(1))
            model.load_state_dict(network().state_dict())
        optimizer = tersewire.torch.DistributedOptimizer(optimizer, model.named_parameters())
        loss(model, 0, dist.get_rank()).backward()
        with pytest.raises(tersewire.Error, match=f"rank 1 begins with other {what} than rank 0"):
            optimizer.step()
        optimizer.averager.close()


def interrupt(*_):
    raise KeyboardInterrupt


def case_there_is_no_state_of_a_step_that_was_interrupted():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
    train(model, optimizer, range(1))
    optimizer.averager._end_average = interrupt
    with pytest.raises(KeyboardInterrupt):
        train(model, optimizer, range(1, 2))
    with pytest.raises(tersewire.Error, match="no state to save, .* of step 2 has begun"):
        optimizer.averager.state_dict()
    dist.barrier()  # others' steps must not end by close()
    optimizer.averager.close()


def case_all_ranks_may_skip_a_step():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
    for step in range(6):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss(model, step, dist.get_rank()).backward()
        if step == 4:
            optimizer.synchronize()
        if step not in (1, 2, 4):
            optimizer.step()
    assert optimizer.averager.counters.steps == 4
    check_replicas(flat(model))
    optimizer.averager.close()


def case_all_ranks_may_skip_a_step_in_which_one_has_no_gradient():
    """All of a rank's examples are beyond the margin, or it trains another head in each step."""
    rank = dist.get_rank()
    for set_to_none in (False, True):
        for averages in (True, False):
            model = torch.nn.ModuleList([network() for _ in range(2)])
            optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
            for step in range(6):
                optimizer.zero_grad(set_to_none=set_to_none)
                head = model[(step + rank) % 2]
                (loss(head, step, rank) * (0 if step == 2 and rank == 0 else 1)).backward()
                if step in (2, 3):
                    if averages and step == 3:
                        optimizer.synchronize()
                    continue
                optimizer.step()
            check_replicas(flat(model))
            optimizer.averager.close()


def case_gradients_that_are_computed_beside_are_none_that_was_skipped():
    """By torch.autograd.grad() on one rank, and where a backward pass fails before or in a step."""
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise MemoryError

    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
    for step in range(6):
        optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            torch.autograd.grad(loss(model, step, 0), list(model.parameters()))
        if step in (2, 4) and dist.get_rank() == 0:
            with pytest.raises(MemoryError):
                model[5](Fails.apply(model[:5](torch.ones(1, 1, 8, 8)))).sum().backward()
        else:
            loss(model, step, dist.get_rank()).backward()
        if step != 2:  # which all skip
            optimizer.step()
    check_replicas(flat(model))
    optimizer.averager.close()


def case_hooks_of_parameters_go_with_the_optimizer():
    model = network()
    for _ in range(3):
        optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
        assert all(len(parameter._backward_hooks) == 2 for parameter in model.parameters())
        optimizer.averager.close()
        del optimizer
        gc.collect()
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def case_a_closure_is_called_first():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")

    def closure():
        value = loss(model, 0, dist.get_rank())
        value.backward()
        return value

    assert optimizer.step(closure).item() > 0
    check_replicas(flat(model))
    optimizer.averager.close()


def case_accumulated_gradients_are_exchanged_once():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")
    for step in range(3):
        loss(model, step, dist.get_rank()).backward()
    own = model[0].weight.grad.clone()
    optimizer.step()
    ranks = on_all_ranks(own)
    torch.testing.assert_close(model[0].weight.grad, sum(ranks) / len(ranks))
    assert optimizer.averager.counters.steps == 1
    optimizer.averager.close()


def case_a_missing_gradient_counts_as_zeros():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")
    if dist.get_rank() == 0:
        loss(model, 0, 0).backward()
        own = model[0].weight.grad.clone()
    optimizer.step()
    check_replicas(flat(model))
    if dist.get_rank() == 0:
        torch.testing.assert_close(model[0].weight.grad, own / dist.get_world_size())
    optimizer.averager.close()


def case_memory_formats_and_types_are_kept():
    torch.manual_seed(1)
    model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")
    model(torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)).square().sum().backward()
    own = model.weight.grad.clone()
    layout = model.weight.grad.stride()
    optimizer.step()
    torch.testing.assert_close(model.weight.grad, own)
    assert model.weight.grad.stride() == layout
    optimizer.averager.close()


def case_tensors_are_in_the_models_order():
    """Policies have a first and a last one, however parameters are grouped."""
    model = network()
    biases = [value for name, value in model.named_parameters() if name.endswith("bias")]
    weights = [value for name, value in model.named_parameters() if name.endswith("weight")]
    grouped = torch.optim.SGD([{"params": weights}, {"params": biases, "weight_decay": 0}], lr=0.05)
    optimizer = DistributedOptimizer(grouped, model.named_parameters(), "3lc", policy="last:fp32")
    names = [name for name, _ in model.named_parameters()]
    assert [info.name for info in optimizer.averager._infos if not info.exact] == names
    check_replicas(train(model, optimizer))
    optimizer.averager.close()


def case_gradients_may_have_graphs():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters(), "fp32")
    for step in range(2):
        optimizer.zero_grad()
        loss(model, step, dist.get_rank()).backward(create_graph=True)
        optimizer.step()
    check_replicas(flat(model).detach())
    optimizer.zero_grad()
    optimizer.averager.close()


def case_values_of_every_type_reach_all():
    def state_of(rank):
        numbers = torch.Generator().manual_seed(rank)
        values = torch.randn(5, 6, generator=numbers)
        return {"half": torch.nn.Parameter(values.bfloat16()), "mask": values > 0,
                "short": (100 * values).short(), "complex": torch.complex(values, -values),
                "turned": values.t(), "steps": torch.tensor(rank), "none": torch.empty(0, 3)}

    state, expected = state_of(dist.get_rank()), state_of(0)
    broadcast_parameters(state)
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


def case_values_that_differ_in_kind_are_refused():
    """Gloo would end the process, or take the bytes for other values."""
    if dist.get_world_size() == 1:
        return
    first = dist.get_rank() == 0
    for state, root in (({"w": torch.zeros(30 if first else 3)}, 0),
                        ({"w": torch.zeros(4, dtype=torch.float if first else torch.int32)}, 0),
                        ({"a" if first else "b": torch.zeros(3)}, 0),
                        ({"w": torch.zeros(3)}, int(first))):
        refused("rank 1 has another model or other settings", broadcast_parameters, state, root)


def case_parameters_and_state_of_one_rank_reach_all():
    model = network(seed=dist.get_rank())
    optimizer = momentum(model)
    if dist.get_rank() == 0:
        loss(model, 0, 0).backward()
        optimizer.step()
    broadcast_parameters(model.state_dict())
    check_replicas(flat(model))
    tersewire.torch.broadcast_optimizer_state(optimizer)
    check_replicas(optimizer.state[model[0].weight]["momentum_buffer"])
    optimizer = DistributedOptimizer(optimizer, model.named_parameters())
    check_replicas(train(model, optimizer))
    optimizer.averager.close()


def case_a_resumed_run_is_the_uninterrupted_one():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
    train(model, optimizer, range(3))
    step = type(optimizer).step
    saved = copy.deepcopy([model.state_dict(), optimizer.state_dict(),
                           optimizer.averager.state_dict()])
    expected = train(model, optimizer, range(3, STEPS))
    again = network()
    resumed = DistributedOptimizer(momentum(again), again.named_parameters())
    for target, state in zip((again, resumed, resumed.averager), saved):
        target.load_state_dict(state)
    assert type(resumed).step is step  # torch's hooks are around it once
    assert torch.equal(train(again, resumed, range(3, STEPS)), expected)
    optimizer.averager.close()
    resumed.averager.close()


def refused(match, call, *arguments, **options):
    with pytest.raises(tersewire.Error, match=match) as raised:
        call(*arguments, **options)
    assert "\n" not in str(raised.value)


def case_mistakes_are_refused():
    model = network()
    optimizer = momentum(model)
    refused("has no name; pass model.named_parameters", DistributedOptimizer, optimizer,
            [("0.weight", model[0].weight)])
    refused("does not fit exchange ring", DistributedOptimizer, optimizer,
            model.named_parameters(), "3lc", exchange="ring")
    refused("does not fit exchange all-reduce", DistributedOptimizer, optimizer,
            model.named_parameters(), "3lc", exchange="all-reduce")
    scheduled = momentum(model)
    torch.optim.lr_scheduler.StepLR(scheduled, 1)
    refused("make the scheduler after", DistributedOptimizer, scheduled)
    wrapped = DistributedOptimizer(optimizer, model.named_parameters())
    refused("wrap it once", DistributedOptimizer, wrapped)
    refused("pass model.state_dict", broadcast_parameters, model.named_parameters())
    inner = DistributedDataParallel(network())
    refused("averages gradients itself", DistributedOptimizer, momentum(inner),
            inner.named_parameters())
    refused("averages gradients itself", DistributedOptimizer, momentum(inner),
            inner.module.named_parameters())
    refused("averages gradients itself", DistributedOptimizer, momentum(inner))
    del inner
    outer = DistributedOptimizer(momentum(model), model)
    inner = DistributedDataParallel(model)
    loss(inner, 0, 0).backward()
    refused("averages gradients itself", outer.step)
    outer.averager.close()
    del inner
    for group in ("all", [0, 1]):
        refused("is not a group; pass what", DistributedOptimizer, momentum(model), group=group)
        refused("is not a group; pass what", broadcast_parameters, {}, group=group)
    refused("holds no tensors by name", broadcast_parameters, wrapped.state_dict())
    refused("is not an optimizer", tersewire.torch.broadcast_optimizer_state, model)
    for root in (-1, dist.get_world_size(), "0"):
        refused("root_rank=.* is not valid", broadcast_parameters, model.state_dict(), root)
        refused("root_rank=.* is not valid", tersewire.torch.broadcast_optimizer_state, wrapped, root)
    for name in ("averager", "_buffer"):
        taken = momentum(model)
        setattr(taken, name, "its own")
        refused(f"has its own '{name}'", DistributedOptimizer, taken)
    still = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    refused("trains no parameter", DistributedOptimizer, torch.optim.SGD([still], lr=1))
    phase = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    refused("is complex", DistributedOptimizer, torch.optim.SGD([phase], lr=1))
    twins = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
    refused("two tensors are named 'w'", DistributedOptimizer, torch.optim.SGD(twins, lr=1),
            [("w", twins[0]), ("w", twins[1])])
    grown = DistributedOptimizer(momentum(model), model.named_parameters())
    grown.add_param_group({"params": [twins[0]]})
    refused("trains other parameters", grown.step)
    grown.averager.close()
    frozen = network()
    frozen[0].weight.requires_grad = False
    thawed = DistributedOptimizer(momentum(frozen), frozen.named_parameters())
    frozen[0].weight.requires_grad = True
    refused("trains other parameters", thawed.step)
    thawed.averager.close()
    refused("call synchronize", wrapped.skip_synchronize().__enter__)
    if dist.get_world_size() > 1:
        refused("rank 1 has another model", DistributedOptimizer, momentum(model),
                model.named_parameters(), seed=dist.get_rank())
    wrapped.averager.close()
    embedding = torch.nn.Embedding(10, 30, sparse=True)
    sparse = DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1))
    embedding(torch.tensor([1])).sum().backward()
    refused("pass sparse_as_dense=True", sparse.step)
    sparse.averager.close()


class Thing:
    pass


def case_looking_for_a_model_keeps_nothing_alive():
    """A tensor that a thread of Gloo frees meanwhile would make torch warn."""
    kept, alive = [], []

    class Looks(DistributedDataParallel):
        def parameters(self, recurse=True):
            if kept:
                thing = weakref.ref(kept.pop())
                alive.append(thing() is not None)
            return super().parameters(recurse)

    looks = Looks(network())
    kept.append(Thing())
    model = network()
    DistributedOptimizer(momentum(model), model).averager.close()
    assert alive == [False]
    refused("averages gradients itself", DistributedOptimizer, momentum(looks))


def case_a_group_of_some_ranks():
    """The others know nothing of it."""
    of_three = dist.get_world_size() == 3
    some = dist.new_group([1, 2]) if of_three else dist.group.WORLD
    rank = dist.get_rank() - int(of_three)
    if rank >= 0:
        parameter = torch.nn.Parameter(torch.full((3,), 1.0 + rank))
        broadcast_parameters({"w": parameter.detach()}, group=some)
        assert torch.equal(parameter.detach(), torch.ones(3))
        optimizer = torch.optim.SGD([parameter], lr=1)
        tersewire.torch.broadcast_optimizer_state(optimizer, group=some)
        optimizer = DistributedOptimizer(optimizer, [("w", parameter)], "fp32", group=some)
        parameter.grad = torch.full((3,), 2.0 * rank)
        optimizer.step()
        both = dist.get_world_size() > 1
        assert torch.equal(parameter.detach(), torch.full((3,), 0.0 if both else 1.0))
        optimizer.averager.close()


def share(model, codec="fp32", optimizer=None, **options):
    return DistributedOptimizer(optimizer or adam(model), model.named_parameters(), codec,
                                exchange="parameter-server", **options)


def adam(model):
    """With rates and decays of its own for each group."""
    return torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.01},
                              {"params": [*model[3].parameters(), *model[5].parameters()],
                               "weight_decay": 0.1}], lr=0.003)


def plain_adam(steps, model=None, optimizer=None):
    """One process with all ranks' batches, whose gradients it adds up as an exchange does.

    Adam divides by a gradient's size: where those of ranks cancel, sums that are rounded in another
    order are other steps.
    """
    model = model or network()
    optimizer = optimizer or adam(model)
    parameters, ranks = list(model.parameters()), dist.get_world_size()
    for step in steps:
        of_ranks = [torch.autograd.grad(loss(model, step, rank), parameters) for rank in range(ranks)]
        for parameter, *gradients in zip(parameters, *of_ranks):
            parameter.grad = sum(gradient * numpy.float32(1 / ranks) for gradient in gradients)
        optimizer.step()
    return model, optimizer


def case_owners_of_shares_train_as_one_process():
    """With the optimizer's groups, and its rates as a scheduler sets them."""
    model = network()
    optimizer = share(model)
    with_rates = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    reference = network()
    plain = adam(reference)
    its_rates = torch.optim.lr_scheduler.StepLR(plain, 2, gamma=0.5)
    for step in range(STEPS):
        train(model, optimizer, [step])
        plain_adam([step], reference, plain)
        with_rates.step()
        its_rates.step()
    check_replicas(flat(model))
    torch.testing.assert_close(flat(model), flat(reference), rtol=0, atol=1e-6)
    # Every value's state is on one rank.
    assert not optimizer.state
    own = optimizer.averager.state_dict()["shares"]
    held = sum(run[1] for runs in own.values() for run in runs)
    total = sum(on_all_ranks(torch.tensor(held)))
    assert total == flat(model).numel() and held < 0.75 * total or dist.get_world_size() == 1
    optimizer.averager.close()


def case_a_wrapped_optimizer_keeps_its_state():
    expected, _ = plain_adam(range(STEPS))
    model, optimizer = plain_adam(range(2))
    optimizer = share(model, optimizer=optimizer)
    train(model, optimizer, range(2, STEPS))
    torch.testing.assert_close(flat(model), flat(expected), rtol=0, atol=1e-6)
    optimizer.averager.close()


def case_shares_are_clipped_by_rank():
    model = network()
    optimizer = share(model, optimizer=torch.optim.SGD(model.parameters(), lr=1))
    before = flat(model)
    loss(model, 0, dist.get_rank()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    assert 0 < (flat(model) - before).norm() <= 0.01 + 1e-6
    with pytest.raises(tersewire.Error, match="only owners have mean gradients"):
        optimizer.synchronize()
    optimizer.averager.close()


def case_shares_resume_to_the_bit():
    for codec in ("3lc", "3lc:ef=21"):
        model = network()
        optimizer = share(model, codec)
        train(model, optimizer, range(3))
        saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
        expected = train(model, optimizer, range(3, STEPS))
        again = network(seed=2)
        resumed = share(again, codec)
        for target, state in zip((again, resumed), saved):
            target.load_state_dict(state)
        assert torch.equal(train(again, resumed, range(3, STEPS)), expected)
        # And in the middle of a run.
        for target, state in zip((again, resumed), saved):
            target.load_state_dict(state)
        assert torch.equal(train(again, resumed, range(3, STEPS)), expected)
        optimizer.averager.close()
        resumed.averager.close()


def case_shares_move_to_fewer_ranks():
    ranks = dist.get_world_size()
    if ranks == 1:
        return
    model = network()
    optimizer = share(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.007
    train(model, optimizer, range(3))
    files = [None] * ranks
    dist.all_gather_object(files, optimizer.state_dict())
    optimizer.averager.close()
    alone = dist.new_group([0])
    if dist.get_rank() > 0:
        return
    again = network()
    again.load_state_dict(model.state_dict())
    resumed = share(again, group=alone)
    resumed.load_state_dict(files)
    expected = network()
    plain = adam(expected)
    for group in plain.param_groups:
        group["lr"] = 0.007
    plain_adam(range(3), expected, plain)
    for step in range(3, STEPS):
        plain.zero_grad()
        loss(expected, step, 0).backward()
        plain.step()
        resumed.zero_grad()
        loss(again, step, 0).backward()
        resumed.step()
    torch.testing.assert_close(flat(again), flat(expected), rtol=0, atol=1e-6)
    refused("the states lack values of '", resumed.load_state_dict, files[1:])
    refused("these are not the states of all", resumed.load_state_dict, [files[0], plain.state_dict()])
    resumed.averager.close()


def case_mistakes_with_shares_are_refused():
    model = network()
    refused("is torch.bfloat16, and a share's", share, network().bfloat16())
    refused("omit loss_scale", share, model, loss_scale=lambda: 2.0)
    refused("codec auto does not choose", share, model, "auto")
    optimizer = share(model)
    refused("keep exchange parameter-server", optimizer.averager.change, exchange="all-gather")
    train(model, optimizer, [0])
    optimizer.averager.change(codec="int8")
    train(model, optimizer, [1])
    check_replicas(flat(model))
    state = optimizer.averager.state_dict()
    del state["shares"]
    refused("has no shares", optimizer.averager.load_state_dict, state)
    if dist.get_world_size() > 1:
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, optimizer.state_dict())
        refused("the states lack values of '", optimizer.load_state_dict,
                states[dist.get_rank() - 1])
    whole = plain_adam([0])[1].state_dict()
    refused("and their shares have begun", optimizer.load_state_dict, whole)
    with pytest.raises(KeyError, match="state"):  # it would lose what it does not know
        adam(network()).load_state_dict(optimizer.state_dict())
    refused("every rank has a share of its own", tersewire.torch.broadcast_optimizer_state,
            optimizer)
    optimizer.averager.close()

    class Nested(torch.optim.SGD):
        def __init__(self, parameters):
            super().__init__(parameters, lr=0.1)
            self.inner = torch.optim.SGD(parameters, lr=0.1)

    refused("takes another optimizer's steps", share, model,
            optimizer=Nested(list(model.parameters())))

    class CountsInGroup(torch.optim.SGD):
        def step(self):
            super().step()
            for group in self.param_groups:
                group["step"] = group.get("step", 0) + 1

    class Fails(torch.optim.SGD):
        fails = False

        def step(self, closure=None):
            if self.fails:
                raise OSError("no memory of its own")
            return super().step(closure)

    for failing, why in ((Fails(model.parameters(), lr=0.1), "OSError: no memory of its own"),
                         (CountsInGroup(model.parameters(), lr=0.1), "Error: a CountsInGroup keeps")):
        failing = share(model, optimizer=failing)
        Fails.fails = True
        loss(model, 0, 0).backward()
        refused("the optimizer's step failed: " + why, failing.step)
        failing.averager.close()


class KeepsGradients(torch.optim.Optimizer):
    """Of the difference to the last gradient, as some do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                before = self.state[parameter].get("before", torch.zeros_like(parameter))
                parameter.sub_(group["lr"] * (parameter.grad - 0.5 * before))
                self.state[parameter]["before"] = parameter.grad


def case_shares_of_any_shape():
    """One value without dimensions, none at all, and ranks that own nothing."""
    def model_of():
        torch.manual_seed(1)
        return torch.nn.ParameterDict({
            "scale": torch.nn.Parameter(torch.tensor(1.5)), "none": torch.nn.Parameter(torch.empty(0)),
            "w": torch.nn.Parameter(torch.randn(5, 2))})

    def step(model, optimizer, number, ranks):
        optimizer.zero_grad()
        for rank in ranks:
            values = (model["scale"] * model["w"] + number - rank).square().mean()
            ((values + model["none"].sum()) / len(ranks)).backward()
        optimizer.step()

    makers = (KeepsGradients, functools.partial(torch.optim.Adagrad, lr=0.1),
              functools.partial(torch.optim.AdamW, lr=0.1))
    for make in makers:
        for before in (0, 2):
            models = [model_of(), model_of()]
            plain, own = (make(model.parameters()) for model in models)
            everyone = range(dist.get_world_size())
            for number in range(before):
                step(models[0], plain, number, everyone)
                step(models[1], own, number, everyone)
            own = share(models[1], optimizer=own)
            saved = copy.deepcopy(own.state_dict())
            own.load_state_dict(saved)  # without shares so far
            for number in range(before, 5):
                for parameter in models[0].values():
                    parameter.grad = None
                step(models[0], plain, number, everyone)
                own.zero_grad(set_to_none=True)
                step(models[1], own, number, [dist.get_rank()])
            for name, value in models[0].items():
                torch.testing.assert_close(models[1][name], value)
            check_replicas(torch.cat([value.detach().flatten() for value in models[1].values()]))
            own.averager.close()


def case_what_nobody_has_ends():
    def threads():
        return len(os.listdir("/proc/self/task"))

    for exchange in ("gradient-server", "parameter-server"):
        before = threads()
        model = network()
        optimizer = DistributedOptimizer(adam(model), model.named_parameters(), exchange=exchange)
        train(model, optimizer, [0])
        dist.barrier()
        alive = weakref.ref(optimizer.averager)
        del model, optimizer
        gc.collect()
        assert alive() is None
        deadline = time.monotonic() + 60
        while threads() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threads() <= before
        dist.barrier()


def case_close_in_another_thread_ends_a_step_that_waits():
    if dist.get_world_size() == 1:
        return
    for exchange in ("all-gather", "parameter-server"):
        model = network()
        optimizer = DistributedOptimizer(momentum(model), model.named_parameters(),
                                         exchange=exchange)
        train(model, optimizer, [0])
        dist.barrier()
        if dist.get_rank() == 0:  # the others never come
            threading.Timer(0.3, optimizer.averager.close).start()
            with pytest.raises(tersewire.Error, match="closed its exchange within a step; start every rank again"):
                train(model, optimizer, [1])
        dist.barrier()
        optimizer.averager.close()


def case_counters_are_read_in_any_thread():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
    done = threading.Event()
    read = []

    def watch():
        while not done.is_set():
            read.append(optimizer.averager.counters.sent_bytes)
            assert "0.weight" in optimizer.averager.summary()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for step in range(6):
            train(model, optimizer, [step])
            optimizer.averager.change(codec="3lc:s=1.5" if step % 2 else "3lc")
    finally:
        done.set()
        watching.join()
    assert read == sorted(read)
    optimizer.averager.close()


def case_wrapped_optimizers_are_not_copied():
    model = network()
    optimizer = DistributedOptimizer(momentum(model), model.named_parameters())
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(tersewire.Error, match="cannot be copied or pickled"):
            copied(optimizer)
    optimizer.averager.close()


class Counting(torch.optim.Adam):
    """Adam that keeps its step where no share would find it."""

    taken = 0

    def step(self, closure=None):
        self.taken += 1
        super().step(closure)


def case_shares_refuse_state_outside_values():
    for _ in range(2):  # before and after the attribute is there
        model = network()
        inner = Counting(model.parameters())
        inner.taken = 0
        optimizer = DistributedOptimizer(inner, model, exchange="parameter-server")
        with pytest.raises(tersewire.Error, match="a Counting keeps state in its attributes"):
            train(model, optimizer, range(2))
        optimizer.averager.close()


def case_shares_compare_rates():
    if dist.get_world_size() == 1:
        return
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + dist.get_rank()))
    with pytest.raises(tersewire.Error, match="rank 1 has another model or other settings"):
        DistributedOptimizer(inner, model, exchange="parameter-server")


def case_a_state_of_another_codec_is_refused_when_it_is_loaded():
    model = network()
    before = DistributedOptimizer(momentum(model), model, "3lc", exchange="all-gather")
    train(model, before, range(2))
    saved = before.averager.state_dict()
    before.averager.close()
    after = DistributedOptimizer(momentum(model), model, "fp32", exchange="all-gather")
    if dist.get_world_size() > 1:
        with pytest.raises(tersewire.Error) as raised:
            after.averager.load_state_dict(saved)
        assert raised.value.code == tersewire.ErrorCode.kInvalidArgument
    after.averager.close()


def test_an_interface_without_an_address_is_named(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no0")
    with pytest.raises(tersewire.Error, match="GLOO_SOCKET_IFNAME is 'no0', which has no address"):
        _groups._own_host()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert _groups._own_host() == "127.0.0.1"


def leave_open(rank, path):
    leave_open.owner = model = network()
    tersewire.torch._tensors.at_end(model, path.touch)


def test_what_processes_leave_open_is_closed(tmp_path):
    """Of multiprocessing, which leaves out what Python does at its end."""
    start_ranks(leave_open, (tmp_path / "closed",), 1)
    assert (tmp_path / "closed").exists()


def test_what_cannot_be_wrapped_is_named():
    model = network()
    wrong = [(model, None, "a Sequential is not an optimizer"),
             (torch.optim.LBFGS(model.parameters()), model, "a LBFGS computes several gradients"),
             (momentum(model), model.parameters(), "not pairs of a name and a parameter"),
             (momentum(model), dict(model.named_parameters()), "not pairs of a name"),
             (momentum(model), [(1, value) for value in model.parameters()], "not pairs of a name")]
    for optimizer, named, sentence in wrong:
        with pytest.raises(tersewire.Error, match=sentence):
            DistributedOptimizer(optimizer, named)


def test_a_process_group_comes_first():
    with pytest.raises(tersewire.Error, match="there is no process group; call ") as raised:
        DistributedOptimizer(momentum(network()))
    assert raised.value.code == tersewire.ErrorCode.kFailedPrecondition


def case_sparse_gradients_are_made_dense():
    found = []
    for sparse in (False, True):
        torch.manual_seed(1)
        embedding = torch.nn.Embedding(10, 30, sparse=sparse)
        optimizer = DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1),
                                         codec="fp32", sparse_as_dense=sparse)
        for step in range(3):
            optimizer.zero_grad()
            embedding(torch.tensor([step, dist.get_rank(), step])).square().sum().backward()
            optimizer.step()
        found.append(embedding.weight.detach())
        assert optimizer.averager.counters.steps == 3
        optimizer.averager.close()
    assert torch.equal(*found)


def case_policies_know_kinds_as_in_register():
    """By the modules of the model; or else by names and shapes, where an embedding looks dense."""
    def made():
        return torch.nn.Sequential(torch.nn.Embedding(40, 20), torch.nn.LayerNorm(20),
                                   torch.nn.Linear(20, 10))

    def codecs(averager):
        lines = averager.summary().splitlines()[1:-1]
        averager.close()
        return [line.split()[2] for line in lines]

    kinds = "kind=norm:fp16; kind=bias:bf16; *:3lc"
    of_all = "kind=embedding:int8; " + kinds
    model = made()
    assert codecs(DistributedOptimizer(momentum(model), model, policy=of_all).averager) == [
        "int8", "fp16", "fp16", "3lc", "bf16"]
    assert codecs(tersewire.torch.register(DistributedDataParallel(made()), policy=of_all)) == [
        "int8", "fp16", "fp16", "3lc", "bf16"]
    model = made()
    assert codecs(DistributedOptimizer(momentum(model), model.named_parameters(),
                                       policy=kinds).averager) == [
        "3lc", "fp16", "fp16", "3lc", "bf16"]


def case_a_logger_hears_of_each_step():
    for exchange in ("gradient-server", "parameter-server"):
        model, heard = network(), []
        optimizer = DistributedOptimizer(momentum(model), model.named_parameters(),
                                         exchange=exchange, on_step=heard.append)
        train(model, optimizer)
        assert [counters.steps for counters in heard] == list(range(1, STEPS + 1))
        assert heard[-1].gradient_bytes == STEPS * 4 * flat(model).numel()
        assert heard[-1].codec == "3lc"
        optimizer.averager.close()


def case_a_broadcast_of_a_rank_that_never_comes_ends():
    """Within the group's timeout."""
    model = network()
    for broadcast in (
            lambda group: broadcast_parameters(model.state_dict(), 0, group),
            lambda group: tersewire.torch.broadcast_optimizer_state(momentum(model), 0, group)):
        group = dist.new_group(timeout=datetime.timedelta(seconds=1))
        if dist.get_rank() > 0:
            with pytest.raises(RuntimeError, match="(?i)time"):
                broadcast(group)
        dist.barrier()


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_case(ranks, tmp_path):
    run_on_ranks(CASES, ranks, tmp_path)
