#!/usr/bin/env python3
"""Tests of `tersewire compare` from outside.

    compare_test.py PATH_TO_TERSEWIRE

One measures in lab/netlab: it needs root, namespaces and mpirun, and is skipped, by name, without
them.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))

import program
from program import ProgramTest, held_at, run

JOB = ["--set", "model=mlp", "--set", "workers=2", "--set", "batch=8"]
RING = "exchange=ring codec=inceptionn:bound=2^-10 policy="
CELL_KEYS = {
    "steps", "seed", "dir", "state", "failure", "test_accuracy", "test_loss", "final_loss", "diverged_step",
    "compression_ratio", "push_bits_per_value", "pull_bits_per_value", "step_seconds", "compute_seconds",
    "codec_seconds", "wait_seconds", "busiest_node_bytes", "parameters_checksum",
}  # fmt: skip
MEANS = ["test_accuracy", "test_loss", "compression_ratio", "push_bits_per_value", "pull_bits_per_value",
         "step_seconds", "compute_seconds", "codec_seconds", "wait_seconds", "busiest_node_bytes"]  # fmt: skip
compare = functools.partial(run, "compare", text=True, timeout=200)


def children_of(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def is_alive(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.01)


def summaries(out):
    """The whole runs of a comparison, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(out).glob("cells/*/summary.json")}


class CompareTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.out = self.directory / "out"

    def results(self, *arguments):
        done = compare(*arguments, "--out", self.out, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = json.loads(done.stdout)
        self.assertEqual(printed, json.loads((self.out / "results.json").read_text()))
        return printed

    def started(self, *arguments, **variables):
        """A comparison that is under way. Ends with the test."""
        process = subprocess.Popen([program.PATH, "compare", *arguments, "--out", self.out],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   env={**program.ENVIRONMENT, **variables})  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process


class Results(CompareTest):
    """One comparison, looked at from all sides."""

    @classmethod
    def setUpClass(cls):
        cls.kept = pathlib.Path(tempfile.mkdtemp())
        cls.arguments = [*JOB, "--designs", f"fp32; 3lc:s=1.00;{RING}", "--set", "steps=60",
                         "--steps", "50%", "--repeat", "2", "--jobs", "2", "--rates", "10mbit,1gbit",
                         "--out", cls.kept / "out"]  # fmt: skip
        cls.done = compare(*cls.arguments)
        assert cls.done.returncode == 0, cls.done.stderr
        cls.found = json.loads((cls.kept / "out/results.json").read_text())

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.kept)

    def test_what_was_compared(self):
        found = self.found
        self.assertEqual(set(found), {"version", "recipe", "model", "data", "workers", "baseline",
                                      "full_steps", "steps", "seeds", "rates", "designs"})  # fmt: skip
        self.assertEqual((found["version"], found["recipe"], found["model"], found["data"],
                          found["workers"], found["baseline"], found["full_steps"]),
                         (1, None, "mlp", "embedded", 2, "fp32", 60))  # fmt: skip
        self.assertEqual(found["steps"], [{"name": "50%", "steps": 30}])
        self.assertEqual(found["seeds"], [1, 2])
        self.assertEqual(found["rates"], [{"name": "10mbit", "bits_per_second": 1e7},
                                          {"name": "1gbit", "bits_per_second": 1e9}])  # fmt: skip
        self.assertEqual([d["name"] for d in found["designs"]], ["fp32", "3lc:s=1.00", RING])

    def test_every_cell_is_a_run_of_train(self):
        for design in self.found["designs"]:
            self.assertEqual([(c["steps"], c["seed"]) for c in design["cells"]], [(30, 1), (30, 2)])
            for cell in design["cells"]:
                self.assertEqual(set(cell), CELL_KEYS)
                self.assertEqual((cell["state"], cell["failure"]), ("done", ""))
                run = self.kept / "out" / cell["dir"]
                config = json.loads((run / "config.json").read_text())
                self.assertEqual(config, {**design["config"], "seed": cell["seed"]})
                self.assertEqual((config["steps"], config["batch"]), (30, 8))
                self.assertEqual(len((run / "metrics.jsonl").read_text().splitlines()), 30)
                summary = json.loads((run / "summary.json").read_text())
                for key in [*MEANS, "final_loss", "parameters_checksum"]:
                    self.assertEqual(cell[key], summary[key], key)

    def test_a_codec_replaces_the_policy_and_a_design_has_the_last_word(self):
        fp32, tlc, ring = (design["config"] for design in self.found["designs"])
        self.assertEqual([fp32["push_codec"], fp32["pull_codec"], fp32["policy"]],
                         ["fp32", "fp32", "auto"])  # fmt: skip
        self.assertEqual([tlc["push_codec"], tlc["pull_codec"]], ["3lc:s=1.00"] * 2)
        self.assertEqual([ring["exchange"], ring["push_codec"], ring["policy"]],
                         ["ring", "inceptionn:bound=2^-10", ""])  # fmt: skip

    def test_means_and_deviations(self):
        baseline = self.found["designs"][0]["by_steps"][0]["test_accuracy"]
        for design in self.found["designs"]:
            (means,) = design["by_steps"]
            self.assertEqual((means["steps"], means["runs"]), (30, 2))
            for key in MEANS:
                mean = statistics.mean(cell[key] for cell in design["cells"])
                self.assertAlmostEqual(means[key], mean, delta=1e-9 * abs(mean))
            self.assertAlmostEqual(means["test_accuracy_deviation"],
                                   statistics.stdev(c["test_accuracy"] for c in design["cells"]))  # fmt: skip
            if design["name"] == "fp32":
                self.assertIsNone(means["difference"])
            else:
                self.assertAlmostEqual(means["difference"], means["test_accuracy"] - baseline)

    def test_front_of_bits_against_accuracy(self):
        ends = {}
        for design in self.found["designs"]:
            (means,) = design["by_steps"]
            ends[design["name"]] = (means["push_bits_per_value"] + means["pull_bits_per_value"],
                                    -means["test_accuracy"])  # fmt: skip
        front = {name for name, end in ends.items()
                 if not any(a <= end[0] and b <= end[1] and (a, b) != end
                            for a, b in ends.values())}  # fmt: skip
        self.assertEqual({d["name"] for d in self.found["designs"] if d["on_front"]}, front)
        # Nothing sends less than it.
        self.assertIn("3lc:s=1.00", front)
        for line in self.done.stdout.split("Traffic over")[1].splitlines():
            for name in ends:
                if line.startswith(name):
                    self.assertEqual(line.endswith(" *"), name in front, line)

    def test_steps_are_modelled_as_train_models_them(self):
        for design in self.found["designs"]:
            self.assertEqual(design["rates"], design["by_steps"][0]["rates"])
            for name, rate in zip(("10 Mbit/s", "1 Gbit/s"), design["rates"]):
                self.assertEqual(rate["kind"], "modelled")
                modelled = [
                    json.loads((self.kept / "out" / cell["dir"] / "summary.json").read_text())
                    ["modelled"][name]["step_seconds"] for cell in design["cells"]]  # fmt: skip
                self.assertAlmostEqual(rate["step_seconds"], statistics.mean(modelled), places=9)
        fp32, tlc, _ = self.found["designs"]
        self.assertEqual([rate["speedup"] for rate in fp32["rates"]], [1, 1])
        for ours, theirs in zip(tlc["rates"], fp32["rates"]):
            self.assertAlmostEqual(ours["speedup"], theirs["step_seconds"] / ours["step_seconds"])
        self.assertGreater(tlc["rates"][0]["speedup"], 20)

    def test_the_tables_say_the_same(self):
        text = self.done.stdout
        self.assertIn("30 steps (50%)", text)
        self.assertRegex(text, r"(?m)^design +@ 10mbit +@ 1gbit +accuracy, % +difference +test loss$")
        tlc = self.found["designs"][1]
        (means,) = tlc["by_steps"]
        row = re.search(r"(?m)^3lc:s=1\.00 +~(\S+) +~(\S+) +(\S+) \+- (\S+) +(\S+) +(\S+)$", text)
        self.assertIsNotNone(row, text)
        found = [float(group) for group in row.groups()]
        expected = [*(rate["speedup"] for rate in tlc["rates"]), 100 * means["test_accuracy"],
                    100 * means["test_accuracy_deviation"], 100 * means["difference"],
                    means["test_loss"]]  # fmt: skip
        for a, b in zip(found, expected):
            self.assertAlmostEqual(a, b, delta=0.005 * max(1, abs(b)))
        row = re.search(r"(?m)^3lc:s=1\.00 +(\S+)x +(\S+) +(\S+) +\S+ kB +(\S+) \*$", text)
        self.assertIsNotNone(row, text)
        self.assertAlmostEqual(float(row.group(4)), 100 * means["test_accuracy"], delta=0.005)
        for a, key in zip(row.groups(), ["compression_ratio", "push_bits_per_value",
                                         "pull_bits_per_value"]):  # fmt: skip
            self.assertAlmostEqual(float(a), means[key], delta=0.005 * max(1, means[key]))
        self.assertIn("~ is modelled", text)

    def test_progress_is_plain_lines_where_there_is_no_terminal(self):
        self.assertNotIn("\r", self.done.stderr)
        self.assertRegex(self.done.stderr, r"(?m)^6/6 runs")
        self.assertLessEqual(len(self.done.stderr.splitlines()), 12)

    def test_the_same_again_keeps_every_run_and_may_ask_for_other_rates(self):
        before = summaries(self.kept / "out")
        self.assertEqual(len(before), 6)
        again = compare(*self.arguments)
        self.assertEqual((again.returncode, again.stdout), (0, self.done.stdout), again.stderr)
        self.assertEqual(again.stderr, "6 of 6 runs are done already\n")
        other = compare(*self.arguments, "--rates", "100mbit", "--json")
        self.assertEqual(other.returncode, 0, other.stderr)
        rates = json.loads(other.stdout)["designs"][0]["rates"]
        self.assertEqual([rate["name"] for rate in rates], ["10mbit", "1gbit", "100mbit"])
        self.assertEqual(summaries(self.kept / "out"), before)

    def test_another_comparison_in_the_same_place_is_refused(self):
        designs = self.arguments.index("--designs") + 1
        for part, arguments in (
            ("steps", [*self.arguments, "--steps", "31"]),
            ("lr", [*self.arguments, "--set", "lr=0.5"]),
            ("designs", [*self.arguments[:designs], "fp32; int8", *self.arguments[designs + 1 :]]),
        ):
            with self.subTest(part=part):
                done = compare(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"another comparison (they differ in {part})", done.stderr)


class Steps(CompareTest):
    def test_a_recipe_says_what_all_steps_are(self):
        recipe = self.directory / "own.ini"
        recipe.write_text("# Own.\nmodel = mlp\nworkers = 2\nbatch = 8\nepochs = 0.02\n"
                          "codec = int8\npolicy = *:fp16\n")  # fmt: skip
        design = "'policy=last:fp32; *:fp16'   local-steps=2"
        found = self.results("--recipe", recipe, "--designs", design, "--steps", "50%,4")
        # Of 20,000 embedded images each worker has 10,000, of which 0.02 are 25 batches.
        self.assertEqual((found["recipe"], found["full_steps"]), (str(recipe), 25))
        self.assertEqual([count["steps"] for count in found["steps"]], [13, 4])
        (design,) = found["designs"]
        self.assertEqual([means["steps"] for means in design["by_steps"]], [13, 4])
        # What stands for the design is its longest run.
        self.assertEqual(design["rates"], design["by_steps"][0]["rates"])
        self.assertIsNone(design["by_steps"][0]["test_accuracy_deviation"])
        config = design["config"]
        self.assertEqual([config["push_codec"], config["policy"], config["local_steps"]],
                         ["fp32", "last:fp32; *:fp16", 2])  # fmt: skip
        self.assertEqual(design["name"], "'policy=last:fp32; *:fp16' local-steps=2")

    def test_lengths_in_steps_keep_their_part_of_the_run(self):
        recipe = self.directory / "own.ini"
        recipe.write_text("# Own.\nmodel = small-mlp\nworkers = 1\nbatch = 8\nsteps = 20\nwarm-up = 8\n"
                          "schedule = step:every=5\n")  # fmt: skip
        designs = "later-codec=10:int8 3lc; warm-up=4 schedule=step:at=0.5 fp32"
        found = self.results("--recipe", recipe, "--designs", designs, "--steps", "100%,25%,10")
        keys = ["steps", "warm_up_steps", "schedule", "later_codec"]
        configs = [
            [[config[key] for key in keys] for config in (
                json.loads((self.out / cell["dir"] / "config.json").read_text()) for cell in design["cells"])]
            for design in found["designs"]]  # fmt: skip
        self.assertEqual(configs, [
            [[20, 8, "step:every=5", "10:int8"], [5, 2, "step:every=0.25", "50%:int8"],
             [10, 4, "step:every=0.25", "50%:int8"]],
            [[20, 4, "step:at=0.5", ""], [5, 1, "step:at=0.5", ""], [10, 2, "step:at=0.5", ""]],
        ])  # fmt: skip

    def test_a_warm_up_longer_than_a_short_run_is_its_part_of_it(self):
        found = self.results(*JOB, "--set", "warm-up=250", "--designs", "fp32", "--steps", "4")
        self.assertEqual(found["designs"][0]["config"]["warm_up_steps"], 1)


class AsPublished(CompareTest):
    def test_paper_for_all_designs_leaves_what_they_name(self):
        found = self.results("--set", "paper=true", "--set", "model=small-mlp", "--set", "workers=1",
                             "--set", "batch=8", "--steps", "2",
                             "--designs", "stoch3; topk:lead=2; 3lc; paper=false 3lc")  # fmt: skip
        self.assertEqual([design["config"]["push_codec"] for design in found["designs"]],
                         ["stoch3:clip=off", "topk:lead=2", "3lc:mode=paper,lead=1", "3lc"])  # fmt: skip


class Interrupted(CompareTest):
    LONG = [*JOB, "--designs", "fp32; 3lc; int8", "--steps", "20"]

    def child_of(self, process, cell):
        """The process of a cell, once it trains."""
        wait_until(lambda: list(self.out.glob(f"cells/{cell}/metrics.jsonl")))
        (child,) = children_of(process)
        return child

    def test_what_was_killed_is_done_again_and_the_rest_kept(self):
        # Every run stands still after three steps, and the first goes on.
        go = self.directory / "go"
        process = self.started(*self.LONG, **held_at(3, go))
        self.child_of(process, "01-*")
        go.touch()
        os.kill(self.child_of(process, "02-*"), signal.SIGKILL)
        child = self.child_of(process, "03-*")
        before = summaries(self.out)
        process.kill()
        _, errors = process.communicate()
        self.assertIn("3lc with 20 steps and seed 1 failed: it was killed by signal 9", errors)
        wait_until(lambda: not is_alive(child))
        self.assertEqual([path.parent.name[:2] for path in before], ["01"])
        found = self.results(*self.LONG)
        after = summaries(self.out)
        self.assertEqual(len(after), 3)
        self.assertEqual({path: after[path] for path in before}, before)
        self.assertEqual([d["cells"][0]["state"] for d in found["designs"]], ["done"] * 3)

    def test_an_impossible_result_is_refused(self):
        arguments = [*JOB, "--designs", "fp32", "--steps", "3"]
        self.results(*arguments)
        (cell,) = summaries(self.out)
        summary = json.loads(cell.read_text())
        for accuracy in (-1.0, 1.5):
            cell.write_text(json.dumps({**summary, "test_accuracy": accuracy}))
            refused = compare(*arguments, "--out", self.out)
            self.assertEqual(refused.returncode, 1, refused)
            self.assertIn(f"a test accuracy of {accuracy} is not a number from 0 to 1; remove",
                          refused.stderr)

    def test_an_interrupt_ends_it_with_its_cells(self):
        endless = [*JOB, "--designs", "fp32", "--steps", "100000"]
        process = self.started(*endless)
        child = self.child_of(process, "01-*")
        busy = compare(*endless, "--out", self.out)
        self.assertEqual(busy.returncode, 1)
        self.assertIn(f"another process is working in {self.out};", busy.stderr)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertFalse(is_alive(child))
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("interrupted when 0 of 1 runs were done", errors.splitlines()[-1])
        self.assertIn(f"--out {self.out}", errors.splitlines()[-1])
        (design,) = json.loads((self.out / "results.json").read_text())["designs"]
        self.assertEqual(design["cells"][0]["state"], "missing")
        self.assertIsNone(design["rates"][0]["speedup"])

    def test_a_cell_that_fails_leaves_the_others_alone_and_is_tried_again(self):
        # Past what a float holds, which is noticed in the first step.
        arguments = [*JOB, "--designs", "lr=1e300; fp32", "--steps", "3", "--out", self.out]
        for _ in range(2):
            done = compare(*arguments)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("lr=1e300 with 3 steps and seed 1 failed: value cannot be", done.stderr)
            self.assertIn("1 of 2 runs failed", done.stderr.splitlines()[-1])
            self.assertRegex(done.stdout, r"(?m)^lr=1e300 +- +- +- +- +-$")
            self.assertRegex(done.stdout, r"(?m)^fp32 +~1.00 ")
        self.assertIn("1 of 2 runs are done already", done.stderr)
        quiet = compare(*arguments, "--quiet").stderr.splitlines()
        self.assertEqual(len(quiet), 2, quiet)
        self.assertIn("lr=1e300 with 3 steps and seed 1 failed: value cannot be", quiet[0])
        failed, _ = json.loads((self.out / "results.json").read_text())["designs"]
        self.assertEqual(failed["cells"][0]["state"], "failed")
        self.assertIn("value cannot be", failed["cells"][0]["failure"])


class Diverged(CompareTest):
    def test_it_is_marked(self):
        # Past what a float holds once it is squared.
        done = compare(*JOB, "--designs", "fp32; lr=1e30 int8", "--steps", "5", "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads((self.out / "results.json").read_text())
        fp32, diverged = (design["cells"][0] for design in found["designs"])
        self.assertIsNone(diverged["final_loss"])
        self.assertIsNotNone(fp32["final_loss"])
        shown = f"{100 * diverged['test_accuracy']:.2f} diverged"
        self.assertRegex(done.stdout, rf"(?m)^lr=1e30 int8 .* {re.escape(shown)} ")
        self.assertNotRegex(done.stdout, r"(?m)^fp32 .* diverged")
        step = diverged["diverged_step"]
        self.assertTrue(1 <= step <= 5, diverged)
        self.assertIsNone(fp32["diverged_step"])
        self.assertIn(f"lr=1e30 int8 with 5 steps and seed 1 diverged at step {step}.", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^diverged: at the end the loss was not finite")
        self.assertRegex(done.stdout, r"(?m)^lr=1e30 int8 +- +- +")
        # It was over then, and is not tried again.
        again = compare(*JOB, "--designs", "fp32; lr=1e30 int8", "--steps", "5", "--out", self.out)
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)

    def test_it_is_no_part_of_the_mean(self):
        job = [*JOB, "--designs", "fp32", "--steps", "5", "--repeat", "2", "--out", self.out]
        self.assertEqual(compare(*job).returncode, 0)
        cells = json.loads((self.out / "results.json").read_text())["designs"][0]["cells"]
        summary = self.out / cells[1]["dir"] / "summary.json"
        whole = json.loads(summary.read_text())
        # An end that is not finite counts as well, whatever step it began in.
        for end, told in (({"diverged_step": 3}, " at step 3"), ({"final_loss": None}, "")):
            summary.write_text(json.dumps({**whole, **end, "test_accuracy": 0.0}))
            done = compare(*job)
            self.assertEqual(done.returncode, 0, done.stderr)
            (means,) = json.loads((self.out / "results.json").read_text())["designs"][0]["by_steps"]
            self.assertEqual((means["runs"], means["test_accuracy"]),
                             (1, cells[0]["test_accuracy"]))  # fmt: skip
            self.assertIn(f"fp32 with 5 steps and seed 2 diverged{told}.", done.stdout)


class Lab(CompareTest):
    JOB = [*JOB, "--designs", "3lc:s=1.00; int8; exchange=weight-average codec=fp32; auto; "
           "later-codec=50%:int8 codec=fp32; local-updates=2 delay=1 codec=fp32", "--steps", "5",
           "--rates", "100mbit"]  # fmt: skip

    def netlab(self, script):
        path = self.directory / "netlab"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return path

    def test_a_step_is_measured_once_and_kept(self):
        calls = self.directory / "calls"
        netlab = self.netlab(f'echo "$@" >> {calls}\ncase "$*" in *codec=int8*) echo '
                             """'[{"step_seconds_median": 0.5}]';; *) echo """
                             """'[{"step_seconds_median": 0.25}]';; esac\n""")  # fmt: skip
        found = self.results(*self.JOB, "--lab", netlab)
        first, second = calls.read_text().splitlines()
        for part in ("run --name compare", "--nodes 3 --rate 100mbit -- ", "bench exchange",
                     "--transport=mpi", "--model=mlp", "--codec=3lc:s=1.00", "--policy auto"):  # fmt: skip
            self.assertIn(part, first)
        self.assertIn("--codec=int8 --pull-codec=int8", second)
        rates = [design["rates"][0] for design in found["designs"]]
        self.assertEqual([rate["kind"] for rate in rates], ["measured"] * 2 + ["modelled"] * 4)
        self.assertEqual([rate["step_seconds"] for rate in rates[:2]], [0.25, 0.5])
        self.assertEqual([rate["speedup"] for rate in rates[:2]], [1, 0.5])
        # Over a time of the same kind.
        self.assertLess(rates[2]["speedup"], 0.2)
        for rate, why in zip(rates[2:], ["does not average weights", "changes during a run",
                                         "changes during a run", "has no fragments and no delay"]):  # fmt: skip
            self.assertIn(why, rate["not_measured"])
        # Neither measured again nor forgotten.
        for lab in (["--lab", netlab], []):
            again = compare(*self.JOB, "--out", self.out, *lab)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertRegex(again.stdout, r"(?m)^3lc:s=1.00 +1\.00 ")
            self.assertRegex(again.stdout, r"(?m)^int8 +0\.50 ")
            self.assertIn("measured in the lab", again.stdout)
        self.assertEqual(len(calls.read_text().splitlines()), 2)
        # Where it cannot be measured, the model stays.
        netlab = self.netlab("echo 'netlab: there is no root here.' >&2; exit 125\n")
        found = self.results(*self.JOB, "--rates", "1gbit", "--lab", netlab)
        rates = [design["rates"][1] for design in found["designs"]]
        self.assertEqual([rate["kind"] for rate in rates], ["modelled"] * 6)
        self.assertEqual(rates[0]["not_measured"], "the lab: there is no root here.")

    def test_local_updates_keep_their_codec(self):
        calls = self.directory / "calls"
        netlab = self.netlab(f'echo "$@" >> {calls}\necho \'[{{"step_seconds_median": 1}}]\'\n')
        self.results(*JOB, "--designs", "local-updates=2 3lc", "--steps", "4", "--rates", "100mbit",
                     "--lab", netlab)  # fmt: skip
        self.assertRegex(calls.read_text(), r" --codec=3lc:\S*lead=1\b.* --pull-codec=3lc:\S*lead=1\b")
        self.assertIn(" --local-steps=2 ", calls.read_text())

    def test_in_netlab_itself(self):
        sys.path.insert(0, str(ROOT / "lab"))
        import netlab_test

        if netlab_test.WITHOUT_MPI:
            self.skipTest(netlab_test.WITHOUT_MPI)
        alone = run("bench", "exchange", "--transport", "mpi", text=True)
        if "unknown transport 'mpi'" in alone.stderr:
            self.skipTest("this build has no MPI")
        found = self.results(*JOB, "--designs", "3lc; 3lc:s=1.75", "--steps", "5", "--rates", "1gbit",
                             "--lab", ROOT / "lab/netlab")  # fmt: skip
        for design in found["designs"]:
            (rate,) = design["rates"]
            self.assertEqual(rate["kind"], "measured", rate)
            self.assertGreater(rate["step_seconds"], 0)


class Refused(CompareTest):
    def test_bad_input(self):
        (self.directory / "full").mkdir()
        (self.directory / "full/file").write_text("")
        (self.directory / "file").write_text("")
        (self.directory / "other").mkdir()
        (self.directory / "other/compare.json").write_text("[1, {")
        cases = [
            (2, "design '3lcc': unknown codec '3lcc'", "--designs", "fp32; 3lcc"),
            (2, "design 'fp32' is given twice", "--designs", "fp32;fp32 "),
            (2, "'3lc' and '3lc:s=1.250' are the same job", *JOB, "--designs", "3lc; 3lc:s=1.250"),
            (2, "'3lc' and '3lc:lead=1' are the same job", *JOB, "--set", "local-updates=4",
             "--designs", "3lc; 3lc:lead=2; 3lc:lead=1"),
            (2, "names none", "--designs", " ; "),
            (2, "no setting 'wokers'; did you mean 'workers'?", "--designs", "wokers=2 int8"),
            (2, "no setting 'x'; 'tersewire train --help' lists them", "--designs", "x=2 int8"),
            (2, "design 'int8 fp16': codec is given twice", "--designs", "int8 fp16"),
            (2, "use --steps", "--designs", "steps=5 int8"),
            (2, "does not fit exchange ring", "--designs", "exchange=ring 3lc"),
            (2, "a quote", "--designs", "fp32; policy='last:fp32; *:3lc"),
            (2, "'10' is not a rate", "--rates", "10mbit,10"),
            (2, "same rate", "--rates", "1gbit,1000mbit"),
            (2, "'101%'", "--steps", "101%"),
            (2, "'0%'", "--steps", "0%"),
            (2, "both 250 steps", "--steps", "25%,250"),
            (2, "unknown recipe 'terngrad-lent'; did you", "--recipe", "terngrad-lent"),
            (1, "no cifar10 in this directory", "--recipe", "3lc-resnet20"),
            (2, "KEY=VALUE", "--set", "batch"),
            (2, "--set 'codec=int8': codec cannot be set here", "--set", "codec=int8"),
            (2, "out cannot be set here: it is for one run, not for all cells", "--set", "out=x"),
            (2, "metrics cannot be set here", "--designs", "metrics=9100 int8"),
            (2, "recipe cannot be set here", "--set", "recipe=3lc-resnet20"),
            (2, "holds no comparison", "--out", "full"),
            (2, "holds no comparison", "--out", "file"),
            (2, "another comparison", "--out", "other"),
            (2, "nowhere is not a program", "--lab", "nowhere"),
        ]
        before = sorted(self.directory.rglob("*"))

        def attempt(case):
            return compare(*case[2:], cwd=self.directory)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for case, done in zip(cases, pool.map(attempt, cases)):
                with self.subTest(case=case):
                    self.assertEqual(done.returncode, case[0], done.stderr)
                    self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
                    self.assertIn(case[1], done.stderr)
        self.assertEqual(sorted(self.directory.rglob("*")), before)


if __name__ == "__main__":
    program.main(__doc__)
