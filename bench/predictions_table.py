#!/usr/bin/env python3
"""Checks `tersewire predict` against every step measured in the lab (evidence/predictions).

usage: predictions_table.py TERSEWIRE [--all]

Prints one line per set of measurements, with --all one per step, as Markdown. What a codec sends
depends on the gradients: the prediction is given the measured bytes, as bits per value, and its
seconds are compared. Codec speeds are those that predictions know.
"""

import argparse
import concurrent.futures
import functools
import json
import pathlib
import statistics
import subprocess
import tempfile

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
NEAR = 0.15
FRAME = 1514 / 1448
SCALES = {"alexnet": 0.02, "hdc": 1, "resnet50": 0.048, "vgg16": 0.0088}  # of Fig. 12
MODE = "3lc:mode=paper,s="  # what `3lc:s=1.00`, two decimals, meant


def cell(group, row, seconds, compute, **more):
    """What was measured, and what it is predicted from."""
    codec = row["codec"]
    if codec.startswith("3lc:s=") and codec[-3:] in (".00", ".50", ".75", ".90") and more.pop("paper", False):
        codec = MODE + codec[6:]
    more.pop("paper", None)
    pull = row.get("pull_codec", codec)
    return {"group": group, "model": row["model"], "workers": row["workers"], "exchange": row["exchange"],
            "codec": codec, "pull_codec": codec if row["codec"] == pull else pull,
            "compute": compute, "seconds": seconds, "rate": row.get("bits_per_second"),
            "push_bytes": row.get("push_bytes"), "pull_bytes": row.get("pull_bytes"),
            "local_steps": row.get("local_steps", 1), "scale": 1, "policy": "auto", "servers": None,
            "transport": row.get("transport", "in-process")} | more  # fmt: skip


def newest(*directories):
    """Of repeated measurements, those of the last directory."""
    return sorted({path.name: path for name in directories for path in (RESULTS / name).glob("*.json")}.values())


def in_netlab():
    """Of 2026-11-21 where tensors were sent whole, one message each; of 2026-11-25 in buckets."""
    for path in newest("exchange-2026-11-21", "exchange-2026-11-25"):
        name = path.stem
        group = f"netlab over MPI, {path.parent.name[-10:]}"
        rate = {"10mbit": 1e7, "1gbit": 1e9}.get(name.split("-")[1] if name.startswith("table1") else "", 1e8)
        for row in json.loads(path.read_text()):
            which = {"table1": "Table 1", "servers": "2 to 16 workers", "colocated": "Table 1"}.get(
                name.split("-")[0], "rings, trees")  # fmt: skip
            yield cell(f"{group}: {which}", row, row["step_seconds_median"], row["compute_seconds"],
                       rate=rate, scale=0.1 if row["model"] == "alexnet" else 1, paper=True,
                       servers="colocated" if name == "colocated" else None)  # fmt: skip


def both_ways(group, row, **more):
    """A step, and its exchange alone."""
    yield cell(group, row, row["step_seconds_median"], row["compute_seconds"], **more)
    if row.get("exchange_seconds"):
        yield cell(f"{group}, exchange alone", row, row["exchange_seconds"], 0, **more)


def of_inceptionn():
    results = json.loads((RESULTS / "inceptionn-comparison-2026-11-22.json").read_text())
    for row in results["figure_12"]:
        yield from both_ways("INCEPTIONN's four systems", row, scale=SCALES[row["model"]], policy="")
    for row in results["figure_15"]:
        yield cell("its Fig. 15", row, row["step_seconds_median"], 0, scale=0.01, policy="")


def of_hidden():
    times = {}
    for line in (RESULTS / "parts-2026-11-22" / "hidden.txt").read_text().splitlines():
        words = line.split()
        if len(words) > 3 and words[2] == "after":
            exchange, _, servers = " ".join(words[3:-2]).rstrip(":").partition(" --servers ")
            times.setdefault((exchange, servers or None, float(words[1]) / 1e3), []).append(float(words[-2]))
    for (exchange, servers, compute), seconds in sorted(times.items(), key=str):
        row = {"model": "lenet", "workers": 8, "exchange": exchange, "codec": "fp32", "bits_per_second": 1e8}
        yield cell("what a thread for progress hides", row, statistics.median(seconds), compute, servers=servers)


def of_predictions():
    """For this table: every exchange, over modelled links."""
    for path in newest("predict-2026-11-23", "predict-2026-11-25"):
        name = path.stem
        servers = {"ex-colocated": "colocated", "ex-gs": "2"}.get(name)
        for row in json.loads(path.read_text()):
            group = {"table1": "Table 1's job", "netlab": "Table 1's job, netlab over MPI"}.get(
                name.split("-")[0], "every exchange")  # fmt: skip
            yield from both_ways(group, row, servers=servers, rate=row["bits_per_second"] or 1e8)


class Predictor:
    def __init__(self, program, directory):
        self.program = program
        self.probe = pathlib.Path(directory)

    @functools.lru_cache(None)  # noqa: B019  # one object, as old as the program
    def predict(self, text, push_bits=None, pull_bits=None):
        wanted = json.loads(text)
        command = [self.program, "predict", "--quiet", "--json", "--model", wanted["model"], "--scale", wanted["scale"],
                   "--workers", wanted["workers"], "--compute-ms", 1e3 * wanted["compute"],
                   "--link", f"{wanted['rate']:.0f}bit", "--exchange", wanted["exchange"], "--codec", wanted["codec"],
                   "--local-steps", wanted["local_steps"], "--transport", wanted["transport"], "--policy", wanted["policy"]]  # fmt: skip
        if wanted["pull_codec"] != wanted["codec"]:
            command += ["--pull-codec", wanted["pull_codec"]]
        if wanted["servers"]:
            command += ["--servers", wanted["servers"]]
        if push_bits is not None:
            probe = self.probe / f"{abs(hash((text, push_bits, pull_bits)))}.json"
            codecs = [self.cost(wanted["codec"], push_bits, pull_bits)]
            if wanted["pull_codec"] != wanted["codec"]:
                codecs.append(self.cost(wanted["pull_codec"], pull_bits, pull_bits))
            probe.write_text(json.dumps({"rate_bits_per_second": wanted["rate"], "latency_seconds": 0,
                                         "codecs": codecs}))  # fmt: skip
            command += ["--probe", probe]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
        return json.loads(done.stdout)[0]

    @staticmethod
    def cost(codec, push_bits, pull_bits):
        return {"codec": codec, "bits_per_value": push_bits, "pull_bits_per_value": pull_bits}

    def bits(self, text, bytes_of, key):
        """As many as make the prediction send what was measured; it is linear in them."""
        none, one = (self.predict(text, bits, bits)[key] for bits in (0.0, 1.0))
        return max(0.0, (bytes_of * FRAME - none) / (one - none))

    def seconds(self, one):
        text = json.dumps({key: one[key] for key in ("model", "scale", "workers", "compute", "rate", "exchange", "codec",
                                                     "pull_codec", "local_steps", "policy", "servers", "transport")})  # fmt: skip
        if one["codec"] == "fp32" or one["push_bytes"] is None:
            return self.predict(text)["step_seconds"]
        push = self.bits(text, one["push_bytes"], "sent_bytes")
        pull = self.bits(text, one["pull_bytes"], "received_bytes")
        return self.predict(text, push, pull)["step_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true", help="one line per step")
    options = parser.parse_args()
    cells = [*of_predictions(), *of_inceptionn(), *of_hidden(), *in_netlab()]
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(2) as pool:
        predictor = Predictor(options.program, directory)
        for one, predicted in zip(cells, pool.map(predictor.seconds, cells)):
            one["predicted"] = predicted
            one["off"] = predicted / one["seconds"] - 1
    if options.all:
        print("| set | model | workers | exchange | codec | link, Mbit/s | T, ms | measured | predicted | off by |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for one in cells:
            exchange = one["exchange"] + (f", servers {one['servers']}" if one["servers"] else "")
            codec = one["codec"] if one["codec"] == one["pull_codec"] else f"{one['codec']}, pull {one['pull_codec']}"
            print(f"| {one['group']} | {one['model']} | {one['workers']} | {exchange} | {codec} | {one['rate'] / 1e6:g} | "
                  f"{1e3 * one['compute']:.4g} | {one['seconds']:.3f} s | {one['predicted']:.3f} s | {one['off']:+.0%} |")
        return
    print("| measured | steps | within 15 % | median of the error | largest |")
    print("|---|---|---|---|---|")
    groups = [*dict.fromkeys(one["group"] for one in cells), None]
    for group in groups:
        of_group = [one["off"] for one in cells if group in (None, one["group"])]
        near = sum(abs(off) <= NEAR for off in of_group)
        print(f"| {group or '**all**'} | {len(of_group)} | {near} | {statistics.median(map(abs, of_group)):.0%} | "
              f"{max(of_group, key=abs):+.0%} |")


if __name__ == "__main__":
    main()
