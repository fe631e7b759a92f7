#!/usr/bin/env python3
"""The most that a link carries in a time window, while a command runs in lab/netlab.

    sudo bench/link_peak.py --nodes 4 --rate 10mbit --window 2 -- COMMAND ...

Runs COMMAND like `lab/netlab run`, reads 20 times a second what each node's interface has sent and
received, and writes to standard error, as JSON, the most bytes of any node and direction in a
window, and in total; --window may be repeated. The command's standard output is left to it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

NETLAB = pathlib.Path(__file__).resolve().parent.parent / "lab" / "netlab"
EVERY = 0.05
READ = f"while sleep {EVERY}; do cat /proc/uptime; grep eth0 /proc/net/dev; done"


def samples(lines):
    """[(seconds, received, sent)] of a node."""
    taken, now = [], 0.0
    for line in lines:
        if line.lstrip().startswith("eth0:"):
            fields = line.split(":")[1].split()
            taken.append((now, int(fields[0]), int(fields[8])))
        else:
            now = float(line.split()[0])
    return taken


def most_within(taken, column, window):
    """The most bytes between two samples that are no more than a window apart."""
    most, first = 0, 0
    for sample in taken:
        while sample[0] - taken[first][0] > window:
            first += 1
        most = max(most, sample[column] - taken[first][column])
    return most


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rate", default="10mbit")
    parser.add_argument("--window", type=float, action="append", required=True, help="in seconds")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    name = ["--name", f"peak{time.time_ns() % 100000}"]
    subprocess.run([NETLAB, "up", *name, "--nodes", str(arguments.nodes), "--rate", arguments.rate],
                   check=True, stdout=sys.stderr)
    readers, nodes = [], []
    try:
        for node in range(arguments.nodes):
            namespace = f"tersewire-{name[1]}-n{node}"
            reader = subprocess.Popen(["ip", "netns", "exec", namespace, "sh", "-c", READ],
                                      stdout=subprocess.PIPE, text=True)
            nodes.append([])
            thread = threading.Thread(target=nodes[-1].extend, args=(reader.stdout,))
            thread.start()
            readers.append((reader, thread))
        code = subprocess.run([NETLAB, "run", *name, "--", *command], check=False).returncode
    finally:
        for reader, thread in readers:
            reader.terminate()
            thread.join()
        subprocess.run([NETLAB, "down", *name], check=True, stdout=sys.stderr)
    taken = [samples(lines) for lines in nodes]
    print(json.dumps({
        "rate": arguments.rate,
        "most_bytes": {window: max(most_within(node, column, window)
                                   for node in taken for column in (1, 2))
                       for window in arguments.window},
        "total_bytes": max(node[-1][column] - node[0][column] for node in taken for column in (1, 2)),
    }), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
