#!/usr/bin/env python3
"""Runs that break off, and go on from their last checkpoint.

usage: resume_test.py PATH_TO_TERSEWIRE

Set MPIEXEC to try it over processes as well.
"""

import fcntl
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "spec")]

import mpi_launcher
import program
from arrays import npy
from program import held_at
from reference.xxh64 import xxh64

STEPS = 160
EVERY = 20
JOB = ["--model", "small-mlp", "--workers", "2", "--steps", str(STEPS), "--batch", "8",
       "--codec", "3lc:s=1.5", "--checkpoint-steps", str(EVERY)]  # fmt: skip


def train(*arguments, launcher=(), preexec_fn=None, **more_variables):
    with mpi_launcher.environment() as variables:
        variables = {**variables, **more_variables}
        return subprocess.run(
            [*launcher, program.PATH, "train", *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True,
            timeout=120, preexec_fn=preexec_fn, check=False, env=variables,
        )  # fmt: skip


def outcome(finished):
    """What must not depend on interruptions."""
    summary = json.loads(finished.stdout)
    return {key: summary[key] for key in ("parameters_checksum", "final_loss", "test_accuracy")}


def traffic(finished):
    summary = json.loads(finished.stdout)
    return [summary["push_bytes"], summary["pull_bytes"]]


def contents(directory):
    """Of all files, by their names."""
    return {path.relative_to(directory): path.read_bytes()
            for path in pathlib.Path(directory).rglob("*") if path.is_file()}


def count_lines(path):
    """Of a file that may not be there yet."""
    try:
        with open(path, "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


def has_whole_checkpoint(run):
    """Of the job's three nodes."""
    return any(len(names) == 3 and all(name.endswith(".safetensors") for name in names)
               for _, _, names in os.walk(os.path.join(run, "checkpoints")))


def command_lines():
    """Of all processes."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
                yield file.read()
        except OSError:
            pass  # it has ended


def process_of_rank(run, rank):
    """That of a run over MPI; the launcher has the directory in its command line, too, and no rank."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            texts = []
            for name in ("cmdline", "environ"):
                with open(f"/proc/{process}/{name}", encoding="utf-8", errors="replace") as file:
                    texts.append(file.read().split("\0"))
        except OSError:
            continue  # it has ended
        ranks = {f"{variable}={rank}" for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")}
        if run in texts[0] and not ranks.isdisjoint(texts[1]):
            return int(process)
    raise AssertionError(f"no rank {rank} of {run}")


def is_writing_in(directory, process):
    for descriptor in os.listdir(f"/proc/{process}/fd"):
        try:
            if os.readlink(f"/proc/{process}/fd/{descriptor}").startswith(directory):
                return True
        except OSError:
            pass  # it has been closed
    return False


def has_pending_signals(process):
    """Which it was sent, and no thread of it has taken yet."""
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        (pending,) = [line.split()[1] for line in file if line.startswith("ShdPnd:")]
    return int(pending, 16) != 0


def signal_sender(number):
    return lambda process: os.kill(process, number)


def lines_of(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def header_of(path):
    """Of a safetensors file, as its specification says."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), os.path.getsize(path) - 8 - length


def rewrite(path, before, after):
    """Replaces a piece of a file's header by one as long, as another program would have it."""
    with open(path, "rb") as file:
        data = file.read()
    assert data.count(before) == 1 and len(before) == len(after)
    data = data.replace(before, after)
    key = b'"xxh64":"'
    place = data.index(key) + len(key)
    zeroed = data[:place] + b"0" * 16 + data[place + 16 :]
    checksum = f"{xxh64(zeroed):016x}".encode()
    with open(path, "wb") as file:
        file.write(data[:place] + checksum + data[place + 16 :])


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.whole = os.path.join(cls.scratch, "whole")
        finished = train(*JOB, "--out", cls.whole, "--json")
        assert finished.returncode == 0, finished.stderr.decode()
        cls.expected = outcome(finished)
        cls.traffic = traffic(finished)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def copy_of_whole(self):
        """A run as the whole one would be, had it been cut off after its last checkpoint."""
        run = tempfile.mkdtemp(dir=self.scratch)
        shutil.copytree(self.whole, run, dirs_exist_ok=True)
        os.remove(os.path.join(run, "summary.json"))
        return run

    def killed_after(self, lines, launcher=()):
        """A run that was killed without warning when it had taken so many steps."""
        run = tempfile.mkdtemp(dir=self.scratch)
        transport = ["--transport", "mpi"] if launcher else []
        with mpi_launcher.environment() as variables:
            process = subprocess.Popen(
                [*launcher, program.PATH, "train", *JOB, "--out", run, *transport],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**variables, **held_at(lines)},
            )  # fmt: skip
            metrics = os.path.join(run, "metrics.jsonl")
            # A checkpoint is written beside the steps, and may be whole some time later.
            while count_lines(metrics) < lines or not has_whole_checkpoint(run):
                self.assertIsNone(process.poll(), "the run has ended")
                time.sleep(0.002)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # What a launcher started ends when it is gone, a moment later.
            end = time.monotonic() + 60
            while time.monotonic() < end and any(run in line for line in command_lines()):
                time.sleep(0.05)
        self.assertFalse(os.path.exists(os.path.join(run, "summary.json")))
        return run

    def assert_refused(self, finished, code, *parts):
        self.assertEqual(finished.returncode, code, finished.stderr.decode())
        message = finished.stderr.decode().splitlines()[-1]
        for part in parts:
            self.assertIn(part, message)

    def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(self):
        for lines in (EVERY + 3, 2 * EVERY, 3 * EVERY + 1, 5 * EVERY + 7):
            with self.subTest(steps=lines):
                run = self.killed_after(lines)
                resumed = train("--resume", run, "--json")
                self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
                self.assertEqual(outcome(resumed), self.expected)
                for found, whole in zip(traffic(resumed), self.traffic):
                    # Replicas are compared once more, in a message for each worker.
                    self.assertTrue(0 <= found - whole <= 100, (found, whole))
                self.assertEqual([line["step"] for line in lines_of(run)],
                                 list(range(1, STEPS + 1)))  # fmt: skip
                for key in ("seconds", "push_bytes", "pull_bytes"):
                    values = [line[key] for line in lines_of(run)]
                    self.assertEqual(values, sorted(values), key)

    def test_a_torn_checkpoint_is_passed_over(self):
        run = self.copy_of_whole()
        last = os.path.join(run, "checkpoints", f"step-{STEPS - EVERY}")
        with open(os.path.join(last, "node-1.safetensors"), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 100)
        resumed = train("--resume", run, "--json", "--quiet")
        self.assertIn("skipped a checkpoint", resumed.stderr.decode())
        self.assertIn("node-1.safetensors", resumed.stderr.decode())
        self.assertEqual(outcome(resumed), self.expected)
        self.assertEqual(json.loads(resumed.stdout)["resumed_after"], STEPS - 2 * EVERY)

    def test_a_damaged_or_missing_file_is_as_good_as_torn(self):
        run = self.copy_of_whole()
        last = os.path.join(run, "checkpoints", f"step-{STEPS - EVERY}")
        with open(os.path.join(last, "node-0.safetensors"), "r+b") as file:
            file.seek(-5, os.SEEK_END)
            byte = file.read(1)
            file.seek(-5, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        before = os.path.join(run, "checkpoints", f"step-{STEPS - 2 * EVERY}")
        os.remove(os.path.join(before, "node-2.safetensors"))
        for older in (3, 4):
            shutil.rmtree(os.path.join(run, "checkpoints", f"step-{STEPS - older * EVERY}"))
        self.assert_refused(train("--resume", run), 1, "no whole checkpoint", "checksum")
        shutil.rmtree(before)
        left = os.listdir(run)
        self.assert_refused(train(*JOB, "--resume-or-start", "--out", run), 1, "checksum", "--out")
        self.assertEqual(os.listdir(run), left)
        os.remove(os.path.join(last, "node-0.safetensors"))
        self.assert_refused(train("--resume", run), 1, "node-0.safetensors cannot be read",
                            "; restore one from a copy")  # fmt: skip

    def test_a_finished_run_is_refused(self):
        with open(os.path.join(self.whole, "summary.json"), encoding="utf-8") as file:
            before = file.read()
        self.assert_refused(train("--resume", self.whole), 1, f"all of its {STEPS} steps", "--out")
        with open(os.path.join(self.whole, "summary.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), before)

    def test_a_signal_ends_a_run_with_a_checkpoint(self):
        systems = [
            (signal.SIGTERM, []), (signal.SIGINT, ["--servers", "colocated"]),
            (signal.SIGHUP, ["--exchange", "gradient-server", "--local-steps", "4"]),
            (signal.SIGTERM, ["--local-updates", "4", "--optimizer", "adam", "--lr", "0.001"]),
            (signal.SIGINT, ["--local-updates", "4", "--fragments", "2", "--delay", "1"]),
            (signal.SIGTERM, ["--exchange", "ring"]),
            (signal.SIGTERM, ["--exchange", "aggregator-tree"]),
        ]  # fmt: skip
        for number, system in systems:
            with self.subTest(signal=number, system=system):
                job = ["--model", "small-mlp", "--workers", 2, "--steps", 2 * EVERY, "--batch", 8, "--codec",
                       "int8", "--checkpoint-steps", EVERY, *system]  # fmt: skip
                whole = train(*job, "--out", tempfile.mkdtemp(dir=self.scratch), "--json")
                run = tempfile.mkdtemp(dir=self.scratch)
                ended = self.ended_by(number, [*job, "--out", run, "--json"])
                self.assertEqual(ended.returncode, 128 + number, ended.stderr.decode())
                last = json.loads(ended.stdout)["steps"]
                (sentence,) = [line for line in ended.stderr.decode().splitlines()
                               if line.startswith("tersewire: ")]  # fmt: skip
                for part in (number.name, f"after step {last} of {2 * EVERY}", f"--resume {run}"):
                    self.assertIn(part, sentence)
                self.assertEqual(sentence.count("continues it"), 1, sentence)
                resumed = train("--resume", run, "--json")
                self.assertEqual(json.loads(resumed.stdout)["resumed_after"], last)
                self.assertEqual(outcome(resumed), outcome(whole))

    def test_a_dry_run_goes_on_uncompressed(self):
        run = tempfile.mkdtemp(dir=self.scratch)
        whole = train(*JOB[:JOB.index("--codec")], "--dry", "int8", "--checkpoint-steps", EVERY, "--out", run,
                      "--json")  # fmt: skip
        os.remove(os.path.join(run, "summary.json"))
        # The link is only what it recommends a codec for.
        resumed = train("--resume", run, "--json", "--link", "20mbit,10ms")
        self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
        self.assertEqual(json.loads(resumed.stdout)["resumed_after"], STEPS - EVERY)
        self.assertEqual(outcome(resumed), outcome(whole))
        with open(os.path.join(run, "dry.json"), "rb") as file:
            self.assertEqual(json.load(file)["rate_bits_per_second"], 20e6)

    def noticed(self, notice, tell, step=3, goes_on=True, output=subprocess.PIPE, launcher=()):
        """(the directory of a run that is told to go when it stands after a step, how it ended)"""
        run = tempfile.mkdtemp(dir=self.scratch)
        errors, go = run + ".err", run + ".go"

        def has_come():
            with open(errors, "rb") as file:
                return b" has come" in file.read()

        arguments = [*JOB, "--out", run, "--json", "--notice", notice]
        arguments += ["--transport", "mpi"] if launcher else []
        with mpi_launcher.environment() as variables, open(errors, "wb") as file, subprocess.Popen(
            [*launcher, program.PATH, "train", *arguments], stdin=subprocess.DEVNULL, stdout=output,
            stderr=file, env={**variables, **held_at(step, go)},
        ) as process:  # fmt: skip
            while not (os.path.exists(go + ".held") and (step < EVERY or has_whole_checkpoint(run))):
                self.assertIsNone(process.poll(), "the run has ended")
                time.sleep(0.002)
            tell(process_of_rank(run, 2) if launcher else process.pid)
            while process.poll() is None and not has_come():
                time.sleep(0.02)
            if goes_on:
                with open(go, "wb"):
                    pass
            summary, _ = process.communicate(timeout=120)
        with open(errors, "rb") as file:
            ended = subprocess.CompletedProcess(arguments, process.returncode, summary, file.read())
        return run, ended

    def test_at_a_notice_it_saves_and_ends_well_and_goes_on_at_another_size(self):
        file = os.path.join(self.scratch, "notice")

        def write_file(_):
            with open(file, "wb"):
                pass

        cases = [
            ("600s", signal_sender(signal.SIGTERM), "SIGTERM"),
            ("600s," + file, write_file, "the notice"),
        ]  # fmt: skip
        for notice, tell, cause in cases:
            with self.subTest(notice=notice):
                run, ended = self.noticed(notice, tell)
                errors = ended.stderr.decode()
                self.assertEqual(ended.returncode, 0, errors)
                summary = json.loads(ended.stdout)
                last = summary["steps"]
                self.assertTrue(summary["interrupted"])
                self.assertIn(f"{cause} ended the run after step {last} of {STEPS}; 'tersewire train "
                              f"--resume {run}' continues it", errors)  # fmt: skip
                self.assertNotIn("tersewire: ", errors)
                resumed = train("--resume", run, "--workers", 3, "--notice", "600s", "--json")
                self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
                summary = json.loads(resumed.stdout)
                self.assertEqual((summary["resumed_after"], summary["steps"], summary["workers"]),
                                 (last, STEPS, 3))  # fmt: skip
        self.assert_refused(train(*JOB, "--out", run + "-2", "--notice", "600s," + file), 1,
                            file, "already exists")  # fmt: skip
        self.assertFalse(os.path.exists(run + "-2"))

    def test_a_notice_of_any_process_ends_all_of_them(self):
        if "MPIEXEC" not in os.environ:
            self.skipTest("no MPIEXEC in the environment")
        file = os.path.join(self.scratch, "notice-to-all")

        def write_file(_):
            with open(file, "wb"):
                pass

        for notice, tell, cause in (("600s", signal_sender(signal.SIGTERM), "the notice of rank 2"),
                                    ("600s," + file, write_file, "the notice")):  # fmt: skip
            with self.subTest(notice=notice):
                run, ended = self.noticed(notice, tell, launcher=mpi_launcher.command(3))
                errors = ended.stderr.decode()
                self.assertEqual(ended.returncode, 0, errors)
                last = json.loads(ended.stdout)["steps"]
                self.assertIn(f"all nodes end after step {last}\n", errors)
                self.assertRegex(errors, f"{cause}.* ended the run after step {last} of {STEPS}")
                resumed = train("--resume", run, "--transport", "in-process", "--json")
                self.assertEqual(json.loads(resumed.stdout)["resumed_after"], last)
                self.assertEqual(outcome(resumed), self.expected)

    def test_where_a_notice_is_too_short_it_ends_all_the_same(self):
        run, ended = self.noticed("1s", signal_sender(signal.SIGTERM),
                                  EVERY + 3, goes_on=False)  # fmt: skip
        self.assert_refused(ended, 128 + signal.SIGTERM, "the notice of 1s is nearly over",
                            f"the last saved state is that of step {EVERY}, and {EVERY + 3} had been taken",
                            f"--resume {run}")  # fmt: skip
        resumed = train("--resume", run, "--json")
        self.assertEqual(outcome(resumed), self.expected)
        file = os.path.join(self.scratch, "short-notice")
        _, ended = self.noticed("1s," + file, lambda _: os.mkdir(file), goes_on=False)
        self.assert_refused(ended, 1, "nothing of 3 steps is saved", "start it again")

    def test_what_is_saved_is_enough_where_the_rest_takes_longer_than_a_notice(self):
        reader, writer = os.pipe()  # full, so that a summary cannot be printed
        os.set_blocking(writer, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writer, bytes(1 << 16))
        os.set_blocking(writer, True)
        # Far above what saving takes on a busy machine; the test takes as long.
        run, ended = self.noticed("10s", signal_sender(signal.SIGTERM),
                                  output=writer)  # fmt: skip
        os.close(reader)
        os.close(writer)
        self.assertEqual(ended.returncode, 0, ended.stderr.decode())
        last = count_lines(os.path.join(run, "metrics.jsonl"))
        self.assertIn(f"the notice of 10s is nearly over: the state of step {last} is saved",
                      ended.stderr.decode())  # fmt: skip
        resumed = train("--resume", run, "--json")
        self.assertEqual(json.loads(resumed.stdout)["resumed_after"], last)
        self.assertEqual(outcome(resumed), self.expected)

    def test_a_notice_that_makes_no_sense_is_refused(self):
        for notice in ("30", "s", "0.5s", "-1s", "nans", "1e9s", "30m", "30s,", "30 s"):
            with self.subTest(notice=notice):
                self.assert_refused(train(*JOB, f"--notice={notice}"), 2,
                                    f"'{notice}' is not a notice")
        notice = ("--notice", "30s")
        without = [word for word in JOB if word not in ("--checkpoint-steps", str(EVERY))]
        self.assert_refused(train(*without, *notice), 2, "give --checkpoint-steps")
        for system in (["--exchange", "weight-average"], ["--staleness", "2"], ["--staleness", "unbounded"]):
            self.assert_refused(train(*JOB, *system, *notice), 2, "omit --notice")
        hub = ("--transport", "grpc:hub=127.0.0.1:9,rank=1", "--out", self.scratch + "/none")
        self.assert_refused(train(*without, *hub, *notice), 2, "give --checkpoint-steps")

    def ended_by(self, number, arguments):
        """A run that was told to end after a few steps."""
        run = arguments[arguments.index("--out") + 1]
        go = os.path.join(self.scratch, "go")
        with mpi_launcher.environment() as variables, subprocess.Popen(
            [program.PATH, "train", *map(str, arguments)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**variables, **held_at(3), "HELD_UNTIL": go},
        ) as process:  # fmt: skip
            while process.poll() is None and count_lines(os.path.join(run, "metrics.jsonl")) < 3:
                time.sleep(0.002)
            process.send_signal(number)
            while has_pending_signals(process.pid):
                time.sleep(0.002)
            with open(go, "wb"):
                pass
            output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def test_one_command_for_a_restart_loop(self):
        run = os.path.join(self.scratch, "loop")
        loop = [*JOB, "--resume-or-start", "--out", run, "--json"]
        for lines in (3, EVERY + 3):  # killed before and after the first checkpoint
            with self.subTest(lines=lines), mpi_launcher.environment() as variables:
                process = subprocess.Popen(
                    [program.PATH, "train", *loop], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    env={**variables, **held_at(lines)},
                )  # fmt: skip
                while (count_lines(os.path.join(run, "metrics.jsonl")) < lines
                       or (lines > EVERY and not has_whole_checkpoint(run))):
                    self.assertIsNone(process.poll(), "the run has ended")
                    time.sleep(0.002)
                process.kill()
                process.wait()
        resumed = train(*loop)
        self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
        self.assertEqual(outcome(resumed), self.expected)
        self.assertGreaterEqual(json.loads(resumed.stdout)["resumed_after"], EVERY)
        last, expected = lines_of(run)[-1], lines_of(self.copy_of_whole())[-1]
        for key in ("push_values", "push_bits_per_value"):
            self.assertEqual(last[key], expected[key], key)
        # What is pulled in between is in the checkpoint.
        self.assertAlmostEqual(last["pull_bits_per_value"] / expected["pull_bits_per_value"], 1, delta=0.05)
        again = train(*loop)
        self.assertEqual((again.returncode, json.loads(again.stdout)),
                         (0, json.loads(resumed.stdout)))  # fmt: skip
        self.assertIn(f"all of its {STEPS} steps", again.stderr.decode())
        bare = train("--resume-or-start", "--out", run, TERSEWIRE_CODEC="fp32")
        self.assertEqual(bare.returncode, 0, bare.stderr.decode())
        for key, *other in [("steps", "--steps", "50"), ("push_codec", "--codec", "int8"),
                            ("model", "--model", "lenet"), ("push_codec", "--paper")]:  # fmt: skip
            with self.subTest(other=other):
                refused = train("--resume-or-start", "--out", run, "--json", *other)
                self.assert_refused(refused, 1, f"{run} holds a run whose {key} is", "another --out")
                self.assertEqual(refused.stdout, b"")
        elsewhere = train("--resume-or-start", "--out", run, "--workers", "3", "--threads", "1")
        self.assertEqual(elsewhere.returncode, 0, elsewhere.stderr.decode())

    def test_a_restart_loop_begins_no_run_in_the_place_of_something_else(self):
        foreign = tempfile.mkdtemp(dir=self.scratch)
        with open(os.path.join(foreign, "letter.txt"), "wb"):
            pass
        refused = train(*JOB, "--resume-or-start", "--out", foreign)
        self.assert_refused(refused, 1, "letter.txt", "--out")
        self.assertEqual(os.listdir(foreign), ["letter.txt"])
        self.assert_refused(train(*JOB, "--resume-or-start"), 2, "give --out")
        run = self.copy_of_whole()
        other = train(*JOB, "--resume-or-start", "--out", run, "--lr", "0.5")
        self.assert_refused(other, 2, "--lr '0.5'")
        other = train("--resume-or-start", "--out", run, "--recipe", "3lc-resnet20")
        self.assert_refused(other, 2, "3lc-resnet20")
        shutil.rmtree(os.path.join(run, "checkpoints"))
        other = train(*JOB, "--resume-or-start", "--out", run, "--lr", "0.5")
        self.assert_refused(other, 1, "lr is", "0.5", "--out")
        self.assertGreater(len(lines_of(run)), EVERY)

    def test_a_pipe_in_the_place_of_a_file_is_refused(self):
        last = os.path.join("checkpoints", f"step-{STEPS - EVERY}", "node-1.safetensors")
        for name in (last, "metrics.jsonl", "summary.json", "config.json"):
            with self.subTest(name=name):
                run = self.copy_of_whole()
                path = os.path.join(run, name)
                if os.path.exists(path):
                    os.remove(path)
                os.mkfifo(path)
                resumed = train("--resume", run, "--json")
                self.assertIn("not a regular file", resumed.stderr.decode())
                self.assertEqual(resumed.returncode, 0 if name == last else 1)
        pipe = os.path.join(self.scratch, "pipe")
        os.mkfifo(pipe)
        self.assert_refused(train("--resume", pipe), 1, pipe)

    def test_what_killed_processes_were_writing_is_removed(self):
        run = self.copy_of_whole()
        left = [os.path.join(run, *place, ".tersewire-1-0.tmp")
                for place in ([], ["checkpoints", f"step-{STEPS - EVERY}"])]  # fmt: skip
        for path in left:
            with open(path, "wb"):
                pass
        self.assertEqual(outcome(train("--resume", run, "--json")), self.expected)
        self.assertEqual([path for path in left if os.path.exists(path)], [])

    def test_nothing_is_left_of_a_file_whose_writer_was_killed(self):
        if "SLOW_SYNC" not in os.environ:
            self.skipTest("no SLOW_SYNC in the environment")
        # A name that slow_sync slows, so that the kill comes while the file has none.
        place = os.path.realpath(os.path.join(tempfile.mkdtemp(dir=self.scratch), "checkpoints", "step-1"))
        os.makedirs(place)
        array = os.path.join(self.scratch, "in.npy")
        with open(array, "wb") as file:
            file.write(npy(bytes(8), (2,)))
        with subprocess.Popen(
            [program.PATH, "encode", array, os.path.join(place, "out.tw")],
            stdin=subprocess.DEVNULL, env={**os.environ, "LD_PRELOAD": os.environ["SLOW_SYNC"]},
        ) as process:  # fmt: skip
            while process.poll() is None and not is_writing_in(place, process.pid):
                time.sleep(0.002)
            process.kill()
        self.assertEqual((process.returncode, os.listdir(place)), (-signal.SIGKILL, []))

    def test_what_another_process_has_come_to_meanwhile_stays(self):
        """It ends the run while this one, which has found its last checkpoint, loads its data."""
        if "HELD_AT_LOCK_LIBRARY" not in os.environ:
            self.skipTest("no HELD_AT_LOCK_LIBRARY in the environment")

        def check_refused(run, late, *other):
            go_on = os.path.join(self.scratch, f"go-on-{len(os.listdir(self.scratch))}")
            with subprocess.Popen(
                [program.PATH, "train", *late], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "LD_PRELOAD": os.environ["HELD_AT_LOCK_LIBRARY"], "HELD_UNTIL": go_on},
            ) as process:  # fmt: skip
                while not os.path.exists(go_on + ".held"):
                    self.assertIsNone(process.poll(), "the run has ended")
                    time.sleep(0.002)
                finished = train(*other, "--json")
                self.assertEqual(finished.returncode, 0, finished.stderr.decode())
                before = contents(run)
                open(go_on, "wb").close()
                said = process.communicate()[1].decode()
            self.assertEqual(process.returncode, 1, said)
            self.assertIn(f"another process has continued the run in {run}", said)
            self.assertEqual(contents(run), before)

        run = self.killed_after(2 * EVERY + 5)
        check_refused(run, ["--resume", run], "--resume", run)
        run = tempfile.mkdtemp(dir=self.scratch)
        job = [*JOB[:JOB.index("--checkpoint-steps")], "--resume-or-start", "--out", run]
        with open(os.path.join(run, "config.json"), "wb") as file:
            with open(os.path.join(self.whole, "config.json"), "rb") as whole:
                file.write(whole.read().replace(b'"checkpoint_steps": 20', b'"checkpoint_steps": 0'))
        check_refused(run, job, *job)

    def test_a_checkpoint_that_says_nothing_of_the_traffic_before_it(self):
        """As those of earlier versions."""
        run = self.copy_of_whole()
        last = os.path.join(run, "checkpoints", f"step-{STEPS - EVERY}")
        for rank in range(2):
            rewrite(os.path.join(last, f"node-{rank}.safetensors"), b'"totals"', b'"tutals"')
        resumed = train("--resume", run, "--json")
        self.assertEqual(outcome(resumed), self.expected)
        self.assertAlmostEqual(traffic(resumed)[0] / self.traffic[0], EVERY / STEPS, delta=0.03)

    def test_the_last_four_checkpoints_are_kept(self):
        self.assertEqual(
            sorted(os.listdir(os.path.join(self.whole, "checkpoints"))),
            sorted(f"step-{STEPS - before * EVERY}" for before in (4, 3, 2, 1)),
        )

    def test_no_checkpoint_stays_of_nodes_that_are_gone(self):
        """What another rank's removal left, which has no file of any node that still is there."""
        run = self.copy_of_whole()
        checkpoints = os.path.join(run, "checkpoints")
        left = os.path.join(checkpoints, f"step-{EVERY}")
        os.mkdir(left)
        last = os.path.join(checkpoints, f"step-{STEPS - EVERY}")
        shutil.copy(os.path.join(last, "node-2.safetensors"), os.path.join(left, "node-5.safetensors"))
        resumed = train("--resume", run, "--checkpoint-steps", 10)
        self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
        self.assertEqual(len(os.listdir(checkpoints)), 4, os.listdir(checkpoints))

    def test_what_options_say_in_their_own_way_comes_back(self):
        """A server's place, an empty text, a flag, epochs: all but what a run may have otherwise."""
        arguments = ["--model", "small-mlp", "--workers", "2", "--epochs", "0.04", "--batch", "16",
                     "--servers", "colocated", "--policy", "", "--scale-lr", "--lr", "0.010",
                     "--codec", "fp16", "--checkpoint-steps", "10"]  # fmt: skip
        run = os.path.join(self.scratch, "odd")
        whole = train(*arguments, "--out", run, "--json")
        self.assertEqual(whole.returncode, 0, whole.stderr.decode())
        for again in ((), ("--lr", "0.01", "--epochs", "0.040", "--policy", "")):
            os.remove(os.path.join(run, "summary.json"))
            resumed = train("--resume", run, *again, "--json")
            self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
            self.assertEqual(outcome(resumed), outcome(whole))
            with open(os.path.join(run, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual((config["policy"], config["servers"]), ("", "colocated"))

    def test_two_processes_do_not_work_on_one_run(self):
        run = self.copy_of_whole()
        holder = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(holder, fcntl.LOCK_EX)
        before = sorted(os.listdir(os.path.join(run, "checkpoints")))
        self.assert_refused(train("--resume", run), 1, "another process")
        self.assertEqual(sorted(os.listdir(os.path.join(run, "checkpoints"))), before)
        os.close(holder)
        self.assertEqual(train("--resume", run).returncode, 0)

    def test_with_another_number_of_workers(self):
        run = self.copy_of_whole()
        resumed = train("--resume", run, "--workers", 3, "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
        self.assertEqual(json.loads(resumed.stdout)["workers"], 3)
        # What the two of before pushed counts too: before the last checkpoint, and half as much
        # again in each step after it.
        pushed = traffic(resumed)[0] / self.traffic[0]
        self.assertAlmostEqual(pushed, 1 + 0.5 * EVERY / STEPS, delta=0.03)
        fewer = train("--resume", self.copy_of_whole(), "--workers", 1, "--json")
        pushed = traffic(fewer)[0] / self.traffic[0]
        self.assertAlmostEqual(pushed, 1 - 0.5 * EVERY / STEPS, delta=0.03)

    def test_files_are_safetensors(self):
        header, values = header_of(os.path.join(self.whole, "model.safetensors"))
        header.pop("__metadata__")
        self.assertEqual(header["fc1.weight"]["shape"], [16, 784])
        self.assertEqual(len(header), 6)
        self.assertEqual(max(entry["data_offsets"][1] for entry in header.values()), values)

    def test_what_does_not_fit_is_refused(self):
        run = self.copy_of_whole()
        empty = tempfile.mkdtemp(dir=self.scratch)
        for code, parts, arguments in (
            (1, ("no whole checkpoint", "--checkpoint-steps"), ("--resume", empty)),
            (1, ("no whole checkpoint",), ("--resume", os.path.join(empty, "nowhere"))),
            (2, ("--codec '3lc:s=1.5'", "--codec 'int8'"), ("--resume", run, "--codec", "int8")),
            (2, ("--model 'small-mlp'", "--model 'lenet'"), ("--resume", run, "--model", "lenet")),
            (2, ("directory of a run",), ("--resume", "")),
            (2, ("averaged every 30",), ("--model", "mlp", "--codec", "fp32", "--exchange",
                                         "weight-average:every=30", "--checkpoint-steps", "20")),
            (2, ("no --epochs",), ("--resume", run, "--epochs", "2")),
            (2, ("out",), ("--resume", run, "--out", empty)),
            (2, ("recipe",), ("--resume", run, "--recipe", "3lc-resnet20")),
            (2, ("--out",), (*JOB, "--transport", "mpi")),
            (2, ("multiple",), (*JOB, "--local-steps", "3")),
            (2, ("multiple",), (*JOB, "--local-updates", "3")),
            (2, ("--local-updates '0'",), ("--resume", run, "--local-updates", "5")),
            (2, ("backup",), (*JOB, "--backup-workers", "1")),
        ):
            with self.subTest(arguments=arguments):
                finished = train(*arguments)
                self.assertEqual(finished.returncode, code)
                message = finished.stderr.decode().strip()
                for part in parts:
                    self.assertIn(part, message)

    def test_another_version_is_refused(self):
        run = self.copy_of_whole()
        last = os.path.join(run, "checkpoints", f"step-{STEPS - EVERY}")
        rewrite(os.path.join(last, "node-0.safetensors"),
                b'"tersewire_checkpoint":"2"', b'"tersewire_checkpoint":"3"')  # fmt: skip
        self.assert_refused(train("--resume", run), 1, "version 3", "tersewire 0.", "version 2")

    def test_settings_that_no_option_has_are_refused(self):
        run = self.copy_of_whole()
        last = os.path.join(run, "checkpoints", f"step-{STEPS - EVERY}")
        for rank in range(3):
            rewrite(os.path.join(last, f"node-{rank}.safetensors"),
                    b'\\"momentum\\"', b'\\"momentun\\"')  # fmt: skip
        self.assert_refused(train("--resume", run), 1, "'momentun'")

    def test_nodes_may_differ_in_settings_of_their_own(self):
        for before, after in [
            (b'\\"observe-steps\\":\\"0\\"', b'\\"observe-steps\\":\\"5\\"'),
            (b'\\"link\\":\\"100mbit\\"', b'\\"link\\":\\"200mbit\\"'),
        ]:
            run = self.copy_of_whole()
            last = os.path.join(run, "checkpoints", f"step-{STEPS - EVERY}")
            rewrite(os.path.join(last, "node-1.safetensors"), before, after)
            resumed = train("--resume", run, "--json")
            self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
            self.assertNotIn("skipped a checkpoint", resumed.stderr.decode())
            self.assertEqual(outcome(resumed), self.expected)

    def test_a_full_disk_loses_nothing(self):
        run = os.path.join(self.scratch, "full")
        # Room for metrics, and for no checkpoint.
        limit = 100_000
        job = ["mlp" if word == "small-mlp" else word for word in JOB]
        failed = train(*job, "--out", run, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
        self.assert_refused(failed, 1, "node-", "safetensors")
        # Steps go on until it is noticed.
        self.assertGreaterEqual(len(lines_of(run)), EVERY)
        left = [name for _, _, names in os.walk(run) for name in names]
        self.assertEqual(sorted(left), ["config.json", "metrics.jsonl"])

    def test_where_the_model_does_not_fit_the_summary_does(self):
        run = os.path.join(self.scratch, "no-model")
        # Room for metrics, and not for the model.
        limit = 100_000
        failed = train("--model", "mlp", "--workers", "1", "--steps", "2", "--batch", "2", "--out",
                       run, preexec_fn=lambda: resource.setrlimit(
                           resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
        self.assert_refused(failed, 1, "model.safetensors")
        self.assertEqual(sorted(os.listdir(run)),
                         ["config.json", "metrics.jsonl", "summary.json"])  # fmt: skip

    def test_a_disk_slower_than_the_deadline(self):
        """Of each file of a checkpoint, and of its directory, a sync takes 6 s."""
        if "MPIEXEC" not in os.environ:
            self.skipTest("no MPIEXEC in the environment")
        run = os.path.join(self.scratch, "slow")
        job = [*JOB[:JOB.index("--checkpoint-steps")], "--checkpoint-steps", STEPS // 2]
        finished = train(*job, "--deadline", 5, "--out", run,
                         "--transport", "mpi", "--json", launcher=mpi_launcher.command(3),
                         LD_PRELOAD=os.environ["SLOW_SYNC"])  # fmt: skip
        self.assertEqual(finished.returncode, 0, finished.stderr.decode())
        self.assertEqual(outcome(finished), self.expected)
        os.remove(os.path.join(run, "summary.json"))
        resumed = train("--resume", run, "--transport", "in-process", "--json")
        self.assertEqual(json.loads(resumed.stdout)["resumed_after"], STEPS // 2)
        self.assertEqual(outcome(resumed), self.expected)

    def test_over_processes_and_from_one_transport_to_the_other(self):
        if "MPIEXEC" not in os.environ:
            self.skipTest("no MPIEXEC in the environment")
        launcher = mpi_launcher.command(3)
        run = self.killed_after(2 * EVERY + 5, launcher)
        resumed = train("--resume", run, "--json", launcher=launcher)
        self.assertEqual(resumed.returncode, 0, resumed.stderr.decode())
        self.assertEqual(outcome(resumed), self.expected)
        run = self.copy_of_whole()
        moved = train("--resume", run, "--transport", "mpi", "--json", launcher=launcher)
        self.assertEqual(moved.returncode, 0, moved.stderr.decode())
        self.assertEqual(outcome(moved), self.expected)


if __name__ == "__main__":
    program.main(__doc__, verbosity=2)
