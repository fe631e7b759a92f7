"""Jobs of ranks that come and go: processes that run a test module's SCRIPT."""

import datetime
import json
import multiprocessing
import os
import re
import signal
import sys
import time

import hubs
import pytest
import ranks  # noqa: F401 (what forked processes have imported)

# Above what a busy machine lets a live process be silent; a dead one is given up after it.
GIVEN_UP = "12"
LIMIT = datetime.timedelta(minutes=5)


# What the scripts of tests begin with. `what` has the state that is saved beside `model` and `optimizer`.
FRAME = """
import datetime, hashlib, logging, os, pathlib, signal, sys, time
import torch
import tersewire
import tersewire.torch

address, name, folder, rounds, more = sys.argv[1:]
folder, rounds, more = pathlib.Path(folder), int(rounds), eval(more)
limit = datetime.timedelta(minutes=5)

def options(**defaults):
    \"\"\"What a test says of these; the rest of `more` are settings.\"\"\"
    return [more.pop(key, value) for key, value in defaults.items()]

dies, at, width, change, saves, hangs = options(dies=-1, at="begin", width=40, change=None, saves=False,
                                                hangs=-1)
logging.basicConfig(level=logging.INFO, format="%(message)s")
torch.set_num_threads(1)
torch.manual_seed(sum(name.encode()))

def make(weights):
    \"\"\"A model and its optimizer; where gradients are a test's, of so many weights.\"\"\"
    if change is None:
        model = torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.BatchNorm1d(width),
                                    torch.nn.Linear(width, 4))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)
    model = torch.nn.Linear(weights, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model, torch.optim.SGD(model.parameters(), lr=1)

def go_back(seed):
    numbers = torch.Generator().manual_seed(seed + sum(name.encode()))
    inputs = torch.randn(8, 16, generator=numbers).to(next(model.parameters()))
    model(inputs).square().mean().backward()

def say(*words):
    print(*words, flush=True)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def interrupt(*_):
    raise KeyboardInterrupt

def wait_to_begin():
    \"\"\"No round begins before the file "until" has a higher number.\"\"\"
    while what.rounds >= int((folder / "until").read_text()):
        time.sleep(0.01)
        group._member.be_away(True)  # it does not hang
        if not group._member.goes_on():
            break

def hang():
    while not (folder / "wake").exists():
        time.sleep(0.01)

def save():
    path = folder / f"{what.rounds} {group.rank} {group.ranks}"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "what": what.state_dict()}, f"{path}.new")
    os.rename(f"{path}.new", f"{path}.pt")

def newest():
    \"\"\"What all ranks have saved after the same round.\"\"\"
    found = {}
    for path in sorted(folder.glob("*.pt")):
        saved, _, ranks = map(int, path.stem.split())
        found.setdefault((saved, ranks), []).append(path)
    whole = [key for key in found if len(found[key]) == key[1]]
    return [torch.load(path) for path in found[max(whole)]] if whole else []

def go_on_from_disk():
    states = newest()
    if what.rounds > 0 or not states:
        return
    own = states[group.rank % len(states)]
    model.load_state_dict(own["model"])
    optimizer.load_state_dict(own["optimizer"])
    what.load_state_dict([state["what"] for state in states])
    torch.save(what.state_dict(), folder / f"{group.rank}.loaded")
"""


def kill_and_begin_again(job, names, **settings):
    """Ranks a, b and c, which save, and then others with what all of them have; what those end with.

    Rank 1 has not saved round 4.
    """
    first = job.start("abc", 100, saves=True, **settings)
    job.end_round(4, *first)
    for rank in first:
        rank.signal(signal.SIGKILL)
        assert rank.end() == -signal.SIGKILL
    job.hub.process.kill()
    job.hub.end()
    job.go_on_until(0)
    (job.folder / "4 1 3.pt").unlink()
    job.hub = hubs.Hub(len(names), "--min-workers", "1", "--deadline", GIVEN_UP)
    ranks = job.start(names, 6, saves=True, **settings)
    for rank in ranks:
        assert rank.wait_for("joined") == ["3"]
    job.go_on_until(6)
    check_done(job, *ranks)
    return first, ranks


def check_residuals(folder, ranks, averager_of):
    """What was still to be delivered after round 3 was so after it was loaded."""
    import torch

    def read(pattern):
        states = [averager_of(torch.load(path)) for path in sorted(folder.glob(pattern))]
        return sorted(states, key=lambda state: state["rank"])

    old = read("3 * 3.pt")
    new = read("*.loaded")
    assert len(old) == 3 and len(new) == ranks
    for name in old[0]["pushed"]:
        for rank, state in enumerate(new):
            expected = torch.zeros_like(state["pushed"][name])
            for one in old[rank::ranks]:
                expected += one["pushed"][name]
            assert torch.equal(state["pushed"][name], expected)
        served = [sum(state["pulled"][name] for state in states if name in state["pulled"])
                  for states in (old, new)]
        assert torch.equal(*served) and served[0].any() and old[0]["pushed"][name].any()


def _run(script, arguments, output, errors):
    """As `python -c` does, with these as standard output and standard error."""
    os.dup2(output.fileno(), 1)
    output.close()
    with open(errors, "wb") as file:
        os.dup2(file.fileno(), 2)
    sys.argv = ["-c", *arguments]
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})


class Rank:
    """A process that runs its job's script. It is forked from one that has imported torch."""

    def __init__(self, job, name, rounds, **settings):
        self.name, self.lines = name, []
        self._errors = job.folder / f"{name} {time.monotonic_ns()}.errors"
        reader, writer = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("forkserver").Process(
            target=_run, args=(job.script, [job.hub.address, name, str(job.folder), str(rounds),
                                            repr(settings)], writer, self._errors))
        self._process.start()
        writer.close()
        self._output = open(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    def wait_for(self, beginning):
        """The rest of the line that begins so."""
        while not (self.lines and self.lines[-1].startswith(beginning)):
            line = self._output.readline()
            assert line, (beginning, self.lines, self.errors)
            self.lines.append(line)
        return self.lines[-1][len(beginning):].split()

    @property
    def errors(self):
        return self._errors.read_text()

    def signal(self, number):
        os.kill(self._process.pid, number)

    def is_alive(self):
        return self._process.is_alive()

    def end(self):
        """Its exit code; negative, that of the signal which ended it."""
        with self._output:
            self.lines += self._output.readlines()
        self._process.join()
        return self._process.exitcode

    def rounds(self):
        """{round: (bits, a value)}"""
        return {int(words[1]): (words[2], float(words[3]))
                for words in map(str.split, self.lines) if words[0] == "round"}


def _names(members):
    return [member["name"] for member in members]


class Job:
    def __init__(self, hub, folder, script):
        self.hub, self.folder, self.script, self.ranks = hub, folder, script, []
        self.go_on_until(0)

    def go_on_until(self, rounds):
        (self.folder / "new").write_text(str(rounds))
        (self.folder / "new").rename(self.folder / "until")

    def start(self, names, rounds, **settings):
        started = [Rank(self, name, rounds, **settings) for name in names]
        self.ranks += started
        return started

    def end_round(self, number, *ranks):
        """All of them have it: one that dies in the next then leaves nobody without a part of it."""
        self.go_on_until(number)
        for rank in ranks:
            rank.wait_for(f"round {number}")

    def status(self):
        return json.loads(hubs.run("status", self.hub.address, "--json"))

    def wait_until(self, is_so):
        end = time.monotonic() + LIMIT.total_seconds()
        while not is_so(status := self.status()):
            assert time.monotonic() < end, (status, self.hub.lines)
            time.sleep(0.05)

    def wait_until_waits(self, name):
        """It alone waits for its place."""
        self.wait_until(lambda status: _names(status["waiting"]) == [name])

    def wait_until_here(self, name):
        """It waits for its place, or has it: between two steps it may have it at once."""
        self.wait_until(lambda status: name in _names(status["waiting"] + status["members"]))


@pytest.fixture
def job(tmp_path, request):
    options = getattr(request, "param", {})
    hub = hubs.Hub(options.get("workers", 3), "--min-workers", str(options.get("least", 1)),
                   "--max-workers", "4", "--deadline", GIVEN_UP,
                   *(["--journal", str(tmp_path / "journal")] if "journal" in options else []))
    job = Job(hub, tmp_path, request.module.SCRIPT)
    try:
        yield job
    finally:
        for rank in job.ranks:
            if rank.is_alive():
                rank.signal(signal.SIGKILL)
                rank.end()
        if job.hub.process.poll() is None:
            job.hub.process.kill()
            job.hub.end()


def check_one_died(job, others, dead, round_name):
    """The others went on without the one that died in round 2, and were told so once."""
    assert dead.end() == -signal.SIGKILL
    check_done(job, *others)
    assert set(others[0].rounds()) == set(range(1, 7))
    for rank in others:
        assert len(re.findall("gone, with what they had still to deliver: 'c'", rank.errors)) == 1
        # Its last push may have been enough for the round to end.
        assert re.search(f"2 ranks go on after {round_name} [23]: 'a', 'b'; gone", rank.errors)
    assert re.search("'c' is lost after step [23]", "".join(job.hub.lines))


def check_done(job, *ranks):
    """All have ended well, and after each round that they had in common with the same bits."""
    for rank in ranks:
        assert rank.end() == 0, rank.errors
        assert rank.lines[-1].startswith("done"), rank.lines
    assert job.hub.end() == 0, job.hub.lines
    for one, other in zip(ranks, ranks[1:]):
        common = set(one.rounds()) & set(other.rounds())
        assert max(common) == max(one.rounds()) == max(other.rounds())
        assert all(one.rounds()[number] == other.rounds()[number] for number in common)
