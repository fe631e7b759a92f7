#!/usr/bin/env python3
"""Ends runs again and again, by SIGKILL and by the signals that ask, and holds what comes of them
against runs that were left alone.

usage: kill_and_resume.py PATH_TO_TERSEWIRE [--runs N] [--kills N] [--seed N] [--workers N]

Each run is of one of the set-ups in turn; with --workers of a parameter server with so many, for a
few steps. It is ended --kills times at random steps, each time by a random signal, and started
again with --resume-or-start. Its model, loss and accuracy must come out as if nothing had happened,
to the bit, and its record must hold every step once. Prints a tally. Ends with 1 where something
was not so, and keeps the directory.
"""

import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import hostile_loop

STEPS = 48
JOB = "--model mlp --batch 4 --threads 1".split()
SET_UPS = {
    "parameter-server": "--workers 2 --checkpoint-steps 4 --codec 3lc:s=1.5",
    "two servers": "--workers 2 --servers 2 --checkpoint-steps 5 --codec qsgd --ema 0.9",
    "servers on the workers' nodes": "--workers 3 --servers colocated --checkpoint-steps 3",
    "gradient-server": "--workers 2 --exchange gradient-server --local-steps 4 --checkpoint-steps 8"
    " --optimizer adam --lr 0.001",
    "local updates": "--workers 3 --codec 3lc --local-updates 3 --checkpoint-steps 6"
    " --optimizer adamw --lr 0.001",
    "fragments": "--workers 3 --exchange all-gather --codec int8 --local-updates 6 --fragments 2"
    " --delay 1 --checkpoint-steps 6 --optimizer adamw --lr 0.001",
    "staleness, all meeting in every step": "--workers 3 --staleness 2 --checkpoint-steps 1",
    "aggregator-tree": "--workers 4 --exchange aggregator-tree:fan-in=2 --checkpoint-steps 6",
    "all-gather": "--workers 3 --exchange all-gather --codec adacomp --checkpoint-steps 7",
    "ring": "--workers 3 --exchange ring --codec int8:ef=on --checkpoint-steps 5",
    "hierarchical-ring": "--workers 4 --exchange hierarchical-ring:group=2 --codec int8"
    " --checkpoint-steps 4 --momentum 0.8",
    "weight-average": "--workers 2 --exchange weight-average:every=4 --codec fp16"
    " --checkpoint-steps 8",
}
MANY_STEPS = 12  # of many workers
ASKING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


class Wrong(Exception):
    pass


def steps_in(run):
    try:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


def outcome(run):
    with open(os.path.join(run, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    return {key: summary[key] for key in ("parameters_checksum", "final_loss", "test_accuracy")}


def check(holds, what, errors):
    if not holds:
        raise Wrong(f"{what}; it said: {errors.decode(errors='replace').strip() or 'nothing'}")


class Loop:
    def __init__(self, program, scratch, seed, workers):
        self.program = program
        self.scratch = scratch
        self.random = random.Random(seed)
        self.tally = collections.Counter()
        self.expected = {}
        self.set_ups = SET_UPS
        self.steps = STEPS
        self.pause = 0.02  # seconds, at most, from a step's end to a signal
        if workers > 0:
            set_up = f"--workers {workers} --codec int8 --checkpoint-steps 4"
            self.set_ups, self.steps, self.pause = {"many workers": set_up}, MANY_STEPS, 10.0

    def start(self, set_up, run):
        return subprocess.Popen(
            [self.program, "train", *JOB, "--steps", str(self.steps),
             *self.set_ups[set_up].split(), "--resume-or-start", "--out", run],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def left_alone(self, set_up):
        """What becomes of the run where nobody ends it."""
        if set_up not in self.expected:
            run = tempfile.mkdtemp(dir=self.scratch)
            process = self.start(set_up, run)
            errors = process.communicate()[1]
            check(process.returncode == 0, f"left alone it ended with {process.returncode}", errors)
            self.expected[set_up] = outcome(run)
            shutil.rmtree(run)
        return self.expected[set_up]

    def end_once(self, set_up, run):
        """Starts the run, or goes on with it, and ends it some steps later."""
        begun = steps_in(run)
        target = begun + self.random.randrange(0, self.steps // 2)
        number = signal.SIGKILL if self.random.random() < 0.6 else self.random.choice(ASKING)
        process = self.start(set_up, run)
        while process.poll() is None and steps_in(run) < target:
            time.sleep(0.001)
        # Anywhere in a step, a checkpoint, or what comes before the first.
        time.sleep(self.random.random() * self.pause)
        process.send_signal(number)
        errors = process.communicate()[1]
        code = process.returncode
        if code == 0:
            self.tally["ended before the signal"] += 1
        elif number == signal.SIGKILL or code == -number:
            # A signal that asks ends a program that has not come to its first line at once.
            self.tally[f"killed by {number.name}"] += 1
            check(code == -number, f"{number.name} left exit code {code}", errors)
        else:
            self.tally[f"ended on {number.name}"] += 1
            said = [line for line in errors.splitlines() if line.startswith(b"tersewire: ")]
            check(code == 128 + number, f"{number.name} left exit code {code}", errors)
            check(len(said) == 1, f"{number.name} brought {len(said)} sentences", errors)

    def run(self, set_up, kills):
        run = os.path.join(self.scratch, f"run-{self.tally['runs']}")
        self.tally["runs"] += 1
        expected = self.left_alone(set_up)
        for _ in range(kills):
            self.end_once(set_up, run)
        process = self.start(set_up, run)
        errors = process.communicate()[1]
        check(process.returncode == 0, f"it ended with {process.returncode}", errors)
        found = outcome(run)
        check(found == expected, f"{found} came of it in place of {expected}", errors)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            steps = [json.loads(line)["step"] for line in file]
        check(steps == list(range(1, self.steps + 1)), f"its record has the steps {steps}", errors)
        left = [name for _, _, names in os.walk(run) for name in names if name.endswith(".tmp")]
        check(not left, f"{left} were left behind", errors)
        self.tally["equal to the bit"] += 1
        shutil.rmtree(run)


def main():
    parser = hostile_loop.arguments(__doc__, runs=4, seed=20260)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    scratch = tempfile.mkdtemp()
    loop = Loop(os.path.abspath(arguments.program), scratch, arguments.seed, arguments.workers)
    wrong = []
    set_ups = loop.random.sample(list(loop.set_ups), len(loop.set_ups))
    for number in range(arguments.runs):
        set_up = set_ups[number % len(set_ups)]
        try:
            loop.run(set_up, arguments.kills)
        except Wrong as error:
            wrong.append(f"{set_up}: {error}")
    where = f"what is left of them is in {scratch}; the seed was {arguments.seed}"
    code = hostile_loop.verdict(loop.tally, wrong, where)
    if code == 0:
        shutil.rmtree(scratch)
    return code


if __name__ == "__main__":
    sys.exit(main())
