#!/usr/bin/env python3
"""TernGrad's Fig. 5 by its own model, `tersewire predict --exchange terngrad-model` (evidence/predictions).

usage: terngrad_figure5.py TERSEWIRE

The paper gives neither its GPUs' computation times nor the rates within a machine. For cluster (a)
the step on one GPU is chosen so that AlexNet gains the 3.04x on 8 GPUs of the paper's text, for (b)
so that VggNet-A gains 2x on 512; other networks' are in proportion to their multiplications. Ternary
gradients have 2 bits.
"""

import json
import math
import subprocess
import sys
import tempfile

WORKERS = (4, 8, 16, 32, 64, 128, 256, 512)
GPUS = 4  # per machine
# Values, images per GPU and step, and 10^9 multiplications per image.
NETWORKS = {"alexnet-bn": (61_101_992, 128, 0.72), "googlenet": (7_005_832, 64, 1.5), "vgg-a": (132_863_336, 32, 7.6)}
# Link and rate within a machine (PCIe 3 at 10 GB/s; NVLink at 20), and what the step is fitted to.
CLUSTERS = {"a": ("1gbit", 1e9, "80gbit", 8e10, "alexnet-bn", 8, 3.04),
            "b": ("100gbit", 1e11, "160gbit", 1.6e11, "vgg-a", 512, 2.0)}  # fmt: skip


def fitted_seconds(network, rate, intra, gpus, speedup):
    bits = 32 * NETWORKS[network][0]
    fp32 = bits / intra * math.log2(GPUS) + bits / rate * math.log2(gpus / GPUS)
    return (fp32 - speedup * fp32 / 16) / (speedup - 1)


def work(network):
    return NETWORKS[network][1] * NETWORKS[network][2]


def main():
    program = sys.argv[1]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as probe:
        json.dump({"rate_bits_per_second": 1, "latency_seconds": 0,
                   "codecs": [{"codec": "terngrad", "bits_per_value": 2}]}, probe)  # fmt: skip
        probe.flush()
        for cluster, (link, rate, intra, intra_rate, known, gpus, speedup) in CLUSTERS.items():
            known_seconds = fitted_seconds(known, rate, intra_rate, gpus, speedup)
            print(f"| ({cluster}) images a second, fp32 / ternary | step on a GPU | {' | '.join(map(str, WORKERS))} GPUs |")
            print("|---" * (len(WORKERS) + 2) + "|")
            for network, (_, images, _) in NETWORKS.items():
                seconds = known_seconds * work(network) / work(known)
                command = [program, "predict", "--json", "--model", network, "--workers", ",".join(map(str, WORKERS)),
                           "--gpus-per-node", str(GPUS), "--intra", intra, "--link", link, "--compute-ms",
                           str(1e3 * seconds), "--exchange", "terngrad-model", "--codec", "fp32", "--codec",
                           "terngrad", "--probe", probe.name]  # fmt: skip
                rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                step = {(row["workers"], row["codec"]): row["step_seconds"] for row in rows}
                cells = [f"{workers * images / step[workers, 'fp32']:,.0f} / {workers * images / step[workers, 'terngrad']:,.0f}"
                         f" ({step[workers, 'fp32'] / step[workers, 'terngrad']:.2f}x)" for workers in WORKERS]  # fmt: skip
                print(f"| {network} | {1e3 * seconds:.0f} ms | {' | '.join(cells)} |")
            print()


if __name__ == "__main__":
    main()
