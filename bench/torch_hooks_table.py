#!/usr/bin/env python3
"""A Markdown table for each model measured by bench/torch_hooks.py.

    python3 bench/torch_hooks_table.py --target lenet=97 --target resnet20=40 FILE...
    python3 bench/torch_hooks_table.py --loss gpt=1.7 FILE...

FILEs hold its JSON lines, of both kinds and any number of links; of two of the same, the later one
counts. Time to an accuracy is that of the steps it takes: the first ones as timed, because some
designs begin uncompressed, the others at the median. Steps come from the curve of the accuracy (or
the loss), interpolated linearly between two tests.
"""

import argparse
import dataclasses
import json
import pathlib


def step_that_reaches(curve, target):
    """Of a rising curve; None if none does."""
    last_step, last = curve[0]
    for step, value in curve:
        if value >= target:
            return step if value == last else (
                last_step + (step - last_step) * (target - last) / (value - last))
        last_step, last = step, value
    return None


@dataclasses.dataclass
class Target:
    """What to reach: an accuracy, or a loss."""

    value: float
    is_loss: bool

    def __str__(self):
        return f"a loss of {self.value:g}" if self.is_loss else f"{100 * self.value:g} %"

    def step(self, trained):
        """The first that reaches it; None if none does."""
        if not self.is_loss:
            return step_that_reaches([(0, 0.0), *trained["curve"]], self.value)
        return step_that_reaches([(step, -loss) for step, loss in trained["losses"]], -self.value)


def seconds_until(timed, step):
    first = timed["seconds"][:min(int(step), timed["warm_up"])]
    return sum(first) + (step - len(first)) * timed["seconds_a_step"]


def time_text(seconds):
    return f"{seconds:.1f} s" if seconds >= 10 else (
        f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms")


class Model:
    """The lines of one model, by design."""

    def __init__(self, name, lines):
        self.name = name
        self.times = {(line["design"], line["link"]): line
                      for line in lines if line["kind"] == "time"}
        self.accuracies = {line["design"]: line for line in lines if line["kind"] == "accuracy"}
        self.has_losses = any("loss" in line for line in self.accuracies.values())
        self.designs = list(dict.fromkeys(line["design"] for line in lines))
        self.links = list(dict.fromkeys(link for _, link in self.times))

    def table(self, target):
        steps = {line["curve"][-1][0] for line in self.accuracies.values()}
        if len(steps) > 1:
            raise SystemExit(f"{self.name} was trained for {sorted(steps)} steps; give lines of "
                             "one length")
        head = ["design", *self.links, "bytes sent a step",
                f"accuracy after {steps.pop()} steps" if steps else "accuracy"]
        if self.has_losses:
            head.append("test loss")
        if target is not None:
            head += [f"{target} at {link}" for link in self.links]
        rows = [head, ["---"] * len(head), *[self._row(design, target) for design in self.designs]]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _row(self, design, target):
        timed = [self.times.get((design, link)) for link in self.links]
        trained = self.accuracies.get(design)
        row = [f"`{design}`"]
        row += [time_text(line["seconds_a_step"]) if line else "" for line in timed]
        sent = [line["tx_bytes_a_step"] for line in timed if line and "tx_bytes_a_step" in line]
        row.append(f"{sent[0]:,.0f}" if sent else "")
        row.append(f"{100 * trained['accuracy']:.2f} %" if trained else "")
        if self.has_losses:
            row.append(f"{trained['loss']:.4f}" if trained else "")
        if target is not None:
            row += [self._time_to(target, trained, line) for line in timed]
        return row

    def _time_to(self, target, trained, timed):
        if not trained or not timed:
            return ""
        step = target.step(trained)
        return "not reached" if step is None else time_text(seconds_until(timed, step))


def model_and_percent(text):
    model, _, percent = text.partition("=")
    return model, Target(float(percent) / 100, is_loss=False)


def model_and_loss(text):
    model, _, loss = text.partition("=")
    return model, Target(float(loss), is_loss=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--target", action="append", default=[], type=model_and_percent,
                        metavar="MODEL=PERCENT", help="the accuracy to which time is reported")
    parser.add_argument("--loss", dest="target", action="append", type=model_and_loss,
                        metavar="MODEL=LOSS", help="the loss, instead of an accuracy")
    arguments = parser.parse_args()
    targets = dict(arguments.target)
    lines = [json.loads(line) for path in arguments.files for line in path.read_text().splitlines()]
    for name in dict.fromkeys(line["model"] for line in lines):
        model = Model(name, [line for line in lines if line["model"] == name])
        print(f"{name}\n\n{model.table(targets.get(name))}\n")


if __name__ == "__main__":
    main()
