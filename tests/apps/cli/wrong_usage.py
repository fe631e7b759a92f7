#!/usr/bin/env python3
"""Gives the program arguments that make no sense, and looks at what it says.

usage: wrong_usage.py PATH_TO_TERSEWIRE [--runs N] [--seed N]

Each run gives a random option of a random command a wrong value or none, or misspells one, or the
command. Numbers that are none, overflow, are negative or begin with a 0 must be refused with 2, as
must what there is not. Of whatever else, the program is to end by itself with 0, 1 or 2; where it
fails with one sentence, no output, and nothing left behind. Prints a tally. Ends with 1 where
something was not so.
"""

import collections
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import hostile_loop

LIMIT_SECONDS = 120
COMMANDS = ["encode", "decode", "inspect", "codecs", "config", "data get", "bench codecs",
            "bench exchange", "predict", "probe", "report", "hub", "status", "certs join", "certs sign", "train",
            "compare"]  # fmt: skip
# What makes a command fail for the wrong argument alone: nothing is trained, measured or fetched.
FILES = {"encode": ["in.npy", "out.tw"], "decode": ["in.tw", "out.npy"], "inspect": ["in.npy"],
         "predict": ["--model", "none"], "probe": ["--transport", "in-process", "--nodes", "1"],
         "report": ["run"], "hub": ["--workers", "1", "--certs", "nothing"],
         "status": ["127.0.0.1:9", "--certs", "nothing"],
         "certs join": ["nothing", "--signed", "in.tw"], "certs sign": ["nothing", "--rank", "1"],
         "data get": ["nothing"], "train": ["--data", "none"],
         "compare": ["--recipe", "./none.ini"]}  # fmt: skip
NO_WHOLE_NUMBERS = ["-1", "010", "00", "1" * 26, "18446744073709551616", "0x10", "1e2", "2.5", "", " 1",
                    "1 ", "1_000", "one", "nan", "--", "१"]  # fmt: skip
NO_NUMBERS = ["", "nan", "inf", "-inf", "1e999", "1,5", "1.2.3", "one", "1e", "--", "0,1"]
NO_TEXTS = ["", " ", "-", "--", "\x01", "\n", "\x1b[31m", "\x7f", "x" * 70000, "é", "%s%n", "../..",
            "/", "/dev/full", "/proc/self/mem", "a=b", "*", ":", ";;", "3lc:", "3lc:s", "3lc:s=", "3lc:s=1,s=1",
            "3lc:s=nan", "fp32:;"]  # fmt: skip


def options_of(help_text):
    """[(name, kind of value or "")], without --help."""
    found = re.findall(r"^  (?:-\w,)?(--[\w-]+)(?: (UINT|INT|FLOAT|TEXT))?", help_text, re.MULTILINE)
    return [(name, kind) for name, kind in found if name != "--help"]


class Loop:
    def __init__(self, program, directory, seed):
        self.program = program
        self.directory = directory
        self.random = random.Random(seed)
        self.tally = collections.Counter()
        self.wrong = []

    def run(self, arguments):
        return subprocess.run([self.program, *arguments], cwd=self.directory, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT_SECONDS)  # fmt: skip

    def give(self, command, arguments, must_be_refused):
        before = sorted(os.listdir(self.directory))
        given = [*command.split(), *arguments]
        ended = self.run(given)
        wrong = self.what_is_wrong(ended, before, must_be_refused)
        if wrong:
            self.wrong.append(f"{[word[:60] for word in given]}: {wrong}")
        self.tally[f"ended with {ended.returncode}"] += 1

    def what_is_wrong(self, ended, before, must_be_refused):
        said = ended.stderr.decode(errors="replace")
        if ended.returncode not in (0, 1, 2):
            return f"it ended with {ended.returncode}: {said[-300:]}"
        if must_be_refused and ended.returncode != 2:
            return f"it was taken: {ended.returncode}, {said[-300:]}"
        if ended.returncode == 0:
            return ""
        if not re.fullmatch(r"tersewire: [^\x00-\x1f\x7f]+\n", said):
            return f"it said {said[-300:]!r}"
        if ended.stdout:
            return f"it failed and printed {ended.stdout[:100]}"
        left = sorted(os.listdir(self.directory))
        return f"it left {sorted(set(left) - set(before))}" if left != before else ""

    def value_of(self, kind):
        values = {"UINT": NO_WHOLE_NUMBERS, "INT": NO_WHOLE_NUMBERS, "FLOAT": NO_NUMBERS}
        return self.random.choice(values.get(kind, NO_TEXTS))

    def misspelled(self, name):
        """With a letter less, twice, or in the place of its neighbour."""
        at = self.random.randrange(2, len(name))
        return self.random.choice([name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:],
                                   name[:at] + "zq" + name[at:]])  # fmt: skip

    def run_once(self, commands):
        command = self.random.choice(list(commands))
        options, files = commands[command], FILES.get(command, [])
        with_value = [(name, kind) for name, kind in options if kind]
        how = self.random.random()
        if how < 0.7 and with_value:
            name, kind = self.random.choice(with_value)
            # A recipe's name or a directory may be any text.
            self.give(command, [f"{name}={self.value_of(kind)}", *files], kind != "TEXT")
        elif how < 0.8:
            wrong = self.misspelled(self.random.choice(options)[0])
            self.give(command, [wrong, *files], wrong not in dict(options))
        elif how < 0.9 and with_value:
            self.give(command, [*files, self.random.choice(with_value)[0]], True)
        elif how < 0.95:
            self.give(command, [*files, "--no-such-option"], True)
        else:
            self.give(self.misspelled("--" + command.split()[0])[2:], [], True)


def main():
    arguments = hostile_loop.arguments(__doc__, runs=60, seed=250).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        loop = Loop(os.path.abspath(arguments.program), directory, arguments.seed)
        known = loop.run(["--help"]).stdout.decode()
        commands = {}
        for command in COMMANDS:
            if re.search(rf"^  {command.split()[0]} ", known, re.MULTILINE):
                commands[command] = options_of(loop.run([*command.split(), "--help"]).stdout.decode())
        for _ in range(arguments.runs):
            loop.run_once(commands)
    return hostile_loop.verdict(loop.tally, loop.wrong, f"the seed was {arguments.seed}")


if __name__ == "__main__":
    sys.exit(main())
