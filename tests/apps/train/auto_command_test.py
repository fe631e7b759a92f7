#!/usr/bin/python3
"""Tests of `tersewire train --codec auto` and `predict --from` from outside.

    auto_command_test.py PATH_TO_TERSEWIRE
"""

import functools
import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import program

JOB = ["--model", "small-mlp", "--workers", "2", "--batch", "8", "--steps", "12", "--codec", "auto",
       "--json"]  # fmt: skip
run = functools.partial(program.run, text=True, timeout=300)


class Case(program.ProgramTest):
    def done(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, code, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, code, done)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def write_json(self, name, content):
        return self.write(name, json.dumps(content).encode())


class AutoTest(Case):
    def test_a_run_says_what_it_decided_and_repeats_from_that(self):
        out = self.directory / "run"
        done = self.done("train", *JOB, "--out", out)
        decisions = json.loads((out / "decisions.json").read_text())
        self.assertEqual((decisions[0]["step"], decisions[0]["codec"]), (1, "fp32"))
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        said = [sentence for line in lines for sentence in line.get("decisions", [])]
        for decision in decisions:
            self.assertIn(decision["sentence"], done.stderr)
            self.assertIn(decision["sentence"], said)
        taken = {decision["step"]: decision["codec"] for decision in decisions}
        codec = None
        for line in lines:
            codec = taken.get(line["step"], codec)
            self.assertEqual(line["codec"], codec)
        again = self.done("train", *JOB, "--out", self.directory / "again", "--replay-decisions",
                          out / "decisions.json")  # fmt: skip
        checksums = {json.loads(each.stdout)["parameters_checksum"] for each in (done, again)}
        self.assertEqual(len(checksums), 1)
        self.assertEqual(json.loads((self.directory / "again/decisions.json").read_text()),
                         decisions)  # fmt: skip

    def test_a_resumed_run_ends_as_one_that_was_not_interrupted(self):
        replay = self.write_json("replay.json", [
            {"step": 1, "codec": "3lc"}, {"step": 4, "codec": "fp32"},
            {"step": 8, "codec": "int8:ef=on"}])  # fmt: skip
        job = [*JOB, "--checkpoint-steps", "6"]
        whole = self.done("train", *job, "--out", self.directory / "whole", "--replay-decisions",
                          replay)  # fmt: skip
        cut = self.directory / "cut"
        self.done("train", *job, "--out", cut, "--replay-decisions", replay)
        for name in ("summary.json", "model.safetensors"):
            (cut / name).unlink()
        resumed = self.done("train", "--resume", cut, "--replay-decisions", replay, "--json")
        self.assertEqual(json.loads(resumed.stdout)["parameters_checksum"],
                         json.loads(whole.stdout)["parameters_checksum"])  # fmt: skip

    def test_a_budget_that_nothing_keeps_is_said_even_quietly(self):
        done = self.done("train", *JOB, "--out", self.directory / "run", "--budget", "100kB/day", "--quiet")
        (said,) = done.stderr.splitlines()
        self.assertIn("nothing that auto may choose stays within the budget", said)

    def test_what_makes_no_sense(self):
        out = ["--out", self.directory / "none"]
        bad = self.write_json("bad.json", [{"step": 1}])
        falls = self.write_json("falls.json", [{"step": 1, "codec": "fp32"}] * 2)
        for code, arguments, part in (
            (2, ["--exchange", "weight-average"], "use another exchange than weight-average"),
            (2, ["--local-steps", "4"], "codecs take turns"),
            (2, ["--local-updates", "4", "--outer", "nesterov"], "needs rounds of equal length"),
            (2, ["--pull-codec", "fp32"], "chooses for both directions"),
            (2, ["--budget", "much"], "is not a budget; write 2GB/day"),
            (1, ["--replay-decisions", bad], "an entry has no step, or no codec"),
            (1, ["--replay-decisions", falls], "its steps do not increase"),
            (2, ["--replay-decisions", "/dev/null"], "tersewire: /dev/null is neither a file nor a pipe"),
            (2, ["--link", "10mbit"], "--link only affects the recommendation of --dry"),
            (2, ["--paper"], "codec auto chooses among improved codecs"),
            (2, ["--budget", "2GB/day", "--replay-decisions", bad], "omit --budget"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(part, self.refused(code, "train", *JOB, *arguments, *out))
        for arguments in (["--budget", "2GB/day"], ["--replay-decisions", bad]):
            self.assertIn("--codec auto", self.refused(2, "train", *arguments, *out))
        self.assertFalse((self.directory / "none").exists())


class PolicyTest(Case):
    def row(self, tensor, values, codec, bits, residual, looks=3):
        return {"tensor": tensor, "values": values, "codec": codec, "bits_per_value": bits,
                "residual": residual, "looks": looks}  # fmt: skip

    def dry(self):
        return {"tensors": [self.row("a.weight", 100, "3lc", 1.5, 1),
                            self.row("a.weight", 100, "adacomp:bin=500", 0.1, 40),
                            self.row("b.weight", 900, "3lc", 1, 1),
                            self.row("b.weight", 900, "adacomp:bin=500", 0.1, 9)]}  # fmt: skip

    def test_each_tensor_gets_what_sends_least_and_keeps_little_back(self):
        dry = self.write_json("dry.json", self.dry())
        policy = self.done("predict", "--from", dry).stdout.strip()
        self.assertEqual(policy, "name=a.weight:3lc; *:adacomp:bin=500")
        self.assertEqual(self.done("predict", "--from", dry, "--most-residual", 50).stdout.strip(),
                         "*:adacomp:bin=500")  # fmt: skip
        # Where none will do, what keeps least.
        self.assertEqual(self.done("predict", "--from", dry, "--most-residual", 0.5).stdout.strip(),
                         "*:3lc")  # fmt: skip

    def test_what_was_tried_in_the_place_of_a_codec_is_what_a_tensor_gets(self):
        dry = self.dry()
        bias = self.row("b.bias", 10, "adacomp:bin=500", 32, 0)
        dry["tensors"] = dry["tensors"][2:] + [bias | {"used": "fp32"}]
        policy = self.done("predict", "--from", self.write_json("dry.json", dry)).stdout.strip()
        self.assertEqual(policy, "name=b.bias:fp32; *:adacomp:bin=500")
        bias["used"] = 3
        dry["tensors"][-1] = bias
        self.assertIn("no 'used'", self.refused(1, "predict", "--from",
                                                self.write_json("dry.json", dry)))  # fmt: skip

    def test_a_dry_runs_findings_make_a_policy_that_a_job_takes(self):
        out = self.directory / "dry"
        job = ["train", "--model", "small-mlp", "--workers", "2", "--batch", "8", "--steps", "8"]
        self.done(*job, "--dry", "3lc,adacomp:bin=500,int8", "--out", out)
        policy = self.done("predict", "--from", out / "dry.json").stdout.strip()
        # Biases were tried with what policy auto has for them.
        self.assertRegex(policy, r"bias:(int8:.*ef=on|fp32)")
        self.done(*job, "--codec", "3lc", "--policy", policy, "--out", self.directory / "with")

    def test_what_is_no_dry_run(self):
        dry = self.dry()
        for change, part in ((lambda json: json.pop("tensors"), "it has no tensors"),
                             (lambda json: json["tensors"][0].pop("residual"), "no 'residual'"),
                             (lambda json: json["tensors"][0].update(looks=0), "not sampled"),
                             (lambda json: json["tensors"][0].update(codec="4lc"), "unknown codec"),
                             (lambda json: json["tensors"][0].update(tensor="a:b"),
                              "no rule of a policy can name")):  # fmt: skip
            damaged = json.loads(json.dumps(dry))
            change(damaged)
            sentence = self.refused(1, "predict", "--from", self.write_json("dry.json", damaged))
            self.assertIn(part, sentence)
        self.assertIn("--model is required", self.refused(2, "predict", "--link", "1gbit"))


if __name__ == "__main__":
    program.main(__doc__)
