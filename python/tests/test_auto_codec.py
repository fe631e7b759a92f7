"""A job that chooses its codec as it goes, and the probe, on 1, 2 and 3 processes with Gloo."""

import copy
import json
import re
import time

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import tersewire
import tersewire.torch
from ranks import Lines, check_replicas, network, run_on_ranks, run_program, sgd, train
from support import ROOT, raises
from tersewire import ErrorCode
from tersewire.torch import DistributedOptimizer, LocalUpdates, register

# Up, further up, and back to what keeps no residual.
DECISIONS = [{"step": 1, "codec": "fp32"}, {"step": 3, "codec": "3lc"},
             {"step": 5, "codec": "int8:ef=on"}, {"step": 7, "codec": "fp32"}]
CODECS = ["fp32"] * 2 + ["3lc"] * 2 + ["int8:ef=on"] * 2 + ["fp32"] * 2
# What fits a ring's sums.
LIGHT = [{"step": 1, "codec": "fp32"}, {"step": 3, "codec": "int8:ef=on"}]
# On rank 1, which rank 0 takes for a slow link: more than a step's computation on a busy machine.
LATE_SECONDS = 0.3


def wrapped(**options):
    return DistributedDataParallel(network(), bucket_cap_mb=0.02, **options)


def wrap(model, codec="auto", **settings):
    """(optimizer, averager) of a model that is in DistributedDataParallel, or not."""
    if isinstance(model, DistributedDataParallel):
        return sgd(model), register(model, codec, **settings)
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), codec, **settings)
    return optimizer, optimizer.averager


def case_every_rank_changes_at_the_same_step():
    for exchange in ("all-gather", "gradient-server"):
        for make in (wrapped, network):
            seen = []
            model = make()
            optimizer, averager = wrap(
                model, exchange=exchange, replay_decisions=DECISIONS,
                on_step=lambda counters: seen.append((counters.codec, counters.sent_bytes)))
            check_replicas(train(model, optimizer, range(8)))
            assert [codec for codec, _ in seen] == CODECS
            assert "fp32" in averager.summary() and "3lc" not in averager.summary()
            averager.close()
            assert averager.counters.codec == "fp32"
            # What a rank serves to others may be sent when its own step is over.
            counts = [count for _, count in seen[:-1]] + [averager.counters.sent_bytes]
            sent = [b - a for a, b in zip(counts, counts[1:])]
            if dist.get_world_size() > 1:
                assert sent[2] < sent[4] / 2 < sent[6] / 4  # the 4th, the 6th and the 8th step's


def case_a_ring_has_the_codecs_that_fit_it():
    model = wrapped()
    optimizer, hook = wrap(model, exchange="ring", replay_decisions=LIGHT)
    check_replicas(train(model, optimizer, range(5)))
    assert hook.counters.codec == "int8:ef=on"


def case_nothing_is_lost_from_codec_to_codec():
    """What 3lc had kept comes with the first step of fp32: the sum of all means is that of fp32."""
    gradients = torch.randn(5, 19210, generator=torch.Generator().manual_seed(dist.get_rank()))
    gradients[2:] = 0
    sums = []
    for codec, named in (("fp32", {}), ("auto", {"replay_decisions": [
            {"step": 1, "codec": "3lc"}, {"step": 3, "codec": "fp32"}]})):
        model = torch.nn.Linear(19210, 1, bias=False)
        optimizer, averager = wrap(model, codec, exchange="all-gather", **named)
        total = torch.zeros(19210)
        for gradient in gradients:
            mean = gradient.clone()
            averager.average(mean)
            total += mean
        check_replicas(total)
        sums.append(total)
    torch.testing.assert_close(*sums, atol=1e-5, rtol=1e-5)


def case_decisions_are_told_once_and_repeat_the_run():
    for make in (wrapped, network):
        with Lines() as lines:
            said = []
            model = make()
            optimizer, averager = wrap(
                model, on_step=lambda counters: said.extend(counters.decisions))
            if dist.get_rank() == 1:
                parameter = next(model.parameters())
                parameter.register_hook(lambda gradient: time.sleep(LATE_SECONDS))
            found = train(model, optimizer, range(14))
            check_replicas(found)
        decisions = averager.decisions()
        if dist.get_rank() != 0:
            assert not lines and not said and not decisions
        else:
            assert lines == said
            assert lines[0] == "step 1: begins with fp32"
            assert decisions[-1]["codec"] == averager.counters.codec
            if dist.get_world_size() > 1:  # the link seems to take all of the time
                assert decisions[1]["codec"] != "fp32" and decisions[1]["expected_speedup"] > 1
                assert "the link takes" in lines[1]
        told = [json.dumps(decisions)]
        dist.broadcast_object_list(told)
        again = make()
        optimizer, _ = wrap(again, replay_decisions=json.loads(told[0]))
        assert torch.equal(train(again, optimizer, range(14)), found)


def case_a_hook_of_adam_keeps_no_residual_of_means():
    def adam():
        model = wrapped()
        hook = register(model, "auto", policy="", exchange="gradient-server",
                        replay_decisions=[{"step": 1, "codec": "3lc"}])
        return model, torch.optim.AdamW(model.parameters(), lr=0.01), hook

    model, optimizer, hook = adam()
    train(model, optimizer, range(3))
    saved = copy.deepcopy([each.state_dict() for each in (model, optimizer, hook)])
    residuals = saved[2]["pushed"], saved[2]["pulled"]
    assert [any(of.any() for of in named.values()) for named in residuals] == [True, False]
    expected = train(model, optimizer, range(3, 6))
    again = adam()
    for each, state in zip(again, saved):
        each.load_state_dict(state)
    assert torch.equal(train(*again[:2], range(3, 6)), expected)
    assert again[2].decisions() == hook.decisions()


def case_a_run_goes_on_where_it_was():
    for make in (wrapped, network):
        model = make()
        optimizer, averager = wrap(model, exchange="gradient-server", replay_decisions=DECISIONS)
        train(model, optimizer, range(4))
        saved = copy.deepcopy(
            [model.state_dict(), optimizer.state_dict(), averager.state_dict()])
        assert [each["codec"] for each in saved[2]["decisions"]] == (
            [each["codec"] for each in DECISIONS] if dist.get_rank() == 0 else [])
        expected = train(model, optimizer, range(4, 8))
        fresh = make()
        again, other = wrap(fresh, exchange="gradient-server", replay_decisions=DECISIONS)
        # Before the first step, and within a run that has begun.
        for trained, stepping, target in ((fresh, again, other), (model, optimizer, averager)):
            trained.load_state_dict(saved[0])
            stepping.load_state_dict(copy.deepcopy(saved[1]))  # it keeps what it is given
            target.load_state_dict(saved[2])
            assert torch.equal(train(trained, stepping, range(4, 8)), expected)
        # On its own it goes on with the codec that it had, and says nothing again.
        saved[2]["decisions"] = saved[2]["decisions"][:2]
        averager.close()
        model = make()
        optimizer, averager = wrap(model, exchange="gradient-server")
        averager.load_state_dict(saved[2])
        with Lines() as lines:
            train(model, optimizer, [4])
        assert averager.counters.codec == "3lc" and not lines
        assert averager.state_dict()["decisions"] == saved[2]["decisions"]


def case_a_run_changes_to_auto_and_from_it():
    model = wrapped()
    optimizer, hook = wrap(model, "3lc")
    train(model, optimizer, range(2))
    assert hook.counters.codec == "3lc" and hook.counters.decisions == ()
    hook.change(codec="auto", replay_decisions=[{"step": 1, "codec": "3lc:s=1.75"}])
    check_replicas(train(model, optimizer, range(2, 4)))
    assert hook.counters.codec == "3lc:s=1.75"
    hook.change(codec="3lc:s=1.5", replay_decisions=None)
    check_replicas(train(model, optimizer, range(4, 6)))
    assert hook.counters.codec == "3lc:s=1.5" and hook.decisions() == []


def case_a_hook_s_state_takes_auto():
    for named, codec in (({"replay_decisions": DECISIONS}, "3lc"),
                         ({"budget": "1kB/day"}, "3lc:s=1.75")):
        model = wrapped()
        state = tersewire.torch.HookState("auto", **named)
        model.register_comm_hook(state, tersewire.torch.hook)
        check_replicas(train(model, sgd(model), range(4)))
        assert state.hook.counters.codec == codec


def case_a_budget_is_kept_and_a_run_under_it_repeats():
    for make in (wrapped, network):
        model = make()
        optimizer, averager = wrap(model, budget="1kB/day")
        train(model, optimizer, range(4))
        saved = copy.deepcopy([model.state_dict(), averager.state_dict()])
        found = train(model, optimizer, range(4, 8))
        check_replicas(found)
        assert averager.counters.codec == "3lc:s=1.75"
        told = [averager.decisions()]
        dist.broadcast_object_list(told)
        codecs = [each["codec"] for each in told[0]]
        assert codecs[:2] == ["fp32", "3lc:s=1.75"] and told[0][1]["step"] == 2
        assert "fp32 would take" in told[0][1]["sentence"]
        assert "nothing that auto may choose stays within the" in told[0][-1]["sentence"]
        averager.close()
        # The decisions repeat the run, under whatever budget; a state goes on with its codec.
        again = make()
        optimizer, averager = wrap(again, budget="1000TB/day", replay_decisions=told[0])
        assert torch.equal(train(again, optimizer, range(8)), found)
        averager.close()
        again = make()
        again.load_state_dict(saved[0])
        optimizer, averager = wrap(again, budget="1kB/day")
        averager.load_state_dict(saved[1])
        train(again, optimizer, [4])
        assert averager.counters.codec == "3lc:s=1.75"


def case_a_budget_comes_and_goes_with_change():
    model = wrapped()
    optimizer, hook = wrap(model, "3lc")
    train(model, optimizer, [0])
    hook.change(codec="auto", budget="1kB/day")
    check_replicas(train(model, optimizer, range(1, 5)))
    assert hook.counters.codec == "3lc:s=1.75"


def case_mistakes_are_refused():
    first = {"step": 1, "codec": "fp32"}
    for words, named in (
            ("codec auto does not fit exchange all-reduce", {"exchange": "all-reduce"}),
            ("scaler-sharing", {"exchange": "gradient-server:scaler-sharing=on"}),
            ("weight-average has no mean gradient", {"exchange": "weight-average"}),
            ("replay_decisions is for runs that choose", {"codec": "3lc",
                                                          "replay_decisions": [first]}),
            ("replay_decisions='x' is not valid", {"replay_decisions": "x"}),
            ("budget is for runs that choose", {"codec": "3lc", "budget": "2GB/day"}),
            ("'much' is not a budget; write 2GB/day", {"budget": "much"}),
            ("budget=2 is not valid; pass a text", {"budget": 2}),
            ("an entry has no step, or no codec", {"replay_decisions": [1]}),
            ("an entry has no step, or no codec", {"replay_decisions": [object()]}),
            ("is not a list", {"replay_decisions": [{**first, "expected_speedup": float("nan")}]}),
            ("an entry has no step", {"replay_decisions": [{"codec": "fp32"}]}),
            ("or no codec", {"replay_decisions": [{"step": 1}]}),
            ("its steps do not increase", {"replay_decisions": [first, first]}),
            ("do not begin with step 1", {"replay_decisions": [{**first, "step": 2}]}),
            ("name codec 3lc, which auto does not choose here", {
                "exchange": "ring", "replay_decisions": DECISIONS}),
            ("its steps do not increase", {"replay_decisions": [{**first, "step": 1 << 60}]})):
        assert words in raises(ErrorCode.kInvalidArgument, wrap, network(), **named)
    model = network()
    assert "codec auto decides from how long each step's exchange takes" in raises(
        ErrorCode.kInvalidArgument, LocalUpdates, model, sgd(model), codec="auto")


def case_a_probe_says_the_same_on_every_rank():
    if dist.get_world_size() == 1:
        assert "no other rank" in raises(ErrorCode.kFailedPrecondition, tersewire.torch.probe)
        return
    found = tersewire.torch.probe()
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, found)
    assert all(other == found for other in told)
    assert list(found) == ["rate_bits_per_second", "latency_seconds", "cores", "peers", "codecs"]
    assert [peer["rank"] for peer in found["peers"]] == list(range(1, dist.get_world_size()))
    assert found["rate_bits_per_second"] == min(
        min(peer["bits_per_second_to"], peer["bits_per_second_from"]) for peer in found["peers"])
    assert found["latency_seconds"] == max(peer["latency_seconds"] for peer in found["peers"])
    assert {"fp32", "int8", "3lc"} <= {codec["codec"] for codec in found["codecs"]}
    assert all(codec["encode_seconds_per_value"] > 0 and codec["decode_seconds_per_value"] > 0
               for codec in found["codecs"])


CASES = [case for name, case in list(globals().items()) if name.startswith("case_")]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_on_ranks(ranks, tmp_path):
    run_on_ranks(CASES, ranks, tmp_path)


def test_the_example_of_the_documentation_runs(tmp_path):
    text = (ROOT / "docs" / "python.md").read_text().split("## A codec that chooses itself\n")[1]
    (tmp_path / "example.py").write_text(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[0])
    run_program("example.py", cwd=tmp_path)
    decisions = json.loads((tmp_path / "decisions.json").read_text())
    assert decisions[0]["sentence"] == "step 1: begins with fp32"
