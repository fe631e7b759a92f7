"""LocalUpdates between sites: two of two ranks in DistributedDataParallel, on 4 processes with Gloo."""

import copy
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import hubs
import tersewire
import tersewire.torch
from ranks import check_replicas, flat, network, on_all_ranks, run_on_ranks, sgd, train
from support import ROOT, torchrun
from tersewire.torch import HubGroup, LocalUpdates

SITES = [0, 1], [2, 3]


def first_in_site():
    return dist.get_rank() in (0, 2)


class Sites:
    """One rank's part of a run."""

    def __init__(self, codec="fp32", every=3, seed=1, **options):
        groups = [dist.new_group(site) for site in SITES]
        between = dist.new_group([0, 2])
        self.model = DistributedDataParallel(network(seed + dist.get_rank()),
                                             process_group=groups[dist.get_rank() // 2])
        self.optimizer = sgd(self.model)
        self.local = LocalUpdates(self.model, self.optimizer, every, codec=codec, group=between,
                                  **options)

    def train(self, steps):
        return train(self.model, self.optimizer, steps)

    def state(self):
        return copy.deepcopy((self.local.state_dict(), self.model.state_dict(),
                              self.optimizer.state_dict()))

    def load(self, state):
        self.local.load_state_dict(state[0])
        self.model.load_state_dict(state[1])
        self.optimizer.load_state_dict(state[2])


def reference(every, delay, steps):
    """One process with a model for each site, and plain averaging between them."""
    models = [network() for _ in SITES]
    optimizers = [sgd(model) for model in models]
    pending = None
    for step in range(steps):
        for site, model, optimizer in zip(SITES, models, optimizers):
            optimizer.zero_grad()
            for rank in site:
                numbers = torch.Generator().manual_seed(1000 * step + rank)
                loss = model(torch.randn(8, 64, generator=numbers)).square().mean()
                (loss / len(site)).backward()
            optimizer.step()
        if (step + 1) % every == 0:
            then = [flat(model) for model in models]
            pending = step + delay
        if pending == step:
            shared = sum(then) / len(then)
            for model, before in zip(models, then):
                taken = shared + flat(model) - before
                torch.nn.utils.vector_to_parameters(taken, model.parameters())
    return [flat(model) for model in models]


def case_a_site_is_a_rank():
    for delay in (0, 1):
        run = Sites(outer="sgd:lr=1", delay=delay)
        values = run.train(range(8))
        expected = reference(3, delay, 8)[dist.get_rank() // 2]
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-5)
        first, second = on_all_ranks(values)[::2]
        assert not torch.equal(first, second)  # within a round sites part
        run.local.synchronize()
        check_replicas(flat(run.model))
        assert (run.local.rank, run.local.rounds) == (dist.get_rank() // 2, 3)
        assert (run.local.counters.sent_bytes > 0) == first_in_site()
        run.local.close()


def case_fragments_and_codecs():
    run = Sites(codec="3lc", every=4, fragments=2)
    hook = tersewire.torch.register(run.model, "int8")
    run.train(range(8))
    run.local.change(codec="3lc:s=1.75")
    run.train(range(8, 12))
    run.local.synchronize()
    check_replicas(flat(run.model))
    hook.close()
    run.local.close()


def case_a_resumed_run_is_the_uninterrupted_one():
    for steps in (6, 7):  # after a round, and within one
        run = Sites(codec="3lc")
        run.train(range(steps))
        saved = run.state()
        expected = run.train(range(steps, 10))
        run.local.close()
        again = Sites(codec="3lc", seed=5)
        again.load(saved)
        assert torch.equal(again.train(range(steps, 10)), expected)
        again.local.close()


def case_one_rank_tests_other_weights_between_two_rounds():
    run = Sites(codec="3lc")
    run.train(range(3))
    for whose in ((1,), (0,), (0, 2)):
        expected = flat(run.model)
        if dist.get_rank() in whose:
            torch.nn.utils.vector_to_parameters(expected / 2, run.model.parameters())
            torch.nn.utils.vector_to_parameters(expected.clone(), run.model.parameters())
        run.local.synchronize()
        assert torch.equal(flat(run.model), expected) and run.local.rounds == 1
    run.train(range(3, 6))
    check_replicas(flat(run.model))
    run.local.close()


def case_states_that_do_not_fit():
    run = Sites()
    run.train(range(3))
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, run.local.state_dict())
    with pytest.raises(tersewire.Error, match="not those of a site's first rank"):
        run.local.load_state_dict(states[1])
    run.local.load_state_dict(states)
    run.local.close()


def case_sites_become_ranks_and_ranks_sites():
    exchange = "gradient-server"
    run = Sites(codec="3lc", exchange=exchange)
    run.train(range(4))
    run.local.synchronize()
    expected, states = flat(run.model), [None] * dist.get_world_size()
    dist.all_gather_object(states, run.local.state_dict())
    run.local.close()

    alone = network(seed=5 + dist.get_rank())
    optimizer = sgd(alone)
    local = LocalUpdates(alone, optimizer, 3, codec="3lc", exchange=exchange)
    local.load_state_dict(states)
    assert torch.equal(flat(alone), expected)
    train(alone, optimizer, range(3))
    check_replicas(flat(alone))
    dist.all_gather_object(states, local.state_dict())
    local.close()

    again = Sites(codec="3lc", exchange=exchange)
    again.local.load_state_dict(states)
    assert torch.equal(flat(again.model), flat(alone))
    check_replicas(again.train(range(3)))
    again.local.close()


def case_a_failure_is_that_of_the_site():
    run = Sites()
    run.train(range(2))
    if first_in_site():
        run.model.module.register_parameter("another", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(tersewire.Error, match="other parameters of the model are trained") as found:
        run.train(range(2, 3))
    assert found.value.code == tersewire.ErrorCode.kInvalidArgument
    assert str(found.value).startswith("this site's first rank") != first_in_site()
    run.local.close()


def case_groups_that_make_no_sense():
    whole = DistributedDataParallel(network())
    group = dist.new_group([0, 2])
    for passed, match in (
            (None, "pass the model within it"),
            (dist.group.WORLD, "on its other ranks omit group=")):
        with pytest.raises(tersewire.Error, match=match):
            LocalUpdates(whole, sgd(whole), group=passed)
    if dist.get_rank() == 0:
        group = HubGroup("127.0.0.1:1", name="site0", elastic=True)
    with pytest.raises(tersewire.Error, match="cannot come and go"):
        LocalUpdates(whole, sgd(whole), group=group if dist.get_rank() == 0 else None)


def test_two_sites_in_a_process_group(tmp_path):
    run_on_ranks([value for name, value in sorted(globals().items()) if name.startswith("case_")],
                 4, tmp_path)


def test_the_example_of_the_documentation_runs(tmp_path):
    section = (ROOT / "docs" / "python.md").read_text().split("### Sites\n")[1]
    (example, *_) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    told = "print(sum(value.double().abs().sum().item() for value in model.parameters()))\n"
    certified, _ = hubs.certificates(tmp_path, 2, "node")
    with hubs.hub(2, "--certs", certified) as hub, ThreadPoolExecutor() as threads:
        script = example.replace("hub.example:7100", hub.address)
        assert script != example
        (tmp_path / "train.py").write_text(script + told)
        sites = [threads.submit(torchrun, "train.py", site, cwd=tmp_path) for site in (0, 1)]
        printed = [line.split(":")[-1] for site in sites for line in site.result().splitlines()]
    assert len(printed) == 4 and len(set(printed)) == 1, printed
