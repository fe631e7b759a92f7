"""Several backward passes a step, and gradients that scripts throw away."""

import contextlib

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire.torch
from ranks import Lines, check_replicas, flat, run_on_ranks
from tersewire.torch import DistributedOptimizer, register

WAYS = [  # of zeroing gradients, and of DistributedDataParallel to keep them
    {"set_to_none": True}, {"set_to_none": False}, {"set_to_none": True, "gradient_as_bucket_view": True},
    {"set_to_none": False, "gradient_as_bucket_view": True},
    {"set_to_none": False, "gradient_as_bucket_view": True, "find_unused_parameters": True}]
STEPS = 41


def linear(seed=0, outputs=8):
    torch.manual_seed(seed)
    return torch.nn.Linear(32, outputs)


def inputs(step, part=0):
    numbers = torch.Generator().manual_seed(1000 * step + 10 * part + dist.get_rank())
    return torch.randn(16, 32, generator=numbers)


def train(codec, passes, quiet=False, set_to_none=True, **options):
    """Losses of every tenth step whose gradient comes from several passes."""
    model = DistributedDataParallel(linear(), **options)
    hook = register(model, codec, policy="") if codec else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none)
        for part in range(passes):
            exchanges = not quiet or part == passes - 1
            with contextlib.nullcontext() if exchanges else model.no_sync():
                loss = (model(inputs(step, part)) - 1).square().mean() / passes
                loss.backward()
        optimizer.step()
        if step % 10 == 0:
            losses.append(loss.item())
    check_replicas(flat(model))
    if hook is not None:
        hook.close()
    return torch.tensor(losses)


def case_several_passes_a_step_learn_as_without_a_codec():
    plain = train(None, 4)
    for codec in ("3lc", "3lc:s=1.75", "int8"):
        found = train(codec, 4)
        assert (found - plain).abs().max() < 0.1 * plain[0] and found[-1] < 0.2 * found[0], codec


def case_several_passes_a_step_are_those_without_synchronization():
    """To within the codec: of an exact one to within the roundings of sums."""
    torch.testing.assert_close(train("fp32", 4), train("fp32", 4, quiet=True))
    several, one = train("3lc", 2), train("3lc", 2, quiet=True)
    assert (several - one).abs().max() < 0.05 * one[0]


def case_several_passes_are_the_same_however_gradients_are_kept():
    expected = train("3lc", 3)
    for way in WAYS:
        torch.testing.assert_close(train("3lc", 3, **way), expected)


def case_one_pass_is_what_it_was():
    """Of many steps, which keep nothing of delivered means."""
    model = DistributedDataParallel(linear())
    hook = register(model, "3lc")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(inputs(step)).square().mean().backward()
        assert not hook._deliveries._bases
        optimizer.step()
    hook.close()


def case_a_pass_after_clipping_adds_to_what_was_clipped():
    model = DistributedDataParallel(linear())
    hook = register(model, "fp32")
    model(inputs(0)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    clipped = [parameter.grad.clone() for parameter in model.parameters()]
    model(inputs(1)).square().mean().backward()
    alone = DistributedDataParallel(linear())
    alone(inputs(1)).square().mean().backward()
    for parameter, before, other in zip(model.parameters(), clipped, alone.parameters()):
        torch.testing.assert_close(parameter.grad, before + other.grad)
    hook.close()


def case_gradients_that_a_script_sets_are_all_new():
    for zeroes in (True, False):
        model = linear()
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model, "fp32")
        for step in range(1, 4):  # not zeros, as of what no rank uses
            if zeroes:
                optimizer.zero_grad()
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, step + dist.get_rank())
            optimizer.step()
            mean = step + (dist.get_world_size() - 1) / 2
            assert all((parameter.grad == mean).all() for parameter in model.parameters())
        optimizer.averager.close()


def case_gradients_with_graphs_are_added_to():
    """Which are other tensors after each pass."""
    found = []
    for each in (False, True):
        model = linear()
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model, "fp32")
        for part in range(3):
            model(inputs(0, part)).square().mean().backward(create_graph=True)
            if each or part == 2:
                optimizer.synchronize()
        found.append(model.weight.grad.detach().clone())
        optimizer.averager.close()
    torch.testing.assert_close(*found)


def discriminator(make):
    """A model, and what makes an exchange and a step of it."""
    model = linear(outputs=300)
    if make == "register":
        model = DistributedDataParallel(model)
        hook = register(model, "3lc", policy="", exchange="all-gather")
        return model, torch.optim.SGD(model.parameters(), lr=0.0), hook
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model, "3lc",
                                     policy="", exchange="all-gather")
    return model, optimizer, optimizer.averager


def delivered(make, throws_away, set_to_none=True):
    """The mean gradients that an optimizer steps with."""
    model, optimizer, averager = discriminator(make)
    found = []
    for step in range(10):
        if throws_away:
            optimizer.zero_grad(set_to_none)
            (-100 * model(inputs(step)).square().mean()).backward()
            if make != "register":
                optimizer.synchronize()
        optimizer.zero_grad(set_to_none)
        model(inputs(0)).square().mean().backward()
        optimizer.step()
        found.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    averager.close()
    return torch.stack(found)


def case_gradients_that_are_thrown_away_leave_no_trace():
    for make in ("register", "wrap"):
        expected = delivered(make, throws_away=False)
        for set_to_none in (True, False):
            assert torch.equal(delivered(make, True, set_to_none), expected), (make, set_to_none)


def case_what_is_thrown_away_unseen_is_warned_of_once():
    """Without an optimizer nobody knows whether a gradient was applied."""
    tersewire.torch._tensors.say_once.cache_clear()
    model = DistributedDataParallel(linear())
    hook = register(model, "3lc")
    with Lines() as lines:
        for step in range(3):
            model.zero_grad()
            model(inputs(step)).square().mean().backward()
    (line,) = [line for line in lines if "thrown away" in line]
    assert "make the optimizer before the first backward pass" in line
    hook.close()


def case_a_step_by_hand_is_a_step():
    tersewire.torch._tensors.say_once.cache_clear()
    model = DistributedDataParallel(linear())
    hook = register(model, "3lc")
    with Lines() as lines:
        for step in range(3):
            model.zero_grad()
            model(inputs(step)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
    assert not [line for line in lines if "thrown away" in line]
    hook.close()


class OfData(torch.optim.SGD):
    """That changes parameters where their versions do not show it, as some do."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-group["lr"])


def case_a_step_that_versions_do_not_show_is_a_step():
    found = []
    for make in (OfData, torch.optim.SGD):
        model = DistributedDataParallel(linear())
        hook = register(model, "3lc", policy="")
        optimizer = make(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(inputs(step)).square().mean().backward()
            optimizer.step()
        found.append(flat(model))
        hook.close()
    torch.testing.assert_close(*found)


def case_an_optimizer_that_is_made_later_applies_gradients_too():
    found = []
    for later in False, True:
        model = DistributedDataParallel(linear())
        hook = register(model, "3lc:s=1.75", policy="")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            if later and step == 2:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            model(inputs(step)).square().mean().backward()
            optimizer.step()
        found.append(flat(model))
        hook.close()
    assert torch.equal(*found)


def case_a_wrapped_optimizer_exchanges_what_is_new_after_synchronize():
    plain, found = [], []
    for codec, losses in (("fp32", plain), ("3lc:s=1.75", found)):
        model = linear()
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, codec,
                                         policy="")
        for step in range(STEPS):
            optimizer.zero_grad()
            for part in range(4):
                loss = (model(inputs(step, part)) - 1).square().mean() / 4
                loss.backward()
                optimizer.synchronize()
            optimizer.step()
            losses.append(loss.item())
        check_replicas(flat(model))
        optimizer.averager.close()
    assert abs(found[-1] - plain[-1]) < 0.1 * plain[0] and found[-1] < 0.2 * found[0]


def case_nothing_of_a_model_stays_with_its_parameters():
    net = linear()
    model = DistributedDataParallel(net)
    hook = register(model, "3lc")
    model(inputs(0)).square().mean().backward()
    assert net.weight._backward_hooks
    hook.close()
    del model, hook
    import gc
    gc.collect()
    assert not net.weight._backward_hooks


CASES = [case for name, case in sorted(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_on_ranks(case, ranks, tmp_path):
    run_on_ranks([case], ranks, tmp_path)
