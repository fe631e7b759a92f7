"""The hook of DistributedDataParallel, on 1, 2 and 3 processes with Gloo."""

import collections
import contextlib
import copy
import datetime
import gc
import inspect
import io
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
import weakref

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
import tersewire.torch
from ranks import Lines, check_replicas, on_all_ranks, run_on_ranks, run_program, start_ranks
from support import ROOT
from tersewire import ErrorCode

# With codecs that fit, the first one in most cases.
CODECS = {
    "all-gather": ["3lc:s=1.75", "terngrad", "adacomp"],
    "all-reduce": ["terngrad", "terngrad:bucket=64", "stoch3"],
    "ring": ["inceptionn:bound=2^-10", "int8", "qsgd"],
    "gradient-server": ["3lc:s=1.75", "terngrad", "adacomp"],
}
# Those in which error accumulation is for the mean alone, and 3lc fits.
ACCUMULATING = ["all-gather", "gradient-server"]
STEPS = 6


class Net(torch.nn.Module):
    """Several buckets, a parameter that is cut into shards, and a branch that may go unused."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.wide = torch.nn.Linear(256, 300)
        self.out = torch.nn.Linear(300, 10)
        self.branch = torch.nn.Linear(10, 10)

    def forward(self, x, branch=True):
        x = self.norm(self.conv(x)).relu().flatten(1)
        x = self.out(self.wide(x).relu())
        return self.branch(x) if branch else x


def wrapped(**options):
    torch.manual_seed(1)
    return DistributedDataParallel(Net(), bucket_cap_mb=0.1, **options)


def batch(step, rank):
    numbers = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, 1, 8, 8, generator=numbers)


def train(model, steps, scale=lambda step: 1.0, branch=lambda step, rank: True):
    """SGD without a state of its own; the loss is scaled and the gradients are not."""
    rank = dist.get_rank()
    for step in steps:
        model.zero_grad(set_to_none=True)
        output = model(batch(step, rank), branch(step, rank))
        (output.square().mean() * scale(step)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 / scale(step) * parameter.grad
    return flat(model)


def train_with(optimizer, model, steps):
    for step in steps:
        optimizer.zero_grad()
        model(batch(step, dist.get_rank())).square().mean().backward()
        optimizer.step()
    return flat(model)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.module.parameters()])


def case_fp32_is_plain_ddp():
    plain = train(wrapped(), range(STEPS))
    for exchange in CODECS:
        model = wrapped()
        hook = tersewire.torch.register(model, "fp32", exchange=exchange)
        ours = train(model, range(STEPS))
        check_replicas(ours)
        # A half is exact; a third is not, and Gloo adds up in another order.
        if dist.get_world_size() < 3:
            assert torch.equal(ours, plain)
        torch.testing.assert_close(ours, plain)
        assert hook.counters.steps == STEPS
        assert hook.counters.gradient_bytes == 4 * STEPS * plain.numel()


def case_replicas_are_equal_and_little_is_sent():
    for exchange, codecs in CODECS.items():
        for codec in codecs:
            model = wrapped()
            hook = tersewire.torch.register(model, codec, exchange=exchange, seed=5)
            check_replicas(train(model, range(STEPS)))
            if dist.get_world_size() > 1:
                assert 0 < hook.counters.sent_bytes < hook.counters.gradient_bytes
            text = hook.summary()
            assert all(name in text for name, _ in model.module.named_parameters())


def case_a_state_and_a_hook_are_as_register():
    found = []
    for paired in (False, True):
        model = wrapped()
        if paired:
            state = tersewire.torch.HookState("3lc:s=1.75", seed=5)
            model.register_comm_hook(state, tersewire.torch.hook)
        else:
            hook = tersewire.torch.register(model, "3lc:s=1.75", seed=5)
        found.append(train(model, range(3)))
    assert torch.equal(*found)
    assert state.hook.counters.steps == 3
    names = [name for name, _ in model.module.named_parameters()]
    assert all(name in state.hook.summary() for name in names)
    assert state.hook.state_dict()["pushed"].keys() == hook.state_dict()["pushed"].keys()


def case_the_lines_of_the_readme_are_all_there_is():
    _, lines, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(),
                              re.MULTILINE | re.DOTALL)
    model = wrapped()
    exec(compile(lines, "README.md", "exec"), {"model": model})
    check_replicas(train(model, range(2)))
    with pytest.raises(RuntimeError):  # a model takes one hook
        tersewire.torch.register(model)


def case_a_logger_hears_of_each_step():
    model = wrapped()
    heard = []
    hook = tersewire.torch.register(model, on_step=heard.append)
    train(model, range(3))
    assert [counters.steps for counters in heard] == [1, 2, 3]
    assert heard[-1].gradient_bytes == hook.counters.gradient_bytes


def total_residual(hook, name):
    """What all ranks together still have to send, as a part of the mean."""
    state = hook.state_dict()
    parameters = state.get(name, {})
    whole = torch.cat([parameters[key] for key in sorted(parameters)])
    ranks = on_all_ranks(whole)
    return sum(ranks) / (len(ranks) if name == "pushed" else 1)


def check_nothing_is_lost(before_step, codec="3lc:s=1.75", **settings):
    """What was applied and what is kept are the gradients, for a model that is linear."""
    model = DistributedDataParallel(torch.nn.Linear(200, 300, bias=False))
    hook = tersewire.torch.register(model, codec, policy="", **settings)
    true, applied = 0, 0
    for step in range(STEPS):
        before_step(hook, step)
        inputs = [torch.randn(5, 200, generator=torch.Generator().manual_seed(
            10 * step + rank)) for rank in range(dist.get_world_size())]
        model.zero_grad()
        weights = torch.arange(1.0, 301)
        (model(inputs[dist.get_rank()]) * weights).sum().backward()
        applied = applied + model.module.weight.grad.flatten()
        gradients = [torch.outer(weights, x.sum(0)).flatten() for x in inputs]
        true = true + sum(gradients) / len(gradients)
    kept = total_residual(hook, "pushed")
    if hook.state_dict()["exchange"] == "gradient-server":
        # A rank knows its own shard alone; the others' elements are 0.
        kept = kept + total_residual(hook, "pulled")
    largest = true.abs().max().item()
    torch.testing.assert_close(applied + kept, true, rtol=0, atol=1e-4 * largest)
    assert kept.abs().max() > 0.01 * largest
    return hook


def case_nothing_is_lost():
    for exchange in ACCUMULATING:
        check_nothing_is_lost(lambda hook, step: None, exchange=exchange)


def case_nothing_is_lost_where_settings_change():
    for before, after in (({"codec": "3lc:s=1.75"}, {"codec": "topk:fraction=0.1"}),
                          ({"codec": "fp32"}, {"codec": "3lc:s=1.75", "threads": 1}),
                          ({"exchange": "all-gather"}, {"exchange": "gradient-server"}),
                          ({"exchange": "gradient-server"}, {"exchange": "all-gather"})):
        hook = check_nothing_is_lost(
            lambda hook, step: hook.change(**after) if step == 3 else None,
            **before)
        assert hook.counters.steps == STEPS == hook.state_dict()["step"]
        assert hook.state_dict()["exchange"] == after.get("exchange", hook.state_dict()["exchange"])
        for mistake, match in (({"codec": "fp32"}, "its new codec fp32 keeps none"),
                               ({"warm_up_steps": -1}, "is not valid")):
            with pytest.raises(tersewire.Error, match=match):
                hook.change(**mistake)
    if dist.get_world_size() > 1:
        sizes = on_all_ranks(torch.tensor([hook.counters.sent_bytes]))
        assert min(sizes) > 4 * 60000 * 3 / 50  # of both networks


def case_a_refused_change_changes_nothing():
    model = wrapped()
    hook = tersewire.torch.register(model, "3lc", exchange="gradient-server")
    train(model, range(1))
    dist.barrier()  # until then this rank's server sends the others their means
    table = hook.summary()
    with pytest.raises(tersewire.Error, match="its new codec fp32 keeps none"):
        hook.change(codec="fp32", exchange="all-gather")
    for internal in ("adaptive", "adam"):  # what the optimizer is nobody says
        for call, error in ((hook.change, tersewire.Error), (tersewire.torch.HookState, TypeError)):
            with pytest.raises(error, match=internal):
                call(**{internal: True})
    assert hook.state_dict()["exchange"] == "gradient-server"
    assert hook.counters.codec == "3lc" and hook.summary() == table
    hook.change(threads=1)
    check_replicas(train(model, range(1, STEPS)))
    assert hook.counters.steps == STEPS
    hook.close()


def case_shared_scalers_make_means_of_whole_numbers():
    ranks = dist.get_world_size()
    for bucket in (0, 40):  # which divides each part
        model = DistributedDataParallel(torch.nn.Linear(20, 300, bias=False))
        tersewire.torch.register(model, f"terngrad:bucket={bucket}", policy="",
                                 exchange="all-reduce")
        values = torch.randn(5, 20, generator=torch.Generator().manual_seed(dist.get_rank()))
        model(values).sum().backward()
        mean = model.module.weight.grad.flatten()
        clipped = values.sum(0).expand(300, 20).flatten()
        for begin in range(0, len(mean), bucket or len(mean)):
            some = slice(begin, begin + (bucket or len(mean)))
            largest = clipped[some].abs().max()
            smallest = mean[some][mean[some] != 0].abs().min() * ranks
            # The scaler is the largest of all ranks', so that sums are multiples of it.
            levels = mean[some] * ranks / smallest
            torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-3)
            assert levels.abs().max() <= ranks + 1e-3 and smallest <= max(
                rank.item() for rank in on_all_ranks(largest.reshape(1))) * 1.001


def case_gradients_are_accumulated_without_synchronization():
    found = []
    for hooked in (False, True):
        model = wrapped()
        if hooked:
            tersewire.torch.register(model, "fp32")
        for step in range(4):
            with model.no_sync() if step % 2 == 0 else contextlib.nullcontext():
                model(batch(step, dist.get_rank())).square().mean().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0])


def case_unused_parameters():
    for exchange, (codec, *_) in CODECS.items():
        model = wrapped(find_unused_parameters=True)
        tersewire.torch.register(model, codec, exchange=exchange)
        check_replicas(train(model, range(STEPS), branch=lambda step, rank: (step + rank) % 2 == 0
                             or dist.get_world_size() == 1))


class Branches(torch.nn.Module):
    """One of two linear maps; each weight's gradient is known whatever the weights are."""

    def __init__(self):
        super().__init__()
        self.branches = torch.nn.ModuleList(
            torch.nn.Linear(200, 300, bias=False) for _ in range(2))

    def forward(self, x, which):
        return self.branches[which](x)


def case_what_unused_parameters_get_is_not_lost():
    for exchange, as_views, set_to_none in (
            ("gradient-server", False, True), ("all-gather", False, False),
            ("gradient-server", True, True), ("all-gather", True, False)):
        torch.manual_seed(1)
        model = DistributedDataParallel(Branches(), find_unused_parameters=True,
                                        gradient_as_bucket_view=as_views)
        hook = tersewire.torch.register(model, "3lc:s=1.75", policy="", exchange=exchange,
                                        loss_scale=lambda: 4.0)
        weights = torch.arange(1.0, 301)
        true, applied = ([torch.zeros(60000) for _ in range(2)] for _ in range(2))
        for step in range(STEPS):
            inputs = [torch.randn(5, 200, generator=torch.Generator().manual_seed(
                10 * step + rank)) for rank in range(dist.get_world_size())]
            model.zero_grad(set_to_none=set_to_none)
            (4 * model(inputs[dist.get_rank()], step % 2) * weights).sum().backward()
            for number, branch in enumerate(model.module.branches):
                if branch.weight.grad is not None:
                    applied[number] += branch.weight.grad.flatten() / 4
            gradients = [torch.outer(weights, x.sum(0)).flatten() for x in inputs]
            true[step % 2] += sum(gradients) / len(gradients)
        for number in range(2):
            name = f"branches.{number}.weight"
            kept = sum(on_all_ranks(hook.state_dict()["pushed"][name])) / dist.get_world_size()
            if exchange == "gradient-server":
                kept += sum(on_all_ranks(hook.state_dict()["pulled"].get(
                    name, torch.zeros(60000))))
            largest = true[number].abs().max().item()
            torch.testing.assert_close(applied[number] + kept, true[number], rtol=0,
                                       atol=1e-4 * largest)


def linear_gradient(step, rank):
    """Of Branches, and what makes it."""
    inputs = torch.randn(5, 200, generator=torch.Generator().manual_seed(10 * step + rank))
    return inputs, torch.outer(torch.arange(1.0, 301), inputs.sum(0)).flatten()


def backward_of(model, step, which):
    """Returns the mean gradient that the branch's optimizer would apply."""
    inputs, _ = linear_gradient(step, dist.get_rank())
    (model(inputs, which) * torch.arange(1.0, 301)).sum().backward()
    return model.module.branches[which].weight.grad.flatten().clone()


def check_branch(hook, which, applied, true):
    """Nothing is lost: what was not applied is still to be sent."""
    state, name = hook.state_dict(), f"branches.{which}.weight"
    kept = sum(on_all_ranks(state["pushed"][name])) / dist.get_world_size()
    kept += sum(on_all_ranks(state["pulled"].get(name, torch.zeros(60000))))
    torch.testing.assert_close(applied + kept, true, rtol=0, atol=1e-4 * true.abs().max().item())


def case_steps_without_a_parameter_leave_no_trace():
    """Every second step uses the other branch, and the means are those of steps without it."""
    for exchange, codec in (("gradient-server", "3lc:s=1.75"), ("all-gather", "adacomp"),
                            ("ring", "inceptionn:bound=2^-10,ef=on")):
        found = []
        for between in (False, True):
            model = DistributedDataParallel(Branches(), find_unused_parameters=True)
            hook = tersewire.torch.register(model, codec, policy="", exchange=exchange)
            means = []
            for step in range(3 * STEPS):
                model.zero_grad()
                means.append(backward_of(model, step, 0))
                if between:
                    model.zero_grad()
                    backward_of(model, step, 1)
            found.append(torch.stack(means))
            hook.close()
        assert torch.equal(*found)


def case_gradients_that_wait_for_their_optimizer_are_sent_once():
    """Of branches with an optimizer each, which takes turns and zeroes its own gradients."""
    ranks = range(dist.get_world_size())
    for exchange, as_views in itertools.product(("all-gather", "gradient-server"), (False, True)):
        model = DistributedDataParallel(Branches(), find_unused_parameters=True,
                                        gradient_as_bucket_view=as_views)
        hook = tersewire.torch.register(model, "3lc:s=1.75", policy="", exchange=exchange)
        applied, true = ([torch.zeros(60000) for _ in range(2)] for _ in range(2))
        for step in range(2 * STEPS):
            which = step % 2
            other = model.module.branches[1 - which].weight.grad
            before = other.clone() if other is not None else None
            model.module.branches[which].zero_grad()
            applied[which] += backward_of(model, step, which)
            true[which] += sum(linear_gradient(step, rank)[1] for rank in ranks) / len(ranks)
            if before is not None:
                assert torch.equal(model.module.branches[1 - which].weight.grad, before)
        for which in range(2):
            check_branch(hook, which, applied[which], true[which])
        hook.close()


def case_ranks_without_data_give_nothing_back():
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    hook = tersewire.torch.register(model, "3lc:s=1.75", policy="", exchange="all-gather")
    ranks = dist.get_world_size()
    applied, true = torch.zeros(60000), torch.zeros(60000)
    with model.join():
        for step in range(2 + 3 * dist.get_rank()):
            model.zero_grad()
            applied += backward_of(model, step, 0)
    for rank in range(ranks):
        true += sum(linear_gradient(step, rank)[1] for step in range(2 + 3 * rank)) / ranks
    check_branch(hook, 0, on_all_ranks(applied)[-1], true)  # the last one applied all
    hook.close()


def case_a_nan_reaches_every_rank():
    for exchange, (codec, *_) in CODECS.items():
        model = wrapped()
        hook = tersewire.torch.register(model, codec, exchange=exchange)
        train(model, range(2))
        before = flat(model)
        values = batch(2, dist.get_rank())
        if dist.get_rank() == 0:
            values[0, 0, 0, 0] = float("nan")
        model.zero_grad()
        model(values).square().mean().backward()
        # Loss scaling skips the step on every rank then.
        assert all(not p.grad.isfinite().all() for p in model.parameters())
        assert torch.equal(flat(model), before)
        counted = torch.tensor([hook.counters.not_finite_tensors])
        assert max(on_all_ranks(counted)) > 0
        with torch.no_grad():
            # The statistics of batch normalization have seen it.
            for buffer in model.module.norm.buffers():
                buffer.nan_to_num_(1)
        assert train(model, range(3, 5)).isfinite().all()
        check_replicas(flat(model))


def case_residuals_follow_the_loss_scale():
    for exchange in ACCUMULATING:
        found = []
        for scales in ([1.0] * STEPS, [1024.0, 1024.0, 512.0, 2048.0, 2048.0, 1.0]):
            model = wrapped()
            now = []
            tersewire.torch.register(model, "3lc", exchange=exchange, loss_scale=lambda: now[-1]
                                     if now else scales[0])
            for step in range(STEPS):
                now.append(scales[step])
                train(model, [step], scale=lambda step: scales[step])
            found.append(flat(model))
        assert torch.equal(found[0], found[1])  # powers of two are exact


def case_a_loss_scale_of_nothing_is_refused():
    for scale in (0, -2.0, math.nan, math.inf):
        model = wrapped()
        tersewire.torch.register(model, "3lc", loss_scale=lambda: scale)
        with pytest.raises(Exception, match="loss_scale returned .*above 0"):
            train(model, [0])


def case_an_exception_of_loss_scale_keeps_its_type():
    """So does Ctrl-C, which may come just then."""
    for kind in (KeyError, KeyboardInterrupt):
        def scale(kind=kind):
            raise kind

        model = wrapped()
        tersewire.torch.register(model, loss_scale=scale)
        with pytest.raises(kind):
            train(model, [0])


def case_differences_begin_anew_where_settings_change():
    for before, after in (("3lc", "3lc:ef=21"), ("3lc:ef=21", "3lc"), ("3lc:ef=21", "fp32")):
        for exchange in ACCUMULATING:
            model = wrapped()
            # Of small tensors, which the default policy sends in int8, a residual is owed.
            hook = tersewire.torch.register(model, before, policy="", exchange=exchange)
            train(model, range(3))
            assert ("followed" in hook.state_dict()) == (before == "3lc:ef=21")
            if exchange == "gradient-server" and after == "fp32":
                with pytest.raises(tersewire.Error, match="its new codec fp32 keeps none"):
                    hook.change(codec=after)  # of what servers send, a residual is owed
                hook.close()
                continue
            hook.change(codec=after)
            assert ("followed" in hook.state_dict()) == (after == "3lc:ef=21")
            check_replicas(train(model, range(3, STEPS)))
            hook.close()


def case_a_resumed_run_is_the_uninterrupted_one():
    tried = [(exchange, codec) for exchange, (codec, *_) in CODECS.items()]
    for exchange, codec in [*tried, ("all-gather", "3lc:ef=21"), ("gradient-server", "3lc:ef=21")]:
        options = {"codec": codec, "exchange": exchange, "warm_up_steps": 1}
        model = wrapped()
        hook = tersewire.torch.register(model, **options)
        train(model, range(3))
        saved, state = {k: v.clone() for k, v in model.state_dict().items()}, hook.state_dict()
        expected = train(model, range(3, 6))
        again = wrapped()
        hook = tersewire.torch.register(again, **options)
        again.load_state_dict(saved)
        hook.load_state_dict(state)
        assert torch.equal(train(again, range(3, 6)), expected)
        assert hook.counters.steps == 3 and hook.state_dict()["step"] == 6


def case_a_rank_that_did_not_load_its_state_is_noticed():
    first = wrapped()
    hook = tersewire.torch.register(first)
    train(first, range(2))
    state = hook.state_dict()
    model = wrapped()
    hook = tersewire.torch.register(model)
    if dist.get_rank() == 0:
        hook.load_state_dict(state)
    if dist.get_world_size() == 1:
        train(model, [2])
        return
    with pytest.raises(tersewire.Error, match="came for step"):
        train(model, [2])


def case_counters_are_of_this_process():
    model = wrapped()
    hook = tersewire.torch.register(model, "fp32")
    hook.load_state_dict({**hook.state_dict(), "step": 1000})
    train(model, range(2))
    assert hook.counters.steps == 2
    # A value takes 32 bits; the number of steps before is nothing to its mean.
    if dist.get_world_size() > 1:
        assert " 32.000 " in hook.summary() and "2 steps" in hook.summary()


def case_a_state_that_does_not_fit_is_refused():
    model = wrapped()
    hook = tersewire.torch.register(model, "3lc")
    state = hook.state_dict()
    for change in ({"rank": 0, "ranks": 7}, {"pushed": {"other": torch.zeros(3)}},
                   {"pushed": {"conv.weight": torch.zeros(3)}}, {"other": 1},
                   {"exchange": "ring"}):
        with pytest.raises(tersewire.Error) as raised:
            hook.load_state_dict({**state, **change})
        assert raised.value.code == ErrorCode.kInvalidArgument
    for wrong in (None, 3, [None], "state"):
        with pytest.raises(tersewire.Error, match="is not a state; pass what state_dict"):
            hook.load_state_dict(wrong)


def case_ranks_that_differ_are_refused():
    with pytest.raises(tersewire.Error):
        tersewire.torch.register(wrapped(), "3lc", exchange="carrier-pigeon")
    with pytest.raises(tersewire.Error, match="3lc does not fit exchange ring"):
        tersewire.torch.register(wrapped(), "3lc", exchange="ring")
    with pytest.raises(tersewire.Error, match="int8 does not fit exchange all-reduce"):
        tersewire.torch.register(wrapped(), "int8", exchange="all-reduce")
    if dist.get_world_size() > 1:
        codec = "3lc:s=1.5" if dist.get_rank() == 1 else "3lc"
        with pytest.raises(tersewire.Error, match="rank 1 has another model"):
            tersewire.torch.register(wrapped(), codec)
        version = "0.0.1" if dist.get_rank() == 1 else tersewire.__version__
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tersewire, "__version__", version)
            with pytest.raises(tersewire.Error, match="rank 1 has another version of tersewire"):
                tersewire.torch.register(wrapped())


def case_sparse_gradients_are_refused():
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(9, 3, sparse=True)))
    with pytest.raises(tersewire.Error, match="module '0' has sparse gradients"):
        tersewire.torch.register(model)
    with pytest.raises(tersewire.Error, match="module 'Embedding' has sparse gradients"):
        tersewire.torch.register(DistributedDataParallel(torch.nn.Embedding(9, 3, sparse=True)))
    net = torch.nn.Sequential(torch.nn.Embedding(9, 3, sparse=True), torch.nn.Linear(3, 2))
    net[0].weight.requires_grad_(False)
    net.sparse = True  # of something else
    tersewire.torch.register(DistributedDataParallel(net)).close()


def case_parameters_that_ddp_ignores_stay_with_their_rank():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4))
    net.register_parameter("own", torch.nn.Parameter(torch.ones(2)))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["1.weight", ".own"])
    model = DistributedDataParallel(net)
    hook = tersewire.torch.register(model, "fp32")
    for step in range(2):
        model.zero_grad()
        numbers = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        model(torch.randn(8, 6, generator=numbers)).square().mean().backward()
        for parameter in (net[0].weight, net[0].bias, net[1].bias):
            check_replicas(parameter.grad)
        others = on_all_ranks(net[1].weight.grad)
        assert all(not torch.equal(*pair) for pair in zip(others, others[1:]))
    assert hook.counters.gradient_bytes == 2 * 4 * (30 + 5 + 4)


def backward(model):
    model(batch(0, dist.get_rank())).square().sum().backward()


def case_parameters_that_ddp_did_not_see_are_refused():
    def unfreeze(net):
        net.wide.bias.requires_grad_(True)

    def inject(net):
        net.out.register_parameter("lora", torch.nn.Parameter(torch.zeros(3)))

    for change, name in ((unfreeze, "wide.bias"), (inject, "out.lora")):
        net = Net()
        net.wide.bias.requires_grad_(False)
        model = DistributedDataParallel(net)
        hook = tersewire.torch.register(model)
        backward(model)
        change(net)
        with pytest.raises(tersewire.Error, match=f"parameter '{name}' was frozen, or not there"):
            backward(model)
        hook.close()
    net = Net()
    net.wide.bias.requires_grad_(False)
    model = DistributedDataParallel(net)
    unfreeze(net)
    hook = tersewire.torch.register(model)
    with pytest.raises(tersewire.Error, match="parameter 'wide.bias' was frozen, or not there"):
        backward(model)
    hook.close()


def case_parameters_that_are_frozen_too_late_are_refused():
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    model.module.wide.bias.requires_grad_(False)
    hook = tersewire.torch.register(model)
    with pytest.raises(tersewire.Error, match="parameter 'wide.bias' is frozen, and was trained"):
        backward(model)
    hook.close()


def case_a_model_that_is_not_wrapped_is_refused():
    with pytest.raises(tersewire.Error, match="wrap the model in DistributedDataParallel first"):
        tersewire.torch.register(Net())


def what_hooks_hold():
    """Threads of Python and of the library, and descriptors."""
    gc.collect()
    return len(threading.enumerate()), *(len(os.listdir(f"/proc/self/{what}"))
                                         for what in ("task", "fd"))


def check_nothing_is_left(before):
    """Fewer than before where a thread of a case before was still ending then."""
    for _ in range(600):  # a thread that has been waited for is there a moment longer
        if all(now <= then for now, then in zip(what_hooks_hold(), before)):
            return
        time.sleep(0.1)
    assert what_hooks_hold() == before


def case_close_ends_threads_and_connections():
    model = wrapped()
    train(model, range(2))
    before = what_hooks_hold()
    hook = tersewire.torch.register(model)
    train(model, range(2))
    assert all(now > then for now, then in zip(what_hooks_hold(), before))
    dist.barrier()
    hook.close()
    hook.close()
    check_nothing_is_left(before)
    assert hook.counters.steps == hook.state_dict()["step"] == 2 and "2 steps" in hook.summary()
    with pytest.raises(RuntimeError, match="closed"):
        train(model, [2])


def case_nothing_is_left_without_close():
    model = wrapped()
    train(model, range(2))
    before = what_hooks_hold()
    hook = tersewire.torch.register(model)
    train(model, range(2))
    del model, hook
    check_nothing_is_left(before)  # a thread may have the last bucket in its hands yet


def case_summary_prints_every_table_on_one_rank():
    model = wrapped()
    hook = tersewire.torch.register(model)
    train(model, range(2))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        tersewire.torch.summary()
    assert (hook.summary() in printed.getvalue()) == (dist.get_rank() == 0)


def case_a_second_hook_leaves_nothing_behind():
    model = wrapped()
    tersewire.torch.register(model)
    before = what_hooks_hold()
    with pytest.raises(RuntimeError):
        tersewire.torch.register(model)
    check_nothing_is_left(before)
    check_replicas(train(model, range(2)))


def case_the_exchange_goes_by_the_number_of_ranks():
    ranks = dist.get_world_size()
    for codec, few, adaptive in (("3lc", 4, 0), ("3lc:s=1.75", 4, 0), ("3lc:ef=21", 4, 4),
                                 ("topk", 4, 4), ("int8", 2, 2), ("terngrad", 2, 2)):
        model = wrapped()
        hook = tersewire.torch.register(model, codec)
        expected = "all-gather" if ranks <= few else "gradient-server"
        assert hook.state_dict()["exchange"] == expected, codec
        train_with(torch.optim.AdamW(model.parameters()), model, range(1))
        expected = "all-gather" if ranks <= adaptive else "gradient-server"
        state = hook.state_dict()
        assert state["exchange"] == expected, codec
        again = tersewire.torch.register(wrapped(), codec)
        again.load_state_dict(state)
        assert again.state_dict()["exchange"] == expected, codec
    hook = tersewire.torch.register(wrapped(), "int8")
    before = hook.state_dict()["exchange"]
    hook.change(codec="3lc")
    assert hook.state_dict()["exchange"] == before


def case_means_have_a_codec_of_their_own():
    hooks = {}
    for pull_codec in (None, "3lc:ef=off", tersewire.Codec("fp32")):
        model = wrapped()
        hook = tersewire.torch.register(model, "3lc:s=1.75", policy="", pull_codec=pull_codec,
                                        exchange=None if pull_codec else "gradient-server")
        check_replicas(train(model, range(3)))
        state = hook.state_dict()
        assert state["exchange"] == "gradient-server" and state["pushed"]
        assert bool(state["pulled"]) == (pull_codec is None)
        hooks[pull_codec and str(pull_codec)] = hook
    default, without, exact = hooks.values()
    if dist.get_world_size() > 1:
        assert exact.counters.sent_bytes > 2 * without.counters.sent_bytes
    def owed():
        state = default.state_dict()
        return sum(on_all_ranks(torch.cat([
            (pushed / dist.get_world_size() + state["pulled"].get(name, 0)).flatten()
            for name, pushed in sorted(state["pushed"].items())])))

    before = owed()
    default.change(pull_codec="3lc:ef=off")  # what servers owe goes to ranks that push
    assert not default.state_dict()["pulled"]
    torch.testing.assert_close(owed(), before)
    for match, options in (("exchange all-gather has no servers", {"exchange": "all-gather"}),
                           ("omit pull_codec", {"codec": "auto"}),
                           ("unknown codec 'pigeon'", {"pull_codec": "pigeon"}),
                           ("pull_codec=3 is not valid", {"pull_codec": 3})):
        with pytest.raises(tersewire.Error, match=match):
            tersewire.torch.register(wrapped(), **{"pull_codec": "int8", **options})


def case_means_for_adam_keep_no_residual():
    """A hook learns in its first step which optimizer there is; all ranks must say the same."""
    first = dist.get_rank() == 0

    def hook_of(make=torch.optim.AdamW, codec="3lc:s=1.5", **options):
        model = wrapped()
        hook = tersewire.torch.register(
            model, codec, policy="", **{"exchange": "gradient-server", **options})
        optimizer = make and make(model.parameters(), lr=0.01)
        train_with(optimizer, model, range(2)) if make else train(model, range(2))
        assert hook.counters.steps == 2 and hook.state_dict()["pushed"]
        return hook

    def keeps_one(*arguments, **options):
        state = hook_of(*arguments, **options).state_dict()
        assert state.get("adaptive", False) == (not state["pulled"])
        return bool(state["pulled"])

    with Lines() as lines:
        assert not keeps_one() and keeps_one(torch.optim.SGD)
        assert keeps_one(make=None)
    none = ("ranks have no optimizer with this model's parameters, so exchange, means and learning "
            "rates stay as they are, with which Adam learns less; make the optimizer before the first "
            "backward pass, or, if it has copies of the parameters, pass pull_codec")
    assert lines == ["gradients go through gradient-server and means are sent as 3lc:s=1.5,ef=off, "
                     "of which AdamW learns more",
                     "learning rates are multiplied by 1.75 in the steps of AdamW, which encoded "
                     "gradients make smaller; pass rate_gain=1 to leave them as they are",
                     none] * first
    with Lines() as lines:
        for codec in ("3lc", "topk"):
            hook_of(None, codec, exchange="all-gather")
    assert lines == [none] * first
    assert keeps_one(codec="topk") and keeps_one(pull_codec="3lc") and keeps_one(codec="3lc:ef=on")
    assert keeps_one(torch.optim.Adam if first else torch.optim.SGD) == (dist.get_world_size() > 1)
    # What is found is known when it matters.
    for changed, options in (({"codec": "3lc"}, {"codec": "topk"}),
                             ({"exchange": "gradient-server"}, {"exchange": "all-gather"})):
        hook = hook_of(**options)
        hook.change(**changed)
        assert not hook.state_dict()["pulled"]
    # Of one that is half SGD's.
    model = wrapped()
    hook = tersewire.torch.register(model, policy="", exchange="gradient-server")
    halves = list(model.parameters())[:4], list(model.parameters())[4:]
    optimizers = torch.optim.AdamW(halves[0]), torch.optim.SGD(halves[1], lr=0.01)
    train(model, range(2))
    assert hook.state_dict()["pulled"] and len(optimizers) == 2


def test_a_wrapper_may_copy_rates_within_its_step():
    outer, inner = {"lr": 0.1}, {"lr": 0.2}
    with Lines() as lines, tersewire.torch._rates.scaled_rates(((outer, 1.5), (inner, 1.5))):
        inner["lr"] = outer["lr"]
    assert [outer["lr"], inner["lr"]] == pytest.approx([0.1, 0.1]) and not lines


def case_spikes_stay_out_of_residuals():
    """In every bucket, with Adam, of gradients without the loss scale."""
    def delivered(make=torch.optim.AdamW, **options):
        """What came of a gradient, and what ranks keep, by its own: 9 times, and once 100 times as long."""
        model = wrapped()
        hook = tersewire.torch.register(model, policy="", exchange="all-gather",
                                        loss_scale=lambda: 256.0, **options)
        optimizer = make(model.parameters(), lr=0.0)
        came = 0
        for amplitude in [1.0] * 9 + [100.0]:
            optimizer.zero_grad()
            (256 * amplitude * model(batch(0, 0)).square().mean()).backward()
            came = came + torch.cat([p.grad.flatten() for p in model.module.parameters()]) / 256
            optimizer.step()
        pushed = hook.state_dict()["pushed"]
        kept = torch.cat([pushed[name].flatten() for name, _ in model.module.named_parameters()])
        alone = Net()
        alone.load_state_dict(model.module.state_dict())
        alone(batch(0, 0)).square().mean().backward()
        own = torch.cat([p.grad.flatten() for p in alone.parameters()])
        hook.close()
        return float((came + sum(on_all_ranks(kept)) / dist.get_world_size()) @ own / (own @ own))

    assert delivered() == pytest.approx(13, rel=1e-3)
    assert delivered(spike_limit=math.inf) == pytest.approx(109, rel=1e-3)
    assert delivered(torch.optim.SGD) == pytest.approx(109, rel=1e-3)


def case_the_rates_of_adam_are_the_codecs():
    """Within its steps, whoever takes them; outside nobody sees it."""
    first = dist.get_rank() == 0

    def noting(kind):
        class Noting(kind):
            def step(self, closure=None):
                self.rates = [group["lr"] for group in self.param_groups]
                return super().step(closure)

        Noting.__name__ = f"Noting{kind.__name__}"
        return Noting

    adam, sgd = noting(torch.optim.AdamW), noting(torch.optim.SGD)

    def rates(make=adam, codec="3lc", scheduled=False, alike=True, steps=2, **options):
        """Those that the optimizer stepped with, and those that it has."""
        model = wrapped()
        hook = tersewire.torch.register(model, codec, **options)
        optimizer = make(model.parameters(), lr=0.01)
        schedulers = []
        for step in range(steps):
            if scheduled:
                schedulers.append(torch.optim.lr_scheduler.StepLR(optimizer, 100))
            train_with(optimizer, model, [step])
            for scheduler in schedulers:
                scheduler.step()
        if alike:
            check_replicas(flat(model))
        assert "closure" in inspect.signature(optimizer.step).parameters
        return [optimizer.rates[0] / 0.01, optimizer.param_groups[0]["lr"] / 0.01, hook.rate_gain]

    def expect(gain, found):
        assert found == pytest.approx([gain, 1, gain])

    expect(1.5, rates())
    expect(2, rates(codec="3lc:s=1.75"))
    expect(1.25, rates(exchange="all-gather"))  # half as much: what was exchanged may be clipped
    expect(1.5, rates(codec="3lc:s=1.75", exchange="all-gather"))
    expect(1.5, rates(scheduled=True))  # by schedulers made before and after the first step
    for codec in ("int8", "3lc:ef=21"):
        expect(1, rates(codec=codec))
    expect(1, rates(warm_up_steps=2))  # which are sent as they are
    expect(1.5, rates(warm_up_steps=2, steps=3))
    expect(1, rates(sgd))
    expect(1, rates(rate_gain=1))
    expect(3, rates(sgd, rate_gain=3))
    if dist.get_world_size() > 1:
        expect(1, rates(adam if first else sgd, alike=False))
        with pytest.raises(tersewire.Error, match="other settings"):
            rates(rate_gain=1 + dist.get_rank())
    # Not twice by one that takes another's steps.
    model = wrapped()
    hook = tersewire.torch.register(model)
    inner = adam(model.parameters(), lr=0.01)
    outer = types.SimpleNamespace(calls=0)

    class Outer(torch.optim.Optimizer):
        def __init__(self):
            self.optim = inner
            super().__init__(inner.param_groups, {})

        def step(self):
            outer.calls += 1
            inner.step()

    train_with(Outer(), model, range(2))
    assert outer.calls == 2 and inner.rates == pytest.approx([0.015])
    # Of an optimizer that changes its own rates.
    class Decaying(adam):
        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                group["lr"] *= 0.5

    decayed = wrapped()
    tersewire.torch.register(decayed)
    decaying = Decaying(decayed.parameters(), lr=0.01)
    train_with(decaying, decayed, range(3))
    assert decaying.rates == pytest.approx([0.00375])
    assert decaying.param_groups[0]["lr"] == pytest.approx(0.00125)
    # The codec's that there is, and none after the hook.
    hook.change(codec="3lc:s=2")
    train_with(inner, model, range(2, 4))
    assert inner.rates == pytest.approx([0.0225])
    hook.change(rate_gain=4)
    backward(model)
    hook.close()
    inner.step()
    assert inner.rates == pytest.approx([0.04])
    inner.step()  # with nothing that was exchanged since
    assert inner.rates == [0.01] and inner.param_groups[0]["lr"] == 0.01
    for wrong in (0, -1, math.nan, math.inf, "2"):
        with pytest.raises(tersewire.Error, match="rate_gain=.* is not valid; pass a number above 0"):
            tersewire.torch.register(wrapped(), rate_gain=wrong)
    model = wrapped()
    hook = tersewire.torch.register(model)
    train_with(sgd(model.parameters(), lr=0.01), model, range(1))
    with pytest.raises(tersewire.Error, match="leaves the optimizer's steps as they are"):
        hook.change(rate_gain=2)
    # Where there is nothing to multiply.
    model = wrapped()
    hook = tersewire.torch.register(model, rate_gain=2)
    with pytest.raises(tersewire.Error, match="rate_gain is for an optimizer that there is"):
        train(model, range(1))


class NotingAdamW(torch.optim.AdamW):
    """Notes the rates of its groups in its last step."""

    def step(self, closure=None):
        loss = None if closure is None else closure()
        self.rates = [group["lr"] for group in self.param_groups]
        super().step()
        return loss


def case_rates_are_those_of_the_hook_whose_means_are_taken():
    # A model that is wrapped again, whose earlier hooks the script keeps, or one rank's.
    net = Net()
    optimizer = NotingAdamW(net.parameters(), lr=0.01)
    hooks = []
    for phase in range(3):
        model = DistributedDataParallel(net)
        hook = tersewire.torch.register(model)
        if phase == 0 or dist.get_rank() == 0:
            hooks.append(hook)
        train_with(optimizer, model, range(2))
        assert optimizer.rates == pytest.approx([0.015])
    train_with(optimizer, DistributedDataParallel(net), range(2))
    assert optimizer.rates == [0.01] and len(hooks) > 0
    # One optimizer for two models.
    for codecs, expected in (("3lc", "3lc"), [0.015, 0.015]), (("3lc", "int8"), [0.015, 0.01]):
        models = [wrapped() for _ in codecs]
        hooks = [tersewire.torch.register(*both) for both in zip(models, codecs)]
        optimizer = NotingAdamW([{"params": model.parameters()} for model in models], lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            for model in models:
                backward(model)
            optimizer.step()
        assert optimizer.rates == pytest.approx(expected)
    models = [wrapped(), wrapped()]
    hooks = [tersewire.torch.register(models[0]), tersewire.torch.register(models[1], "3lc:s=1.75")]
    optimizer = torch.optim.AdamW([*models[0].parameters(), *models[1].parameters()])
    for model in models:
        backward(model)
    with pytest.raises(tersewire.Error, match="multiplied by 1.5 and 2; give each model's"):
        optimizer.step()


def case_a_closure_sees_rates_of_its_own():
    model = wrapped()
    tersewire.torch.register(model, warm_up_steps=2)
    optimizer = NotingAdamW(model.parameters(), lr=0.01)
    seen, used = [], []

    def closure():
        optimizer.zero_grad()
        backward(model)
        seen.append(optimizer.param_groups[0]["lr"])
        if len(seen) == 4:
            optimizer.param_groups[0]["lr"] = 0.02
        return 0.5

    for given in ([closure], [closure], [], [closure]):
        assert optimizer.step(*given, **({} if given else {"closure": closure})) == 0.5
        used += optimizer.rates
    assert seen == [0.01] * 4 and used == pytest.approx([0.01, 0.01, 0.015, 0.03])
    assert optimizer.param_groups[0]["lr"] == 0.02


def case_wrappers_are_what_they_wrap():
    class Shared(torch.optim.Optimizer):  # as SAM
        def __init__(self, parameters):
            self.base_optimizer = NotingAdamW(parameters, lr=0.01)
            super().__init__(self.base_optimizer.param_groups, {})
            self.param_groups = self.base_optimizer.param_groups

        def step(self):
            self.base_optimizer.step()

    class OwnGroups(torch.optim.Optimizer):
        def __init__(self, parameters):
            parameters = list(parameters)
            super().__init__(parameters, {"lr": 0.01})
            self.inner = NotingAdamW(parameters, lr=0.01)

        def step(self):
            self.inner.step()

    class LocalSGDOptimizer(OwnGroups):
        pass

    for kind in (Shared, OwnGroups, LocalSGDOptimizer):
        for hooked in (True, False):
            model = wrapped() if hooked else Net()
            optimizer = kind(model.parameters())
            inner = getattr(optimizer, "inner", None) or optimizer.base_optimizer
            if hooked:
                tersewire.torch.register(model)
            else:
                optimizer = tersewire.torch.DistributedOptimizer(optimizer, model)
            for _ in range(2):
                optimizer.zero_grad()
                backward(model)
                optimizer.step()
            assert inner.rates == pytest.approx([0.015]) and inner.param_groups[0]["lr"] == 0.01


def case_a_policy_decides_on_rates():
    for policy, codec, expected in (("*:fp32", "3lc", 0.01), ("*:3lc:s=1.75", "fp32", 0.02)):
        model = wrapped()
        hook = tersewire.torch.register(model, codec, policy=policy, exchange="gradient-server")
        optimizer = NotingAdamW(model.parameters(), lr=0.01)
        train_with(optimizer, model, range(2))
        assert optimizer.rates == pytest.approx([expected])
        assert hook.rate_gain == pytest.approx(expected / 0.01)


def case_a_hook_keeps_no_optimizer_alive():
    for options in ({}, {"rate_gain": 1}):
        model = wrapped()
        hook = tersewire.torch.register(model, **options)
        optimizer = torch.optim.AdamW(model.parameters())
        if options:
            with_step = vars(optimizer).copy()
        train_with(optimizer, model, range(1))
        assert not options or vars(optimizer).keys() == with_step.keys()
        reference = weakref.ref(optimizer)
        gc.disable()
        del optimizer
        gc.enable()
        assert reference() is None and hook.counters.steps == 1


def case_a_state_without_residuals_of_means_is_for_such_a_run():
    model = wrapped()
    hook = tersewire.torch.register(model, policy="", pull_codec="3lc:ef=off")
    train(model, range(2))
    state = hook.state_dict()
    again = wrapped()
    again.load_state_dict(model.state_dict())
    default = tersewire.torch.register(again, policy="", exchange="gradient-server")
    default.load_state_dict(state)
    assert torch.equal(train(again, range(2, 4)), train(model, range(2, 4)))
    kept = tersewire.torch.register(wrapped(), policy="", pull_codec="3lc")
    with pytest.raises(tersewire.Error, match="kept no residual of means.*the pull_codec of that"):
        kept.load_state_dict(state)
    # And one with them is, whatever the optimizer.
    with_adam = wrapped()
    hook = tersewire.torch.register(with_adam, policy="", exchange="gradient-server")
    model = wrapped()
    before = tersewire.torch.register(model, policy="", pull_codec="3lc")
    train(model, range(2))
    hook.load_state_dict(before.state_dict())
    train_with(torch.optim.AdamW(with_adam.parameters()), with_adam, range(2))
    assert hook.state_dict()["pulled"] and not hook.state_dict()["adaptive"]


def case_a_run_without_residuals_of_means_goes_on_to_the_same_bits():
    def run(steps, saved=None):
        model = wrapped()
        hook = tersewire.torch.register(model, policy="", exchange="gradient-server")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        if saved:
            states, weights, of_optimizer = saved
            model.load_state_dict(weights)
            optimizer.load_state_dict(of_optimizer)
            hook.load_state_dict(states)
            assert not hook.state_dict()["pulled"]
        for step in steps:
            if step == 4:  # in later codecs as well
                hook.change(codec="3lc:s=2")
            check_replicas(train_with(optimizer, model, [step]))
        assert not hook.state_dict()["pulled"]
        saved = copy.deepcopy((hook.state_dict(), model.state_dict(), optimizer.state_dict()))
        return flat(model), saved

    whole, _ = run(range(5))
    _, saved = run(range(3))
    assert torch.equal(run(range(3, 5), saved)[0], whole)


def case_a_group_of_some_ranks():
    """The others know nothing of it."""
    some = dist.new_group([0, 1]) if dist.get_world_size() == 3 else dist.group.WORLD
    if dist.get_rank() < 2:
        model = wrapped(process_group=some)
        hook = tersewire.torch.register(model, tersewire.Codec("fp32"))
        train(model, range(2))
        assert hook.rank == dist.get_rank() and hook.counters.steps == 2
        assert (hook.counters.sent_bytes > 0) == (dist.get_world_size() > 1)


def case_groups_that_overlap():
    """As in a mesh: a rank has several hooks at once."""
    pairs = list(itertools.combinations(range(dist.get_world_size()), 2))
    groups = [group for pair, group in [(pair, dist.new_group(pair)) for pair in pairs]
              if dist.get_rank() in pair]
    models = [wrapped(process_group=group) for group in groups]
    hooks = [tersewire.torch.register(model, "fp32") for model in models]
    for step in range(3):
        for model in models:
            train(model, [step])
    for model, hook, group in zip(models, hooks, groups):
        assert torch.equal(flat(model), train(wrapped(process_group=group), range(3)))
        assert hook.counters.steps == 3


def case_arguments_that_cannot_be_are_refused():
    model = wrapped()
    for match, options in (("warm_up_steps='10' is not valid", {"warm_up_steps": "10"}),
                           ("warm_up_steps=-5 is not valid", {"warm_up_steps": -5}),
                           ("loss_scale=1024.0 cannot be called", {"loss_scale": 1024.0}),
                           ("on_step=3 cannot be called", {"on_step": 3}),
                           ("threads=0 is not valid", {"threads": 0}),
                           ("timeout=4 is not valid", {"timeout": 4}),
                           ("unknown exchange 'pigeon'", {"exchange": "pigeon"}),
                           ("has no mean gradient", {"codec": "fp32", "exchange": "weight-average"})):
        with pytest.raises(tersewire.Error, match=match) as raised:
            tersewire.torch.register(model, **options)
        assert raised.value.code == ErrorCode.kInvalidArgument


def case_a_failure_ends_the_backward_pass():
    model = wrapped()
    tersewire.torch.register(model, "3lc:non-finite=reject", policy="")
    with pytest.raises(tersewire.Error, match="NaN") as raised:
        model(batch(0, 0) * float("nan")).square().mean().backward()
    assert raised.value.code in (ErrorCode.kInvalidArgument, ErrorCode.kAborted)


def hook_of_an_mlp(rank, ranks, path, exchange):
    dist.init_process_group("gloo", init_method=f"file://{path}/{exchange}", rank=rank,
                            world_size=ranks)
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(784, 392), torch.nn.Linear(392, 50), torch.nn.Linear(50, 10)))
    hook = tersewire.torch.register(model, "int8", policy="", exchange=exchange)
    for _ in range(3):
        model(torch.randn(4, 784)).square().sum().backward()
    hook.close()  # its server may still be sending
    sent = sum(on_all_ranks(torch.tensor([hook.counters.sent_bytes]))).item()
    (path / f"{exchange}-{rank}").write_text(str(sent))


PROGRAM = os.environ.get("TERSEWIRE_PROGRAM")


@pytest.mark.skipif(not PROGRAM, reason="TERSEWIRE_PROGRAM names no tersewire program")
@pytest.mark.parametrize("exchange, servers", [
    ("all-gather", []), ("gradient-server", ["--servers", "colocated"]), ("ring", [])])
def test_a_hook_sends_what_the_program_does(exchange, servers, tmp_path):
    """Of a codec whose payloads are as long whatever the values."""
    start_ranks(hook_of_an_mlp, (2, tmp_path, exchange), 2)
    sent = int((tmp_path / f"{exchange}-0").read_text())
    assert sent == bytes_sent(exchange, servers, 6) - bytes_sent(exchange, servers, 3)


def bytes_sent(exchange, servers, steps):
    """By all nodes of a job of the program's, from its start to its end. (What it says of a step ends
    with a worker's last pull, when the server beside that may still have a mean to send.)"""
    command = [PROGRAM, "bench", "exchange", "--model", "mlp", "--workers", "2", "--exchange",
               exchange, *servers, "--codec", "int8", "--baseline", "none", "--policy", "",
               "--steps", str(steps), "--warm-up", "0", "--json"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)[0]["total_sent_bytes"]


def loses_rank_1(rank, ranks, path, how):
    of_the_group = 10 if how == "stops, for the group's limit" else 60
    dist.init_process_group("gloo", init_method=f"file://{path}/meeting", rank=rank,
                            world_size=ranks, timeout=datetime.timedelta(seconds=of_the_group))
    model = wrapped(broadcast_buffers=False)  # so that the hook is the first to wait for it
    own = {"timeout": datetime.timedelta(seconds=3)} if how == "stops" else {}
    exchange = how if how in CODECS else "gradient-server"
    hook = tersewire.torch.register(model, CODECS[exchange][0], exchange=exchange, **own)
    train(model, range(2))
    dist.barrier()
    if rank == 1 and how == "dies":
        os._exit(0)
    if rank == 1 and how in CODECS:
        time.sleep(2)  # the others wait for it by then
        hook.close()
        return
    if rank == 1:
        (path / "pid").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    try:
        train(model, range(2, 4))
        said = "nothing"
    except tersewire.Error as error:
        said = f"{error.code.name}: {error}"
    (path / f"said-{rank}").write_text(said)
    if rank == 0 and how.startswith("stops"):
        os.kill(int((path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("how, expected", [
    ("dies", "kAborted: .*rank 1 is gone"),
    ("stops", "(kAborted|kDeadlineExceeded): .*has heard nothing from rank 1 for 3"),
    ("stops, for the group's limit", "(kAborted|kDeadlineExceeded): .*has heard nothing from rank 1 for 10"),
    *[(exchange, "(kAborted|kUnavailable): .*rank 1 has left the job") for exchange in CODECS]])
def test_the_others_hear_of_a_rank_that_is_lost(how, expected, tmp_path):
    context = start_ranks(loses_rank_1, (3, tmp_path, how), 3, join=False)
    for process in context.processes:
        process.join()
    for rank in (0, 2):
        assert re.search(expected, (tmp_path / f"said-{rank}").read_text())


def case_ranks_without_data_join():
    """As with DistributedDataParallel's own exchange."""
    ranks = dist.get_world_size()
    steps = range(2 + dist.get_rank())
    found = []
    for ours in (False, True):
        model = wrapped()
        hook = tersewire.torch.register(model, "fp32") if ours else None
        with model.join():
            train(model, steps)
        found.append(flat(model))
        check_replicas(found[-1])
        if hook is not None:
            assert hook.counters.steps == 1 + ranks
            hook.close()
    torch.testing.assert_close(*found)
    # One without any, also where optimizers are asked for and unused parameters are searched for.
    model = wrapped(find_unused_parameters=True)
    hook = tersewire.torch.register(model)
    optimizer = torch.optim.AdamW(model.parameters())
    with model.join():
        train_with(optimizer, model, range(3 * (dist.get_rank() == 0)))
    check_replicas(flat(model))
    assert hook.counters.steps == 3


def case_a_hook_state_is_for_one_model():
    for wrong, sentence in (({"codec": 3}, "codec=3 is not valid"),
                            ({"group": "x"}, "has its own process group")):
        with pytest.raises(tersewire.Error, match=sentence):
            tersewire.torch.HookState(**wrong)
    for wrong in (None, "3lc", tersewire.torch.HookState):
        model = wrapped()
        model.register_comm_hook(wrong, tersewire.torch.hook)
        with pytest.raises(tersewire.Error, match="is not valid; pass a tersewire.torch.HookState"):
            train(model, range(1))
    state = tersewire.torch.HookState("fp32")
    models = [wrapped() for _ in range(2)]
    for model in models:
        model.register_comm_hook(state, tersewire.torch.hook)
    train(models[0], range(1))
    with pytest.raises(tersewire.Error, match="a parameter is of another model") as raised:
        train(models[1], range(1))
    assert raised.value.code == tersewire.ErrorCode.kInvalidArgument
    state.hook.close()
    # A model that is wrapped twice.
    net = Net()
    both = DistributedDataParallel(net), DistributedDataParallel(net)
    both[1].register_comm_hook(tersewire.torch.HookState("fp32"), tersewire.torch.hook)
    with pytest.raises(tersewire.Error, match="2 DistributedDataParallel have this bucket's"):
        backward(both[1])


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_case(ranks, tmp_path):
    run_on_ranks(CASES, ranks, tmp_path)


@pytest.mark.parametrize("ranks", [4, 5])
def test_the_exchange_goes_by_the_number_of_ranks(ranks, tmp_path):
    run_on_ranks([case_the_exchange_goes_by_the_number_of_ranks], ranks, tmp_path)


def on_a_gpu():
    torch.manual_seed(1)
    return DistributedDataParallel(Net().cuda(), device_ids=[0], bucket_cap_mb=0.1)


def gpu_hook_is_plain_ddp():
    plain = train(on_a_gpu(), range(STEPS)).cpu()
    for exchange, codecs in CODECS.items():
        for codec in ["fp32", *codecs]:
            model = on_a_gpu()
            hook = tersewire.torch.register(model, codec, exchange=exchange, seed=5)
            ours = train(model, range(STEPS)).cpu()
            check_replicas(ours)
            if codec == "fp32":
                torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
            hook.close()


def gpu_gradients_are_averaged():
    parameter = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
    optimizer = tersewire.torch.DistributedOptimizer(torch.optim.SGD([parameter], lr=1),
                                                     codec="fp32")
    parameter.grad = torch.full_like(parameter, dist.get_rank())
    optimizer.step()
    mean = sum(range(dist.get_world_size())) / dist.get_world_size()
    assert parameter.detach().cpu().tolist() == [-mean] * 1000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_on_a_gpu(ranks, tmp_path):
    run_on_ranks([gpu_hook_is_plain_ddp, gpu_gradients_are_averaged], ranks, tmp_path)


@pytest.mark.parametrize("number, steps", [(1, 20), (2, 20), (3, 20), (4, 4)])
def test_the_examples_of_the_documentation_run(number, steps, tmp_path):
    text = (ROOT / "docs" / "python.md").read_text()
    example = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[number]
    (tmp_path / "example.py").write_text(example)
    printed = run_program(tmp_path / "example.py")
    assert "0.weight" in printed and f"{steps} steps" in printed


# What is registered first at exit is called last.
THREADS = """
import atexit, sys, threading
atexit.register(lambda: print(*[thread.name for thread in threading.enumerate()]))
import torch, torch.distributed as dist, tersewire.torch
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
hook = tersewire.torch.register(model)
model(torch.ones(1, 3)).sum().backward()
print(*[thread.name for thread in threading.enumerate()])
"""


def test_its_thread_ends_before_python_does(tmp_path):
    printed = subprocess.run([sys.executable, "-c", THREADS, tmp_path / "meeting"], check=True,
                             capture_output=True, text=True).stdout
    before, after = printed.splitlines()
    assert "tersewire" in before and "tersewire" not in after


def save_state(rank, ranks, path):
    dist.init_process_group("gloo", init_method=f"file://{path}/meeting-{ranks}", rank=rank,
                            world_size=ranks)
    model = wrapped()
    hook = tersewire.torch.register(model, "3lc:s=1.75", exchange="gradient-server")
    train(model, range(3))
    torch.save(hook.state_dict(), path / f"state-{rank}")
    dist.barrier()


def load_states(rank, ranks, path):
    dist.init_process_group("gloo", init_method=f"file://{path}/meeting-{ranks}", rank=rank,
                            world_size=ranks)
    states = [torch.load(file) for file in sorted(path.glob("state-*"))]
    hook = tersewire.torch.register(wrapped(), "3lc:s=1.75", exchange="gradient-server")
    with pytest.raises(tersewire.Error, match="not those of all ranks"):
        hook.load_state_dict([*states[:-1], {**states[-1], "ranks": len(states) + 1}])
    with pytest.raises(tersewire.Error, match="use states saved after the same step"):
        hook.load_state_dict([*states[:-1], {**states[-1], "step": STEPS + 1}])
    hook.load_state_dict(states)
    loaded = hook.state_dict()
    assert loaded["step"] == 3
    for direction in ("pushed", "pulled"):
        for name in states[0][direction]:
            before = sum(state[direction].get(name, 0) for state in states)
            mine = loaded[direction].get(name, torch.zeros_like(before))
            torch.testing.assert_close(sum(on_all_ranks(mine)), before)
            assert before.any()
    dist.barrier()  # Gloo's threads take down a rank that ends while another talks to it


def test_residuals_move_to_another_number_of_ranks(tmp_path):
    start_ranks(save_state, (3, tmp_path), 3)
    start_ranks(load_states, (2, tmp_path), 2)


def test_buckets_on_an_accelerator_wait_for_their_gradients_on_one_stream_a_thread(monkeypatch):
    """With stand-ins for streams: neither thread waits for a later bucket's gradients."""
    done = collections.defaultdict(list)

    def note(what):
        done[threading.current_thread().name].append(what)

    class Stream:
        def __init__(self, device):
            note("a stream")

        def wait_event(self, event):
            note(f"waits for {event}")

    monkeypatch.setattr(torch, "Stream", Stream)
    monkeypatch.setattr(torch.accelerator, "set_stream", lambda stream: note("is on it"))
    worker = types.SimpleNamespace(begin_step=lambda stood: None, close=lambda: None)
    threads = tersewire.torch._hook._Threads(worker, 0)
    futures = []
    for number in range(2):
        bucket = types.SimpleNamespace(
            buffer=torch.zeros(1), push=lambda _, number=number: note(f"pushes {number}"),
            mean=lambda _, number=number: note(f"takes {number}"))
        futures.append(torch.futures.Future())
        threads.pushes.put(tersewire.torch._hook._Task(
            number == 0, 0.0, bucket, futures[-1], f"gradients {number}", lambda bucket: None))
    torch.futures.wait_all(futures)
    threads.close()
    assert done == {f"tersewire {name}": [
        "a stream", "is on it", "waits for gradients 0", f"{verb} 0",
        "is on it", "waits for gradients 1", f"{verb} 1"] for name, verb in (("push", "pushes"),
                                                                         ("mean", "takes"))}
