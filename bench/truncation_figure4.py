#!/usr/bin/env python3
"""INCEPTIONN's Fig. 4: what training loses when weights, gradients or both lose their lower bits.

usage: truncation_figure4.py hdc|cifar-cnn --data DIRECTORY [--steps N] [--seed S]
           [--bits N]... [--design DESIGN]...

Four workers with 25 images each and an aggregator, all in this process, because no exchange of the
library sends gradients one way and weights the other: its parameter servers send changes of weights,
and the workers of a ring have their own. Lower bits become 0, as with codec truncate. Designs:
  fp32             nothing is truncated
  gradients        each worker's, on its way to the aggregator
  weights          the aggregator's after each step, from which the next one continues
  both             these two
  weights-sent     only what workers compute gradients from; the aggregator keeps all bits
  ring             gradients in a ring: the sum of each hop, and the result
  ring-rounded     the same, each to the nearest value that can be sent instead of the lower one
Prints one row per design and number of bits. All designs have the same initial weights and data.
"""

import argparse
import pathlib

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch_models import Images, cifar10, mnist

WORKERS, BATCH = 4, 25
DESIGNS = ("gradients", "weights", "both", "weights-sent", "ring", "ring-rounded")


def hdc():
    widths = [28 * 28, 500, 500, 500, 500]
    layers = [layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(500, 10))


def cifar_cnn():
    """As in trainer/models."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(64 * 4 * 4, 10))  # fmt: skip


# Network, samples, learning rate, weight decay.
TASKS = {"hdc": (hdc, mnist, 0.1, 5e-5), "cifar-cnn": (cifar_cnn, cifar10, 0.05, 5e-4)}


def cut(values, bits):
    return (values.view(torch.int32) & -(1 << bits)).view(torch.float32)


def rounded(values, bits):
    lower = cut(values, bits)
    upper = (lower.view(torch.int32) + (1 << bits)).view(torch.float32)
    return torch.where((values - lower).abs() <= (upper - values).abs(), lower, upper)


def same(values, bits):
    return values


def mean_of(gradients, design, bits):
    """Of one tensor's gradients, as the design carries them."""
    if design in ("ring", "ring-rounded"):
        narrow = cut if design == "ring" else rounded
        total = gradients[0]
        for gradient in gradients[1:]:
            total = narrow(total, bits) + gradient
        return narrow(total, bits) / WORKERS
    narrow = cut if design in ("gradients", "both") else same
    return sum(narrow(gradient, bits) for gradient in gradients) / WORKERS


def accuracy(network, images):
    network.eval()
    right = 0
    with torch.no_grad():
        for begin in range(0, len(images), 1000):
            inputs, classes = images.batch(slice(begin, begin + 1000))
            right += int((network(inputs).argmax(1) == classes).sum())
    return right / len(images)


def train(task, train_images: Images, design, bits, steps, seed):
    """The network after the last step, as a worker has it."""
    make, _, rate, decay = TASKS[task]
    torch.manual_seed(seed)
    network = make()
    parameters = list(network.parameters())
    kept = [parameter.detach().clone() for parameter in parameters]  # by the aggregator
    speeds = [torch.zeros_like(parameter) for parameter in parameters]
    numbers = numpy.random.default_rng(seed)
    order = numpy.empty(0, dtype=int)
    narrow_kept = cut if design in ("weights", "both") else same
    narrow_sent = cut if design == "weights-sent" else same

    def send():
        for parameter, weights in zip(parameters, kept):
            weights.copy_(narrow_kept(weights, bits))
            parameter.data.copy_(narrow_sent(weights, bits))

    send()
    for step in range(steps):
        if len(order) < WORKERS * BATCH:
            order = numbers.permutation(len(train_images))
        chosen, order = order[:WORKERS * BATCH], order[WORKERS * BATCH:]
        gradients = []
        for worker in range(WORKERS):
            inputs, classes = train_images.batch(chosen[worker * BATCH:(worker + 1) * BATCH])
            loss = functional.cross_entropy(network(inputs), classes)
            gradients.append(torch.autograd.grad(loss, parameters))
        step_rate = rate * 0.2 ** (5 * step // steps)  # as recipe inceptionn-hdc
        for of_workers, weights, speed in zip(zip(*gradients), kept, speeds):
            speed.mul_(0.9).add_(mean_of(of_workers, design, bits) + decay * weights)
            weights.sub_(step_rate * speed)
        send()
    return network


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--design", action="append", choices=["fp32", *DESIGNS])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bits", type=int, action="append")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # what is left of weights that are gone takes most of the time
    samples = TASKS[arguments.task][1]
    train_images, test_images = (samples(arguments.data, part) for part in ("train", "test"))
    for design in arguments.design or ["fp32", *DESIGNS]:
        for bits in [0] if design == "fp32" else arguments.bits or (16, 22, 24):
            network = train(arguments.task, train_images, design, bits, arguments.steps,
                            arguments.seed)
            print(f"| {arguments.task} | {design} | {bits} | "
                  f"{100 * accuracy(network, test_images):.2f} % |", flush=True)


if __name__ == "__main__":
    main()
