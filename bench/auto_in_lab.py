#!/usr/bin/env python3
"""`--codec auto` compared with fixed codecs, in lab/netlab: step times at one link rate.

    sudo bench/auto_in_lab.py TERSEWIRE --model gpt --data shakespeare.txt --rate 10mbit --steps 100

Two workers with colocated servers, one process and one computation thread each, over MPI. Each of
DESIGNS trains for that many steps, but no longer than --seconds, and at least two steps; auto for
all of them. They take turns for --rounds. Prints JSON, one line per design and round: the median of
the later half of its steps, all steps together, and which codec it ended with.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

NETLAB = pathlib.Path(__file__).resolve().parent.parent / "lab" / "netlab"
DESIGNS = ("fp32", "int8:ef=on", "3lc", "3lc:s=1.75", "auto")


def step_seconds(lines):
    ends = [0.0] + [line["seconds"] for line in lines]
    return [later - earlier for earlier, later in zip(ends, ends[1:])]


def run(arguments, codec, steps, directory):
    out = pathlib.Path(directory) / "run"
    train = [arguments.program, "train", "--model", arguments.model, "--data", arguments.data,
             "--transport", "mpi", "--workers", "2", "--servers", "colocated", "--threads", "1",
             "--batch", str(arguments.batch), "--codec", codec, "--steps", str(steps),
             "--out", str(out), "--json", *arguments.train.split()]
    done = subprocess.run([NETLAB, "run", "--nodes", "2", "--rate", arguments.rate, "--", *train],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--data", default="embedded")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--design", action="append", choices=DESIGNS)
    parser.add_argument("--train", default="", help="more arguments of tersewire train, in one")
    arguments = parser.parse_args()
    designs = arguments.design or DESIGNS
    steps = {"auto": arguments.steps}
    for codec in designs:
        if codec not in steps:
            with tempfile.TemporaryDirectory() as directory:
                seconds = step_seconds(run(arguments, codec, 2, directory))[-1]
            steps[codec] = max(2, min(arguments.steps, int(arguments.seconds / seconds)))
    for _ in range(arguments.rounds):
        for codec in designs:
            with tempfile.TemporaryDirectory() as directory:
                lines = run(arguments, codec, steps[codec], directory)
            seconds = step_seconds(lines)
            row = {"model": arguments.model, "rate": arguments.rate, "codec": codec,
                   "steps": steps[codec], "all": sum(seconds),
                   "step_seconds": statistics.median(seconds[steps[codec] // 2:])}
            if codec == "auto":
                row["ends_with"] = lines[-1]["codec"]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
