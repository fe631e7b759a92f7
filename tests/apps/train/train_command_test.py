#!/usr/bin/python3
"""Tests of `tersewire train` from outside: its options, what it prints and what it leaves behind.

    train_command_test.py PATH_TO_TERSEWIRE
"""

import itertools
import json
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess
import sys
import time
import zlib

sys.dont_write_bytecode = True

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import mpi_launcher
import program
from program import ProgramTest, run, run_all


class Train(ProgramTest):
    JOB = "--model small-mlp --workers 2 --batch 8 --codec 3lc:s=1.5".split()
    RING = "--model small-mlp --workers 3 --batch 8 --codec int8 --exchange ring".split()
    KEYS = """test_accuracy final_loss steps exchange workers servers push_bits_per_value pull_bits_per_value
        push_bytes pull_bytes compression_ratio step_seconds waited
        parameters_checksum""".split()

    def train(self, name, *arguments, job=None, **variables):
        return run("train", *(job or self.JOB), "--out", self.path(name), "--json", *arguments,
                   **variables)  # fmt: skip

    def test_a_multiplied_rate_is_reported(self):
        job = "--model small-mlp --workers 2 --batch 8 --steps 2 --lr 0.001".split()
        for optimizer, codec, gain in (("adam", "3lc:s=1.75", 2), ("adam", "int8", 1), ("sgd", "3lc", 1)):
            name = f"{optimizer} {codec}"
            out = ("--optimizer", optimizer, "--codec", codec, "--out", self.path(name))
            printed = run("train", *job, *out).stdout
            self.assertEqual(b"Learning rates were multiplied by 2 (--rate-gain)." in printed, gain == 2)
            self.assertEqual(json.loads(self.read(name + "/summary.json"))["rate_gain"], gain)

    def test_a_paper_multiplies_no_rate_unless_told(self):
        job = "--model small-mlp --workers 2 --batch 8 --steps 2 --lr 0.001".split()
        adam = ("--optimizer", "adam", "--codec", "terngrad")
        cases = (("default", adam, 1.412), ("paper", (*adam, "--paper"), 1),
                 ("told", (*adam, "--paper", "--rate-gain", "1.2"), 1.2),
                 ("policy", ("--optimizer", "adamw", "--paper", "--policy", "*:terngrad"), 1),
                 ("sgd", ("--codec", "terngrad", "--paper"), 1),
                 ("local", (*adam, "--paper", "--local-updates", "1"), 1))  # fmt: skip
        for name, flags, gain in cases:
            with self.subTest(name):
                result = self.train(name, *flags, job=job)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertAlmostEqual(json.loads(result.stdout)["rate_gain"], gain, delta=0.001)
        recorded = [json.loads(self.read(f"{name}/config.json"))["rate_gain"] for name, *_ in cases]
        self.assertEqual(recorded, [None, 1, 1.2, 1, None, None])
        again = self.train("paper", *adam, "--paper", "--resume-or-start", job=job)
        self.assertEqual(again.returncode, 0, again.stderr)
        other = self.train("default", *adam, "--paper", "--resume-or-start", job=job)
        self.assert_refused(other, 1, "holds a run whose rate_gain is null and not 1")

    def test_defaults_stand_behind_a_recipe_and_change_no_run_that_goes_on(self):
        job = "--model small-mlp --workers 1 --batch 8 --steps 4 --quiet".split()
        variables = {"TERSEWIRE_CODEC": "int8", "TERSEWIRE_CHECKPOINT_STEPS": "2"}

        def config(name):
            return json.loads(self.read(name + "/config.json"))

        self.assertEqual(self.train("plain", job=job, **variables).returncode, 0)
        self.assertEqual((config("plain")["push_codec"], config("plain")["checkpoint_steps"]),
                         ("int8", 2))  # fmt: skip
        recipe = self.write("own.ini", b"push-codec = fp16\n")
        result = self.train("recipe", "--recipe", recipe, job=job, **variables)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(config("recipe")["push_codec"], "fp16")
        os.remove(self.path("plain/summary.json"))
        again = run("train", "--resume", self.path("plain"), "--quiet", TERSEWIRE_CODEC="fp16")
        self.assertEqual(again.returncode, 0, again)
        self.assertEqual(config("plain")["push_codec"], "int8")
        compared = run("compare", "--designs", "fp32", "--steps", "1", "--set", "model=small-mlp", "--set",
                       "workers=1", "--set", "batch=1", "--out", self.path("compared"), **variables)
        self.assertEqual(compared.returncode, 0, compared)
        (cell,) = os.listdir(self.path("compared/cells"))
        self.assertEqual(config(f"compared/cells/{cell}")["checkpoint_steps"], 0)

    def test_wrong_defaults_are_said_to_be_defaults(self):
        file = self.write("config.json", b'{"transport": "foo"}')
        cases = [
            ((), {"TERSEWIRE_CODEC": "3lcc"}, "TERSEWIRE_CODEC: unknown codec '3lcc'"),
            ((), {"TERSEWIRE_TRANSPORT": "foo"}, "TERSEWIRE_TRANSPORT: unknown transport 'foo'"),
            ((), {"TERSEWIRE_CONFIG": file}, f"{file}, 'transport': unknown transport 'foo'"),
            (("--backup-workers", 1), {"TERSEWIRE_CHECKPOINT_STEPS": "100"},
             "save no states; TERSEWIRE_CHECKPOINT_STEPS says --checkpoint-steps 100"),
            (("--paper",), {"TERSEWIRE_CODEC": "auto"}, "; TERSEWIRE_CODEC says --codec auto"),
        ]
        for arguments, variables, sentence in cases:
            with self.subTest(sentence=sentence):
                self.assert_refused(run("train", *arguments, **variables), 2, sentence)
        # What the command line says has no other origin.
        refused = run("train", "--codec", "3lcc", TERSEWIRE_CODEC="int8")
        self.assert_refused(refused, 2, "unknown codec '3lcc'")
        self.assertNotIn(b"TERSEWIRE", refused.stderr)

    def test_libtorch_is_loaded_by_what_trains_alone(self):
        def loads(*arguments):
            """Whether the dynamic loader looked for libtorch."""
            log = self.path("loader")
            run(*arguments, LD_DEBUG="libs", LD_DEBUG_OUTPUT=log)
            logs = [name for name in os.listdir(self.directory) if name.startswith("loader")]
            found = [b"libtorch_cpu" in self.read(name) for name in logs]
            for name in logs:
                os.remove(self.path(name))
            return any(found)

        for command in (["train", "--help"], ["compare", "--help"], ["config"],
                        ["train", "--model", "none"], ["train", "--steps", "-1"],
                        ["train", "--codec", "3lc:s=16"], ["train", "--servers", "0"],
                        ["train", "--dry", "3lc,nope"], ["train", "--data", self.directory],
                        ["train", "--data", "embedded-text"]):  # fmt: skip
            self.assertFalse(loads(*command), command)
        self.assertTrue(loads("train", "--steps", "1", "--out", self.path("run")))

    def test_what_trains_must_be_installed(self):
        built = os.path.dirname(os.path.dirname(os.path.realpath(program.PATH)))
        folder = f"{built}/trainer".encode()
        with open(program.PATH, "rb") as file:
            content = file.read()
        self.assertIn(folder, content)
        alone = self.write("tersewire", content.replace(folder, b"-" * len(folder)))
        os.chmod(alone, 0o755)
        result = subprocess.run([alone, "train", "--steps", "1", "--out", self.path("run")],
                                capture_output=True, check=False)  # fmt: skip
        self.assert_refused(result, 1, "tersewire-torch.so", "No such file", "install tersewire")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_quiet_says_the_result_alone(self):
        result = self.train("run", "--steps", "12", "--quiet")
        self.assert_done(result)
        self.assertEqual(json.loads(result.stdout)["steps"], 12)
        result = run("train", "--quiet", "--model", "none")
        self.assert_refused(result, 2, "none")

    def test_json_is_the_summary_alone(self):
        result = self.train("run", "--steps", "12")
        self.assertEqual(result.returncode, 0, result)
        summary = json.loads(result.stdout)
        self.assertLessEqual(set(self.KEYS), set(summary))
        self.assertEqual((summary["steps"], summary["workers"]), (12, 2))
        self.assertGreater(summary["compression_ratio"], 10)
        self.assertTrue(0 <= summary["waited"] <= 1, summary)
        # Plain lines where there is no terminal.
        self.assertIn(b"step 12/12", result.stderr)
        self.assertFalse([c for c in result.stderr if c < 32 and c != 10], result.stderr)

    def test_a_run_leaves_its_record(self):
        summary = json.loads(self.train("run", "--steps", "12").stdout)
        self.assertEqual(
            sorted(os.listdir(self.path("run"))),
            ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"],
        )
        self.assertEqual(json.loads(self.read("run/config.json"))["push_codec"], "3lc:s=1.5")
        lines = self.read("run/metrics.jsonl").splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, 13)))
        self.assertEqual(json.loads(self.read("run/summary.json")), summary)
        again = json.loads(self.train("again", "--steps", "12").stdout)
        self.assertEqual(again["parameters_checksum"], summary["parameters_checksum"])

    def test_codecs_as_their_papers_print_them(self):
        texts = {
            "3lc:s=1.5": "3lc:s=1.5,mode=paper,lead=1",
            "adacomp:bin=20": "adacomp:bin=20,lead=1",
            "dryden": "dryden:fraction=0.003,lead=1",
            "local-selection": "local-selection:bin=kind,lead=1",
            "local-selection:bin=200,lead=2": "local-selection:bin=200,lead=2",
            "stoch3": "stoch3:clip=off",
            "terngrad": "terngrad",
        }
        for i, (given, published) in enumerate(texts.items()):
            self.train(f"{i}", "--steps", "1", "--codec", given, "--paper",
                       job=["--model", "small-mlp"])  # fmt: skip
            self.assertEqual(json.loads(self.read(f"{i}/config.json"))["push_codec"], published)

    def test_a_later_codec(self):
        # Of a model whose tensors that stay fp32 are few.
        job = "--model mlp --workers 2 --batch 8 --codec 3lc:s=1.5".split()
        self.train("run", "--steps", "12", "--later-codec", "50%:3lc:s=1.9", job=job)
        lines = [json.loads(line) for line in self.read("run/metrics.jsonl").splitlines()]
        self.assertEqual([line["codec"] for line in lines], ["3lc:s=1.5"] * 6 + ["3lc:s=1.9"] * 6)
        pushed = [0] + [line["push_bytes"] for line in lines]
        self.assertGreater(pushed[6], 1.5 * (pushed[12] - pushed[6]))
        refused = self.train("none", "--steps", "12", "--later-codec", "12:int8")
        self.assert_refused(refused, 2, "'12:int8' is not a later codec for a job of 12 steps")
        # Where there are no servers their codec is not asked about.
        ring = self.train("ring", "--steps", "2", "--later-codec", "50%:int8",
                          job=["--model", "small-mlp", "--exchange", "ring", "--push-codec", "fp32"])  # fmt: skip
        self.assertEqual(ring.returncode, 0, ring)

    def assert_kept_its_record(self, name):
        self.assertEqual(
            sorted(os.listdir(self.path(name))),
            ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"],
        )
        self.assertEqual(json.loads(self.read(name + "/summary.json"))["steps"], 12)

    def test_a_run_whose_output_fails_keeps_its_record(self):
        command = ("train", *self.JOB, "--steps", "12", "--out")
        with open("/dev/full", "wb") as full:
            result = run(*command, self.path("full"), "--json", stdout=full)
        self.assertEqual(result.returncode, 1, result)
        self.assertIn(b"tersewire: standard output", result.stderr.splitlines()[-1])
        self.assert_kept_its_record("full")
        # As `train 2>&1 | head -1`: both streams go to a reader that leaves after a line.
        reader, writer = os.pipe()
        command = [program.PATH, *command, self.path("pipe")]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer,
                              stderr=writer) as process:
            os.close(writer)
            with open(reader, "rb", buffering=0) as lines:
                lines.readline()
            self.assertEqual(process.wait(timeout=120), -signal.SIGPIPE)
        self.assert_kept_its_record("pipe")

    def test_a_run_that_diverges_says_so_and_fails(self):
        arguments = ("--steps", "20", "--lr", "1e30")
        result = self.train("run", *arguments)
        self.assertEqual(result.returncode, 1, result)
        summary = json.loads(result.stdout)
        self.assertEqual(json.loads(self.read("run/summary.json")), summary)
        step = summary["diverged_step"]
        self.assertTrue(1 <= step <= summary["steps"] < 20, summary)
        (said,) = re.findall(rb"not a finite number in step (\d+):", result.stderr)
        self.assertIn(int(said), (step, step + 1))  # it may have grown tenfold before
        self.assertIn(b"--keep-going", result.stderr.splitlines()[-1])
        result = run("train", *self.JOB, *arguments, "--keep-going", "--out", self.path("on"))
        self.assertEqual(result.returncode, 0, result)
        summary = json.loads(self.read("on/summary.json"))
        self.assertEqual((summary["diverged_step"], summary["steps"]), (step, 20))
        self.assertIn(f"Diverged at step {step}: the loss has grown to ten times its best or more, "
                      "and is not finite at the end.".encode(), result.stdout)
        self.assertNotIn(b"-nan", result.stdout + result.stderr)
        self.assertNotIn(b"saved", result.stdout.replace(b"was saved", b""))

    def test_raw_from_all(self):
        plain = json.loads(self.train("plain", "--steps", "6").stdout)
        raw = json.loads(self.train("raw", "--steps", "6", "--raw-from-all").stdout)
        self.assertEqual(raw["parameters_checksum"], plain["parameters_checksum"])
        self.assertGreater(raw["push_bytes"], plain["push_bytes"])  # what workers tell each other
        self.assertTrue(json.loads(self.read("raw/config.json"))["raw_from_all"])
        refused = self.train("none", "--raw-from-all", "--backup-workers", "1")
        self.assert_refused(refused, 2, "use 0 backup workers")

    def test_local_updates(self):
        summary = json.loads(self.train("plain", "--steps", "12", "--local-updates", "5").stdout)
        self.assertEqual(summary["validation_loss"], summary["test_loss"])
        config = json.loads(self.read("plain/config.json"))
        self.assertEqual([config["local_updates"], config["outer"]],
                         [5, "sgd:lr=1"])
        other = json.loads(self.train("other", "--steps", "12", "--local-updates", "5", "--outer",
                                      "nesterov").stdout)
        self.assertNotEqual(other["parameters_checksum"], summary["parameters_checksum"])
        self.assertEqual(json.loads(self.read("other/config.json"))["outer"], "nesterov")
        self.train("rare", "--steps", "10", "--local-updates", "10")
        self.assertEqual(json.loads(self.read("rare/config.json"))["outer"],
                         "nesterov:lr=1,momentum=0.5")
        for arguments, word in [
            (["--local-updates", "5", "--local-steps", "2"], "use one of the two"),
            (["--outer", "sgd:lr=1"], "use local updates"),
            (["--local-updates", "5", "--outer", "adam"], "'adam'"),
            (["--local-updates", "5", "--outer", "sgd:lr=none"], "'none'"),
            (["--local-updates", "-1"], "--local-updates"),
            (["--fragments", "2"], "this job makes none"),
            (["--local-updates", "5", "--fragments", "2"], "fragments divide"),
            (["--local-updates", "6", "--fragments", "2", "--delay", "3"], "below a turn of 3 steps"),
            (["--local-updates", "2000", "--fragments", "2000"], "no more than"),
            (["--local-updates", "5", "--exchange", "weight-average"], "every=5"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train("none", *arguments), 2, word)

    def test_fragments_take_turns(self):
        turns = ["--steps", "12", "--local-updates", "6", "--fragments", "3", "--delay", "1"]
        summary = json.loads(self.train("turns", *turns).stdout)
        config = json.loads(self.read("turns/config.json"))
        self.assertEqual([config["fragments"], config["delay"]], [3, 1])
        whole = json.loads(self.train("whole", "--steps", "12", "--local-updates", "6").stdout)
        self.assertNotEqual(whole["parameters_checksum"], summary["parameters_checksum"])

    def test_a_dry_run_changes_nothing_and_says_what_codecs_would_save(self):
        job = ["--model", "small-mlp", "--workers", "2", "--batch", "8"]
        twelve = ["train", *job, "--steps", "12", "--json"]
        plain = json.loads(run(*twelve, "--codec", "fp32", "--out", self.path("plain")).stdout)
        dry = run(*twelve, "--dry", "3lc,adacomp:bin=50,lead=1,int8", "--link", "20mbit,5ms", "--out",
                  self.path("dry"))
        summary = json.loads(dry.stdout)
        self.assertEqual(summary["parameters_checksum"], plain["parameters_checksum"])
        self.assertEqual(summary["push_bytes"], plain["push_bytes"])
        found = json.loads(self.read("dry/dry.json"))
        self.assertEqual((found["rate_bits_per_second"], found["latency_seconds"]), (2e7, 0.005))
        codecs = {row["codec"]: row for row in found["codecs"]}
        self.assertEqual(list(codecs), ["3lc", "adacomp:bin=50,lead=1", "int8"])
        self.assertTrue(0.5 < codecs["3lc"]["bits_per_value"] < 2, codecs)
        self.assertTrue(8 <= codecs["int8"]["bits_per_value"] < 9, codecs)
        self.assertTrue(0 < codecs["int8"]["error"] < 0.1 < codecs["3lc"]["error"], codecs)
        self.assertEqual(len(found["tensors"]), 3 * len({row["tensor"] for row in found["tensors"]}))
        self.assertTrue(all(row["looks"] >= 1 for row in found["tensors"]), found)
        # Unless a codec is asked for, the run sends fp32.
        shown = run("train", *job, "--steps", "6", "--dry", "3lc", "--out", self.path("shown"))
        self.assertEqual(json.loads(self.read("shown/config.json"))["push_codec"], "fp32")
        self.assertRegex(shown.stdout.decode(), r"(?s)Dry run, [\d.]+ % of the time:\ncodec .*\n3lc .*"
                         r"With parameter-server at 100mbit: (Take|Nothing)")
        # What does not fit the exchange can be tried all the same.
        misfit = run("train", *job, "--steps", "6", "--exchange", "ring", "--dry", "3lc", "--out",
                     self.path("misfit"))
        self.assertEqual(misfit.returncode, 0, misfit)
        self.assertRegex(misfit.stdout.decode(), r"(?s)\n3lc .*With ring at 100mbit: No verdict: "
                         r"codec 3lc does not fit exchange ring")
        # What a recipe or a default has is not asked for.
        for i, given in enumerate((["--recipe", "adacomp-mnist-cnn", "--data", "embedded"], [])):
            run("train", *job, *given, "--steps", "1", "--dry", "int8", "--out", self.path(f"dry{i}"),
                TERSEWIRE_CODEC="3lc")  # fmt: skip
            self.assertEqual(json.loads(self.read(f"dry{i}/config.json"))["push_codec"], "fp32")
        few = run("train", *job, "--steps", "1", "--dry", "3lc", "--out", self.path("few"))
        self.assertRegex(few.stdout, rb"Tensor \S+ was not looked at: take \d+ steps or more\.")
        weights = run("train", *job, "--dry", "3lc", "--exchange", "weight-average", "--out",
                      self.path("none"))
        self.assert_refused(weights, 2, "a dry run measures gradients")
        for arguments, word in [
            (["--dry", "3lc,nope"], "unknown codec 'nope'"),
            (["--dry", "3lc", "--local-updates", "5"], "a dry run measures gradients"),
            (["--dry", "3lc", "--link", "fast"], "'fast' is not a rate"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train("none", *arguments), 2, word)

    def test_staleness(self):
        plain = json.loads(self.train("plain", "--steps", "12").stdout)
        # Where states are saved workers meet, and so this is lock-step.
        met = json.loads(self.train("met", "--steps", "12", "--staleness", "2",
                                    "--checkpoint-steps", "1").stdout)
        self.assertEqual(met["parameters_checksum"], plain["parameters_checksum"])
        config = json.loads(self.read("met/config.json"))
        self.assertEqual(config["staleness"], 2)
        free = json.loads(self.train("free", "--steps", "12", "--staleness", "unbounded",
                                     "--compute-ms", "5", "--slowest", "3").stdout)
        self.assertEqual(free["steps"], 12)
        spared = json.loads(self.train("spared", "--steps", "12", "--staleness", "3",
                                       "--backup-workers", "1", "--checkpoint-steps", "1").stdout)
        self.assertEqual(spared["parameters_checksum"], plain["parameters_checksum"])
        self.assertEqual(json.loads(self.read("free/config.json"))["staleness"], "unbounded")
        for arguments, word in [
            (["--staleness", "2", "--backup-workers", "9"], "cannot be backups"),
            (["--staleness", "2", "--local-updates", "5"], "use one of the two"),
            (["--staleness", "unbounded", "--exchange", "all-gather"], "or omit staleness"),
            (["--staleness", "unbounded", "--raw-from-all"], "omit staleness, or raw from all"),
            (["--staleness", "half"], "and not unbounded"),
            (["--staleness", "-1"], "--staleness"),
            (["--slowest", "3"], "give --compute-ms"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train("none", *arguments), 2, word)

    def test_the_moving_average_is_what_was_tested(self):
        result = run("train", *self.JOB, "--steps", "12", "--ema", "0.9", "--out", self.path("run"))
        self.assertIn(b"moving average of the parameters (decay 0.9)", result.stdout)
        self.assertEqual(json.loads(self.read("run/config.json"))["ema"], 0.9)
        averaged = json.loads(self.read("run/summary.json"))
        self.assertEqual(averaged["measured_values"], "their moving average")
        plain = json.loads(self.train("plain", "--steps", "12").stdout)
        self.assertEqual(plain["measured_values"], "the last")
        self.assertEqual(plain["parameters_checksum"], averaged["parameters_checksum"])

    def test_an_interrupt_ends_with_what_was_measured(self):
        command = [program.PATH, "train", *self.JOB, "--steps", "1000000", "--json", "--out"]
        with subprocess.Popen(
            [*command, self.path("run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            metrics = self.path("run/metrics.jsonl")
            while process.poll() is None and not (
                os.path.exists(metrics) and os.path.getsize(metrics) > 0
            ):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        summary = json.loads(output)
        self.assertEqual((process.returncode, summary["interrupted"]), (130, True))
        (sentence,) = [line for line in errors.splitlines() if line.startswith(b"tersewire: ")]
        self.assertIn(b"SIGINT ended the run after step", sentence)
        self.assertIn(b"--checkpoint-steps", sentence)
        self.assertEqual(len(self.read("run/metrics.jsonl").splitlines()), summary["steps"])

    def over_mpi(self, ranks, *arguments, job=None, of_rank_2=()):
        """The same over processes, the third of which may have more arguments. Not mpirun's ':', at which Open MPI
        5.0.7's own mpirun ends with signal 11."""
        alone = self.train("alone", "--transport", "mpi")
        if b"unknown transport 'mpi'" in alone.stderr:
            self.skipTest("this build has no MPI")
        self.assert_refused(alone, 1, "mpirun -n NODES")
        if not mpi_launcher.launcher():
            self.skipTest("there is no mpirun here")
        more = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" != 2 ] || set -- "$@" {" ".join(of_rank_2)}; exec "$@"'
        command = mpi_launcher.command(
            ranks, *(["sh", "-c", more, "sh"] if of_rank_2 else []), program.PATH, "train", *(job or self.JOB),
            "--transport", "mpi", "--json", *arguments)  # fmt: skip
        with mpi_launcher.environment() as variables:
            return subprocess.run(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
                check=False,
            )

    def test_processes_come_to_the_same_as_threads(self):
        cases = [
            (4, [*self.JOB, "--servers", "2", "--optimizer", "adam", "--ema", "0.9"]),
            (3, [*self.JOB, "--exchange", "gradient-server"]),
            (3, self.RING),
            (2, [*self.JOB, "--servers", "colocated", "--local-steps", "4"]),
            (3, [*self.JOB, "--local-updates", "4", "--outer", "sgd:lr=1", "--fragments", "2",
                 "--delay", "1"]),
        ]
        for i, (ranks, job) in enumerate(cases):
            with self.subTest(job=job):
                name = f"mpi{i}"
                steps = ("--steps", "12")
                over_mpi = self.over_mpi(ranks, "--out", self.path(name), *steps, job=job)
                self.assertEqual(over_mpi.returncode, 0, over_mpi)
                self.assertEqual(over_mpi.stderr.count(b"step 12/12"), 1, over_mpi)
                threads = json.loads(self.train(f"threads{i}", *steps, job=job).stdout)
                summary = json.loads(over_mpi.stdout)
                for key in ["parameters_checksum", "final_loss", "test_accuracy", "push_bytes"]:
                    self.assertEqual(summary[key], threads[key], key)
                self.assertEqual(json.loads(self.read(f"{name}/summary.json")), summary)
                self.assertEqual(os.listdir(self.directory).count(name), 1)

    def test_a_job_without_servers(self):
        result = run("train", *self.RING, "--steps", "5", "--out", self.path("run"))
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(b"5 steps of 3 workers, ring:", result.stdout)
        self.assertIn(b"worker 0's replica", result.stdout)
        self.assertNotIn(b"server", result.stdout)
        summary = json.loads(self.read("run/summary.json"))
        found = [summary[key] for key in ["exchange", "servers", "push_codec", "pull_codec"]]
        self.assertEqual(found, ["ring", 0, "int8", None])
        self.assertEqual(json.loads(self.read("run/config.json"))["servers"], 0)

    def test_means_for_adam_keep_no_residual(self):
        job = "--model small-mlp --batch 8 --steps 2 --exchange gradient-server --optimizer adamw".split()
        for i, (pulled, flags) in enumerate((
                ("3lc:ef=off", ()), ("3lc", ("--pull-codec", "3lc")),
                ("3lc:mode=paper,lead=1", ("--paper",)))):
            summary = json.loads(self.train(f"{i}", *flags, job=job).stdout)
            self.assertEqual((summary["push_codec"], summary["pull_codec"]),
                             (pulled.replace(":ef=off", ""), pulled))  # fmt: skip

    def test_what_all_processes_refuse_is_said_once(self):
        os.mkdir(self.path("full"))
        self.write("full/file", b"")
        cases = [
            (2, 2, "a job of 2 workers and 1 server takes 3 processes, not 2", self.JOB),
            (2, 2, "a job of 3 workers takes 3 processes, not 2", self.RING),
            (3, 1, "full exists and is not an empty directory", self.JOB),
        ]
        for ranks, code, sentence, job in cases:
            with self.subTest(sentence=sentence):
                refused = self.over_mpi(ranks, "--out", self.path("full"), job=job)
                self.assertEqual(refused.returncode, code, refused)
                self.assertEqual(refused.stderr.count(b"tersewire: "), 1, refused)
                self.assertIn(sentence.encode(), refused.stderr)
                self.assertNotIn(b"tersewire", refused.stdout)

    def test_what_cannot_fit_into_memory_is_refused(self):
        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        # LeNet-300-100's kin of 0.4 million values: parameters, gradients, residuals, Adam's two.
        job = "--model mlp --workers 1024 --batch 1 --exchange all-gather --optimizer adam".split()
        result = run("train", *job, "--out", self.path("run"), preexec_fn=limit_memory)
        self.assert_refused(result, 1, "1024 workers with mlp and all-gather need", "GB")
        self.assert_files()

    def test_what_is_said_to_fit_takes_about_what_is_said(self):
        job = "--model hdc --batch 1 --steps 2 --exchange all-gather".split()

        def peak(workers):
            """Of a run's memory, in bytes."""
            command = [program.PATH, "train", *job, "--workers", str(workers), "--threads", "1"]
            out = self.path(f"run{workers}")
            with subprocess.Popen([*command, "--out", out], stdout=subprocess.DEVNULL,
                                  env=program.ENVIRONMENT) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            return usage.ru_maxrss * 1024

        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        refused = run("train", *job, "--workers", "1024", "--out", self.path("none"),
                      preexec_fn=limit_memory)
        self.assert_refused(refused, 1, "1024 workers with hdc and all-gather need at least")
        said = float(re.search(rb"need at least ([0-9.]+) GB", refused.stderr)[1]) * 1e9 / 1024
        each = (peak(12) - peak(4)) / 8
        self.assertGreater(each, 0.8 * said)
        self.assertLess(each, 1.5 * said)

    def test_more_workers_than_cores_take_turns(self):
        job = "--model mlp --workers 330 --batch 1 --steps 2 --codec int8".split()
        result = self.train("run", job=job)
        self.assertEqual(result.returncode, 0, result)
        self.assertNotIn(b"OpenBLAS", result.stderr)

    def test_a_launcher_without_its_transport_is_noticed(self):
        self.over_mpi(1, "--out", self.path("none"))  # whether there is one at all
        command = [program.PATH, "train", *self.JOB, "--steps", "2"]
        with mpi_launcher.environment() as variables:
            refused = subprocess.run(
                [*mpi_launcher.command(3), *command, "--out", self.path("run")],
                env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                check=False,
            )  # fmt: skip
        self.assertEqual(refused.returncode, 2, refused)
        self.assertEqual(refused.stderr.count(b"tersewire: "), 1, refused)
        self.assertIn(b"3 processes were started", refused.stderr)
        self.assertIn(b"--transport mpi", refused.stderr)
        self.assertFalse(os.path.exists(self.path("run")))
        alone = subprocess.run(
            [*command, "--transport", "in-process", "--out", self.path("meant")],
            env={**os.environ, "PMI_SIZE": "3", "PMI_RANK": "1"}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        self.assertEqual(alone.returncode, 0, alone)

    def trained_with(self, name, *arguments):
        """The optimizer and its settings in the record of a run of ten steps."""
        self.write("text.txt", b"to be or not to be, that is the question: " * 40)
        done = run("train", "--data", self.path("text.txt"), "--workers", "1", "--steps", "10", "--batch", "1",
                   "--out", self.path(name), "--json", *arguments)  # fmt: skip
        self.assertEqual(done.returncode, 0, done)
        config = json.loads(self.read(f"{name}/config.json"))
        return tuple(config[key] for key in ("optimizer", "lr", "weight_decay", "clip", "warm_up_steps"))

    def test_gpt_and_lstm_bring_their_own_optimizer_and_rate(self):
        self.assertEqual(self.trained_with("gpt", "--model", "gpt"), ("adamw", 0.003, 0.01, 1, 1))
        self.assertEqual(self.trained_with("lstm", "--model", "lstm"), ("adam", 0.002, 0, 0, 0))

    def test_a_given_rate_overrides_the_models_own(self):
        given = self.trained_with("rate", "--model", "gpt", "--lr", "0.001", "--warm-up", "3",
                                  "--optimizer", "adamw:beta2=0.95")
        self.assertEqual(given, ("adamw:beta2=0.95", 0.001, 0.01, 1, 3))

    def test_another_optimizer_than_the_models_own_has_its_usual_rate(self):
        self.assertEqual(self.trained_with("sgd", "--model", "gpt", "--optimizer", "sgd"), ("sgd", 0.01, 1e-4, 0, 0))

    def test_help_has_every_option_in_a_group_and_the_usual_ten_first(self):
        text = run("train", "--help").stdout.decode()
        groups = {}
        for line in text.split("\nExamples:")[0].splitlines():
            if line.endswith(":") and not line.startswith(" "):
                group = groups.setdefault(line[:-1], [])
            elif line.startswith("  -"):
                group.append(line.split()[0])
        self.assertEqual(groups.pop("Options"), ["-h,--help", "-q,--quiet"])
        self.assertEqual(len(next(iter(groups.values()))), 10)
        self.assertIn("--codec", next(iter(groups.values())))

    def test_help_shows_what_models_are_trained_with(self):
        self.assertIn(b"trained with --optimizer adamw --lr 0.003 --weight-decay 0.01 --clip 1 --warm-up STEPS/10",
                      run("train", "--help").stdout)

    def image_folder(self):
        """Two classes of grey images of 28 x 28, and one that is cut off."""
        def chunk(kind, payload):
            return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))

        header = struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)
        image = b"\x89PNG\r\n\x1a\n" + b"".join([
            chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(28 * 29))), chunk(b"IEND", b"")])  # fmt: skip
        for part, label, index in itertools.product(("train", "test"), ("ape", "cat"), range(4)):
            os.makedirs(self.path(f"data/{part}/{label}"), exist_ok=True)
            self.write(f"data/{part}/{label}/{index}.png", image)
        return self.write("data/train/cat/cut.png", image[:50])

    def test_images_that_cannot_be_read_are_named_or_left_out(self):
        cut = self.image_folder()
        job = ("train", "--model", "lenet", "--data", self.path("data"), "--workers", "2", "--batch", "2",
               "--steps", "2", "--out", self.path("run"))  # fmt: skip
        refused = run(*job)
        if b"cannot decode images" in refused.stderr:
            self.skipTest("this build cannot decode images")
        self.assert_refused(refused, 1, f"1 of 17 images cannot be read: {cut}: the PNG cannot be decoded",
                            "leave them out with --skip-unreadable")
        self.assert_files("data")
        done = run(*job, "--skip-unreadable")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stderr.count(b"left out: " + cut.encode()), 1)
        self.assertTrue(json.loads(self.read("run/config.json"))["skip_unreadable"])

    LAUNCHERS = {
        "srun": ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "{}"},
                 "4 processes were started", "rank=$SLURM_PROCID to make them one job"),
        "torchrun": ({"WORLD_SIZE": "4", "RANK": "{}", "LOCAL_WORLD_SIZE": "4"},
                     "4 processes were started", "rank=$RANK to make them one job"),
        "PMIx": ({"PMIX_RANK": "{}"}, "a launcher has started this process", "give --transport mpi"),
    }  # fmt: skip

    def launched(self, launcher, rank, *command):
        return run(*command, **{name: value.format(rank) for name, value in self.LAUNCHERS[launcher][0].items()})

    def test_train_started_by_srun_torchrun_or_pmix_is_refused_by_rank_0(self):
        for launcher, (_, *words) in self.LAUNCHERS.items():
            with self.subTest(launcher):
                command = ("train", *self.JOB, "--steps", "2", "--out", self.path("run"))
                self.assert_refused(self.launched(launcher, 0, *command), 2, *words, "--transport in-process for")
                self.assert_done(self.launched(launcher, 1, *command))
                self.assert_files()

    def test_bench_exchange_started_by_srun_is_refused(self):
        command = "bench exchange --model lenet --workers 2 --steps 1".split()
        self.assert_refused(self.launched("srun", 0, *command), 2, "4 processes were started")
        self.assert_done(self.launched("srun", 0, *command, "--transport", "in-process"))

    def test_compare_started_by_torchrun_is_refused(self):
        refused = self.launched("torchrun", 0, "compare", "--steps", "1", "--out", self.path("out"))
        self.assert_refused(refused, 2, "start it once, without the launcher")

    def test_processes_that_were_started_differently_are_refused(self):
        refused = self.over_mpi(3, "--out", self.path("run"), of_rank_2=("--seed", "2"))
        self.assertEqual(refused.returncode, 1, refused)
        self.assertIn(b"rank 2 was started with other arguments", refused.stderr)
        self.assertFalse(os.path.exists(self.path("run")), "it stands in the way of the next")

    def test_refused(self):
        os.mkdir(self.path("full"))
        self.write("full/file", b"")
        os.mkdir(self.path("empty"))
        cases = [
            (2, "3lc:s=16", ("--codec", "3lc:s=16")),
            (2, "matches none", ("--policy", "kind=norm:fp32")),
            (2, "unknown model", ("--model", "vgg")),
            (2, "9 servers", ("--servers", "9", "--part-values", "whole")),
            (2, "epochs", ("--epochs", "nan")),
            (2, "'200%:fp32' is not a later codec; write", ("--epochs", "1", "--later-codec", "200%:fp32")),
            (2, "warm-up of 1001 steps is longer than the run of 4",
             ("--epochs", "0.01", "--warm-up", "1001")),
            (2, "parameter-server, gradient-server", ("--exchange", "relay")),
            (2, "3lc does not fit", ("--exchange", "ring")),
            (2, "no servers", ("--exchange", "all-gather", "--servers", "1")),
            (2, "--pull-codec is for what servers send, and exchange all-gather has none",
             ("--exchange", "all-gather", "--pull-codec", "fp32")),
            (2, "negative", ("--seed", "-1")),
            (2, "octal", ("--workers", "010")),
            (2, "octal", ("--part-values", "010")),
            (2, "too large", ("--seed", "1" * 26)),
            (2, "not a finite number", ("--lr", "1e999")),
            (2, "unknown recipe 'nope'; 'tersewire", ("--recipe", "nope")),
            (2, "the momentum, --momentum, must be", ("--momentum", "1")),
            (2, "use constant, cosine", ("--schedule", "linear")),
            (2, "sgd, nesterov, adam or adamw", ("--optimizer", "rmsprop")),
            (2, "warm-up of 2 steps", ("--warm-up", "2")),
            (2, "unknown augmentation", ("--augment", "sideways")),
            (2, "is text", ("--augment", "crop-flip", "--data", "embedded-text")),
            (2, "takes samples of 1 x 28 x 28, but those of 'embedded-text' are text; use other data or",
             ("--data", "embedded-text")),
            (2, "are 1 x 24 x 24; use other data, another model or --augment none", ("--augment", "cifarnet")),
            (1, "embedded", ("--data", self.path("empty"))),
            (1, "full", ("--out", self.path("full"))),
            (1, "in.npy", ("--out", self.write("in.npy", b""))),
            (1, "in.npy", ("--out", self.path("new"), "--tensorboard", self.path("in.npy"))),
        ]
        commands = [("train", "--steps", "1", *arguments) for _, _, arguments in cases]
        for index in (4, 5, 6):
            commands[index] = ("train", *cases[index][2])
        for (code, word, _), result in zip(cases, run_all(commands)):
            with self.subTest(word=word):
                self.assert_refused(result, code, word)
        self.assert_files("empty", "full", "in.npy")


if __name__ == "__main__":
    program.main(__doc__)
