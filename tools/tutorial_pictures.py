#!/usr/bin/env python3
"""Makes the pictures of docs/tutorial.md from a run of examples/mnist_ddp.py's network.

    python -m torch.distributed.run --nproc_per_node 2 tools/tutorial_pictures.py [DIRECTORY]

Writes tutorial-steps.svg and tutorial-bytes.svg, the loss over steps and over bytes sent, to
DIRECTORY (docs/pictures unless said). Takes a minute.
"""

import itertools
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "examples"))

import mnist_ddp
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tersewire.torch

# Colours that are told apart on light and on dark ground, by the colour-blind too.
CURVES = {"fp32": "#8a8a8a", "int8": "#0072b2", "3lc": "#009e73", "adacomp": "#cc79a7",
          "3lc:mode=paper,s=1.75": "#e69f00"}
STEPS = 500
BATCH = 32
RATE = 0.01
SMOOTHED = 20  # steps
WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 20, 50
MAX_LOSS = 2.5

STYLE = """<style>
text { font: 13px sans-serif; fill: #333 }
line { stroke: #ccc }
polyline { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } line { stroke: #555 } }
</style>"""


def train(data, codec):
    """[(bytes sent so far, loss)] by step; the loss is the mean of all ranks."""
    torch.manual_seed(1)
    model = DistributedDataParallel(mnist_ddp.network())
    hook = tersewire.torch.register(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    points = []
    for images, labels in itertools.islice(mnist_ddp.batches(data, BATCH), STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        points.append((hook.counters.sent_bytes, mean.item()))
    hook.close()
    return points


def smoothed(values):
    """The means of the last values before each."""
    return [sum(values[max(0, i + 1 - SMOOTHED):i + 1]) / min(i + 1, SMOOTHED)
            for i in range(len(values))]


def x_place(share):
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def y_place(loss):
    return TOP + (1 - min(loss, MAX_LOSS) / MAX_LOSS) * (HEIGHT - TOP - BOTTOM)


def curve(xs, losses, colour):
    points = " ".join(f"{x_place(x):.1f},{y_place(loss):.1f}" for x, loss in zip(xs, losses))
    return f'<polyline stroke="{colour}" points="{points}"/>'


def axes(ticks, label):
    """ticks: [(share of the width, text)]"""
    bottom = HEIGHT - BOTTOM
    for share, text in ticks:
        x = x_place(share)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
    for tick in range(6):
        y = y_place(tick / 2)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick / 2:.1f}</text>'
    middle = (TOP + bottom) / 2
    yield (f'<text x="{x_place(0.5):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{label}</text>'
           f'<text transform="translate(16 {middle:.1f}) rotate(-90)" text-anchor="middle">'
           "training loss</text>")


def legend():
    for place, (codec, colour) in enumerate(CURVES.items()):
        y = TOP + 22 + 19 * place
        x = WIDTH - RIGHT - 195
        yield f'<polyline stroke="{colour}" points="{x},{y} {x + 24},{y}"/>'
        yield f'<text x="{x + 32}" y="{y + 4}">{codec}</text>'


def picture(curves, ticks, label):
    """curves: {codec: the shares of the width and the losses of its points}"""
    drawn = [curve(xs, losses, CURVES[codec]) for codec, (xs, losses) in curves.items()]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">', STYLE,
        *axes(ticks, label), *drawn, *legend(), "</svg>", ""])


def over_steps(runs):
    shares = [(step + 1) / STEPS for step in range(STEPS)]
    curves = {codec: (shares, smoothed([loss for _, loss in points]))
              for codec, points in runs.items()}
    ticks = [(step / STEPS, str(step)) for step in range(0, STEPS + 1, STEPS // 5)]
    return picture(curves, ticks, "steps")


def over_bytes(runs):
    """Logarithmic, as the designs differ by factors of hundreds."""
    curves = {}
    for codec, points in runs.items():
        losses = smoothed([loss for _, loss in points])
        shares = [(math.log10(sent) - 4) / 5 for sent, _ in points]
        shown = [(share, loss) for share, loss in zip(shares, losses) if share >= 0]
        curves[codec] = zip(*shown)
    names = ["10 kB", "100 kB", "1 MB", "10 MB", "100 MB", "1 GB"]
    return picture(curves, [(i / 5, name) for i, name in enumerate(names)],
                   "bytes that a rank has sent")


def main():
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else ROOT / "docs" / "pictures"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = mnist_ddp.load(None, True)
    runs = {codec: train(data, codec) for codec in CURVES}
    if dist.get_rank() == 0:
        (target / "tutorial-steps.svg").write_text(over_steps(runs))
        (target / "tutorial-bytes.svg").write_text(over_bytes(runs))


if __name__ == "__main__":
    main()
