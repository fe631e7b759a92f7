#!/usr/bin/env python3
"""A job whose workers are killed, stopped, sent away and joined, at full size: run by hand
(evidence/grpc, "Workers that come and go").

    churn.py PATH_TO_TERSEWIRE --seconds 1200 -- --model lenet --data mnist --steps 20000 --codec 3lc

Every 20 seconds, in turn: one worker is killed (-9), one joins, one is stopped for 15 s, one leaves
by SIGTERM, one joins. The hub is killed as often as --hub-kills says, and started again 3 s later.
After --seconds the job goes on undisturbed. Prints a line of JSON with what became of it. Exits
with 1 where a worker that nobody killed did not end with 0, or the job with no summary. Every
generation begins by comparing its workers' models; a job in which they differ ends with a sentence.
"""

import argparse
import collections
import itertools
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Process:
    """A node or the hub, its errors in a file, and the largest that it was."""

    def __init__(self, log, *command):
        self.log = log
        self.largest = 0
        with open(log, "ab") as errors:
            self.process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=errors)  # fmt: skip
        self.output = b""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def read(self):
        self.output = self.process.stdout.read()

    def watch(self):
        while self.process.poll() is None:
            try:
                text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
                found = re.search(r"VmHWM:\s*(\d+)", text)
                self.largest = max(self.largest, int(found[1]) if found else 0)
            except OSError:
                pass
            time.sleep(0.5)

    def end(self):
        code = self.process.wait()
        self.reader.join()
        self.watcher.join()
        return code


class Job:
    def __init__(self, program, root, arguments, job):
        self.program, self.root, self.arguments, self.job = program, root, arguments, job
        self.address = f"127.0.0.1:{free_port()}"
        self.numbers = itertools.count(1)
        self.present, self.gone, self.stopped = [], [], None
        self.events = collections.Counter()
        self.hubs = []
        self.start_hub()
        for _ in range(arguments.workers):
            self.join()

    def start_hub(self):
        self.hubs.append(Process(
            f"{self.root}/hub.log", self.program, "hub", "--workers", self.arguments.workers,
            "--min-workers", self.arguments.workers // 2, "--max-workers", self.arguments.workers + 2,
            "--listen", self.address, "--journal", f"{self.root}/journal"))  # fmt: skip

    def join(self):
        name = f"w{next(self.numbers)}"
        self.present.append(Process(
            f"{self.root}/{name}.log", self.program, "train", "--workers", self.arguments.workers,
            "--elastic", "--threads", 1, "--transport", f"grpc:hub={self.address},name={name}",
            "--out", f"{self.root}/run", "--json", *self.job))  # fmt: skip

    def take(self):
        """One that is there and runs."""
        chosen = random.choice([one for one in self.present if one is not self.stopped])
        self.present.remove(chosen)
        return chosen

    def disturb(self, event):
        self.events[event] += 1
        if event == "killed":
            one = self.take()
            one.process.kill()
            one.end()
        elif event == "joined":
            self.join()
        elif event == "left":
            one = self.take()
            one.process.send_signal(signal.SIGTERM)
            self.gone.append(one)
        else:
            self.stopped = random.choice(self.present)
            self.stopped.process.send_signal(signal.SIGSTOP)
            threading.Timer(15, self.stopped.process.send_signal, [signal.SIGCONT]).start()

    def kill_hub(self):
        self.events["hub killed"] += 1
        self.hubs[-1].process.kill()
        self.hubs[-1].end()
        time.sleep(3)
        self.start_hub()

    def is_over(self):
        return all(one.process.poll() is not None for one in self.present)

    def end(self):
        """How all ended whom nobody killed, and the summary."""
        codes = [one.end() for one in [*self.present, *self.gone, self.hubs[-1]]]
        outputs = [json.loads(one.output) for one in self.present if one.output.strip()]
        log = pathlib.Path(f"{self.root}/hub.log").read_text(encoding="utf-8")
        return codes, outputs, log


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=1200, help="of disturbance (1200)")
    parser.add_argument("--every", type=float, default=20, help="seconds between two events (20)")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--hub-kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of who is chosen (1)")
    parser.add_argument("job", nargs="+", help="what 'tersewire train' is told beside")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory() as root:
        job = Job(arguments.program, root, arguments, arguments.job)
        begin = time.monotonic()
        hub_kills = [arguments.seconds * (i + 1) / (arguments.hub_kills + 1)
                     for i in range(arguments.hub_kills)]  # fmt: skip
        events = itertools.cycle(["killed", "joined", "stopped", "left", "joined"])
        at = arguments.every
        while (passed := time.monotonic() - begin) < arguments.seconds and not job.is_over():
            if hub_kills and passed > hub_kills[0]:
                hub_kills.pop(0)
                job.kill_hub()
            if passed > at:
                at += arguments.every
                job.disturb(next(events))
            time.sleep(0.1)
        codes, summaries, log = job.end()
        seconds = time.monotonic() - begin
        told = {"seconds": round(seconds), "disturbed_seconds": round(min(seconds, arguments.seconds)),
                **job.events, "exit_codes": sorted(set(codes)),
                "generations": len(re.findall(r"generation \d+ has begun", log)),
                "lost": len(re.findall(r"is lost after step", log)),
                "given_up": re.findall(r"'\w+' has not been heard for ([\d.]+) s", log),
                "largest_worker_mib": max(one.largest for one in [*job.present, *job.gone]) // 1024,
                "largest_hub_mib": max(one.largest for one in job.hubs) // 1024,
                "summary": {key: summaries[0].get(key) for key in
                            ("steps", "test_accuracy", "final_loss", "parameters_checksum")}
                if summaries else None}  # fmt: skip
        print(json.dumps(told), flush=True)
        if any(codes) or len(summaries) != 1:
            for path in sorted(pathlib.Path(root).glob("*.log")):
                print(path.name, *path.read_text(encoding="utf-8").splitlines()[-5:], sep="\n  ",
                      file=sys.stderr)  # fmt: skip
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
