"""The models that bench/torch_hooks.py trains: LeNet on MNIST's files, ResNet-20 on CIFAR-10's and
a character GPT on a text."""

import gzip
import math
import pathlib
from dataclasses import dataclass
from collections.abc import Callable, Sequence

import numpy
import torch
from torch import nn
from torch.nn import functional

PADDING = 4  # pixels around an image that is cropped


def lenet(classes=10):
    """As in trainer/models: no activation after the convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(50 * 4 * 4, 500), nn.ReLU(), nn.Linear(500, classes))


def conv3(inputs, outputs, stride=1):
    conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_uniform_(conv.weight, nonlinearity="relu")
    return conv


class Block(nn.Module):
    """Two convolutions and a shortcut without weights: every second pixel, zeros for channels."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = conv3(inputs, outputs, outputs // inputs)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if y.shape != x.shape:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))
        return (y + x).relu()


def resnet20(classes=10):
    widths = [16] * 4 + [32] * 3 + [64] * 3
    return nn.Sequential(
        conv3(3, 16), nn.BatchNorm2d(16), nn.ReLU(),
        *[Block(inputs, outputs) for inputs, outputs in zip(widths, widths[1:])],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


WIDTH, HEADS, CONTEXT = 128, 4, 64  # of the GPT


class Attention(nn.Module):
    """To each character, with those before it."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)
        self.heads = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        samples, length, _ = x.shape
        query, key, value = (part.view(samples, length, HEADS, -1).transpose(1, 2)
                             for part in self.parts(self.norm(x)).chunk(3, -1))
        scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        heads = scores.masked_fill(later, -math.inf).softmax(-1) @ value
        return x + self.heads(heads.transpose(1, 2).flatten(2))


class TwoDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                 nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.net(x)


class Embedding(nn.Module):
    """Of characters and their positions."""

    def __init__(self, characters):
        super().__init__()
        self.characters = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)

    def forward(self, x):
        return self.characters(x) + self.places.weight[:x.shape[1]]


def gpt(characters=65):
    """As in trainer/models; scores are [samples * characters, characters]."""
    network = nn.Sequential(
        Embedding(characters), *[layer() for _ in range(3) for layer in (Attention, TwoDense)],
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters), nn.Flatten(0, 1))
    for module in network.modules():
        if isinstance(module, (nn.Embedding, nn.Linear)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return network


@dataclass
class Images:
    """Images as bytes (images, channels, height, width), and the classes they show."""

    pixels: numpy.ndarray
    classes: numpy.ndarray
    mean: Sequence[float]  # of each channel, where a pixel is from 0 to 1
    deviation: Sequence[float]
    different: int = 10  # classes

    def __len__(self):
        return len(self.classes)

    def batch(self, chosen) -> tuple[torch.Tensor, torch.Tensor]:
        channel = (1, -1, 1, 1)
        pixels = torch.from_numpy(self.pixels[chosen].astype("float32")).div_(255)
        pixels.sub_(torch.tensor(self.mean).view(channel))
        pixels.div_(torch.tensor(self.deviation).view(channel))
        return pixels, torch.from_numpy(self.classes[chosen].astype("int64"))


@dataclass
class Text:
    """Consecutive pieces of a text, and for each character the next one."""

    characters: torch.Tensor  # by number
    different: int

    def __len__(self):
        return (len(self.characters) - 1) // CONTEXT

    def batch(self, chosen) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = numpy.arange(len(self))[chosen]
        pieces = torch.stack([self.characters[CONTEXT * i:CONTEXT * (i + 1) + 1] for i in numbers])
        return pieces[:, :-1], pieces[:, 1:].flatten()


def crop_flip(images: torch.Tensor, numbers: numpy.random.Generator) -> torch.Tensor:
    """Each image from another place in a frame of zeros, and half of them mirrored."""
    count, _, height, width = images.shape
    framed = functional.pad(images, (PADDING,) * 4)
    offsets = numbers.integers(2 * PADDING + 1, size=(count, 2))
    mirrored = numbers.integers(2, size=count)
    shown = torch.empty_like(images)
    for index, (top, left) in enumerate(offsets):
        crop = framed[index, :, top:top + height, left:left + width]
        shown[index] = crop.flip(2) if mirrored[index] else crop
    return shown


def found(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise SystemExit(f"there is no {pattern} in {folder}; name the directory of the data set")
    return paths


def read_idx(folder: pathlib.Path, name: str) -> numpy.ndarray:
    """An IDX file, plain or .gz: 0, 0, a type, the number of dimensions, each, the values."""
    path = found(folder, f"{name}*")[0]
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    shape = numpy.frombuffer(data, ">u4", count=data[3], offset=4)
    return numpy.frombuffer(data, "u1", offset=4 + 4 * data[3]).reshape(shape)


def mnist(folder: pathlib.Path, part: str) -> Images:
    prefix = {"train": "train", "test": "t10k"}[part]
    return Images(read_idx(folder, f"{prefix}-images-idx3-ubyte")[:, None],
                  read_idx(folder, f"{prefix}-labels-idx1-ubyte"), [0.1307], [0.3081])


def cifar10(folder: pathlib.Path, part: str) -> Images:
    """The binary version: records of a class and 3 x 32 x 32 pixels."""
    pattern = {"train": "data_batch_*.bin", "test": "test_batch.bin"}[part]
    records = numpy.concatenate([
        numpy.fromfile(path, "u1").reshape(-1, 1 + 3 * 32 * 32)
        for path in found(folder, pattern)])
    return Images(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0],
                  [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])


def text(file: pathlib.Path, part: str) -> Text:
    """The last tenth is the test."""
    everything = file.read_text()
    number_of = {character: i for i, character in enumerate(sorted(set(everything)))}
    numbers = torch.tensor([number_of[character] for character in everything])
    test = len(numbers) // 10
    return Text({"train": numbers[:-test], "test": numbers[-test:]}[part], len(number_of))


def sgd(parameters, lr, weight_decay):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=weight_decay)


def adamw(parameters, lr, weight_decay):
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)


@dataclass
class Task:
    """A network, its samples, and how it is trained."""

    network: Callable[[int], nn.Module]  # of so many classes
    samples: Callable[[pathlib.Path, str], Images | Text]
    batch: int  # samples a rank and step
    lr: float
    weight_decay: float
    augment: Callable[[torch.Tensor, numpy.random.Generator], torch.Tensor] | None = None
    optimizer: Callable[..., torch.optim.Optimizer] = sgd
    warm_up: float = 0  # the part of the steps in which the rate rises from that of one rank
    clip: float | None = None  # the longest that the mean gradient may be


TASKS = {
    "lenet": Task(lenet, mnist, batch=16, lr=0.01, weight_decay=5e-4),
    "resnet20": Task(resnet20, cifar10, batch=32, lr=0.1, weight_decay=1e-4, augment=crop_flip),
    "gpt": Task(gpt, text, batch=8, lr=0.003, weight_decay=0.01, optimizer=adamw, warm_up=0.1,
                clip=1),
}
