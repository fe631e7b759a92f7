"""What the programs that use tersewire as a hostile user would share: arguments, and a verdict."""

import argparse


def arguments(text, runs, seed):
    """A parser of PROGRAM, --runs and --seed, described by the first paragraph of `text`."""
    parser = argparse.ArgumentParser(description=text.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seed", type=int, default=seed)
    return parser


def verdict(tally, wrong, where):
    """Prints the tally and what was wrong, then `where` to look; returns the exit code."""
    for what, count in sorted(tally.items()):
        print(f"{count:6} {what}")
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    if wrong:
        print(where)
    return 1 if wrong else 0
