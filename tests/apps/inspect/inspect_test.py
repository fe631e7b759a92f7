#!/usr/bin/env python3
"""What `tersewire inspect` says of runs, checkpoints and safetensors files, whole or not.

usage: inspect_test.py PATH_TO_TERSEWIRE
"""

import fcntl
import json
import math
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "spec")]

import program
from program import run
from reference.xxh64 import xxh64

JOB = ["--model", "small-mlp", "--workers", "2", "--steps", "5", "--batch", "4", "--codec", "3lc",
       "--checkpoint-steps", "2", "--json"]  # fmt: skip


def tensor_file(tensors, facts=None, sealed=True):
    """A safetensors file, written as its specification says."""
    header = {"__metadata__": dict(facts or {}, xxh64="0" * 16)} if sealed else {}
    data = b""
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    digits = f"{xxh64(whole):016x}".encode()
    return whole.replace(b'"xxh64":"' + b"0" * 16, b'"xxh64":"' + digits, 1)


def floats_of(path):
    """The arrays of a safetensors file, by name."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__")
    return {
        name: struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        for name, (begin, end) in ((n, e["data_offsets"]) for n, e in header.items())
    }


class InspectTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.whole = os.path.join(cls.scratch, "whole")
        trained = run("train", *JOB, "--out", cls.whole)
        assert trained.returncode == 0, trained.stderr
        cls.summary = json.loads(trained.stdout)

    def copy(self, *parts):
        target = os.path.join(tempfile.mkdtemp(dir=self.scratch), "copy")
        shutil.copytree(os.path.join(self.whole, *parts), target)
        return target

    def write(self, content):
        descriptor, path = tempfile.mkstemp(dir=self.scratch)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return path

    def described(self, path):
        """What it says as JSON."""
        result = run("inspect", "--json", path)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return json.loads(result.stdout)

    def told(self, path):
        """What it says to people."""
        result = run("inspect", path)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertRegex(result.stdout, rb"\A[^\x00-\x09\x0b-\x1f\x7f]+\Z")
        return result.stdout.decode()

    def assert_refused(self, path, *parts):
        result = run("inspect", path)
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertEqual(result.stderr.count(b"\n"), 1)
        for part in parts:
            self.assertIn(part, result.stderr.decode())


class Runs(InspectTest):
    def test_whole(self):
        described, told = self.described(self.whole), self.told(self.whole)
        self.assertEqual(described["kind"], "run")
        self.assertEqual((described["state"], described["last_step"]), ("finished", 5))
        self.assertEqual(described["summary"], self.summary)
        self.assertEqual(described["config"]["model"], "small-mlp")
        self.assertEqual(
            described["checkpoints"],
            [{"step": step, "whole": True, "why_not": None} for step in (4, 2)],
        )
        self.assertTrue(described["model"]["whole"])
        self.assertEqual(described["model"]["values"], self.summary["values"])
        self.assertIsNone(described["observations"])
        for part in ("finished, step 5 of 5", "model small-mlp, data embedded", "workers 2", "servers 1",
                     "step 2: whole"):
            self.assertIn(part, told)

    def test_cut_off(self):
        path = self.copy()
        os.remove(os.path.join(path, "summary.json"))
        with open(os.path.join(path, "metrics.jsonl"), "r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - 9)
        described, told = self.described(path), self.told(path)
        self.assertEqual((described["state"], described["last_step"]), ("cut off", 4))
        self.assertEqual(described["metrics"]["unreadable_lines"], 1)
        self.assertIsNone(described["summary"])
        self.assertIn("cut off, step 4 of 5", told)

    def test_a_summary_from_before_the_run_went_on(self):
        path = self.copy()
        with open(os.path.join(path, "metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step":6,"loss":1.0}\n')
        self.assertEqual(self.described(path)["state"], "cut off")

    def test_running(self):
        path = self.copy()
        holder = os.open(path, os.O_RDONLY)
        fcntl.flock(holder, fcntl.LOCK_EX)
        self.assertEqual(self.described(path)["state"], "running")
        os.close(holder)
        self.assertEqual(self.described(path)["state"], "finished")

    def test_observations(self):
        path = self.copy()
        with open(os.path.join(path, "observations.jsonl"), "w", encoding="utf-8") as file:
            for step, accuracy in ((1, 0.1), (3, 0.5), (5, 0.625)):
                line = {"step": step, "test_accuracy": accuracy, "tensors": [{"name": "a"}] * 3}
                file.write(json.dumps(line) + "\n")
            file.write('{"step":7,')
        described, told = self.described(path), self.told(path)
        self.assertEqual(
            described["observations"],
            {"count": 3, "first_step": 1, "last_step": 5, "first_test_accuracy": 0.1,
             "last_test_accuracy": 0.625, "tensors": 3, "unreadable_lines": 1},
        )  # fmt: skip
        self.assertIn("3, of steps 1 to 5 and 3 tensors; test accuracy 0.1 to 0.625", told)

    def test_parts_that_are_damaged(self):
        path = self.copy()
        for step, rank in ((2, 0), (4, 1)):
            file = os.path.join(path, f"checkpoints/step-{step}/node-{rank}.safetensors")
            with open(file, "r+b") as damaged:
                damaged.seek(-1, os.SEEK_END)
                damaged.write(b"\x55")
        os.mkdir(os.path.join(path, "checkpoints/step-9"))
        os.rename(os.path.join(path, "checkpoints/step-2"), os.path.join(path, "checkpoints/step-3"))
        with open(os.path.join(path, "model.safetensors"), "r+b") as model:
            model.truncate(1000)
        described, told = self.described(path), self.told(path)
        why = {checkpoint["step"]: checkpoint["why_not"] for checkpoint in described["checkpoints"]}
        self.assertEqual(sorted(why), [3, 4, 9])
        self.assertIn("no node's file", why[9])
        self.assertIn("node-1.safetensors", why[4])
        self.assertFalse(any(checkpoint["whole"] for checkpoint in described["checkpoints"]))
        self.assertFalse(described["model"]["whole"])
        self.assertIn("step 4: not whole", told)

    def test_a_checkpoint_under_another_name_does_not_count(self):
        path = self.copy()
        os.rename(os.path.join(path, "checkpoints/step-2"), os.path.join(path, "checkpoints/step-3"))
        found = {c["step"]: c["whole"] for c in self.described(path)["checkpoints"]}
        self.assertEqual(found, {4: True, 3: False})

    def test_hostile_texts(self):
        path = self.copy()
        for content in (b"[" * 100000, b'{"a":' * 100000, b"[]", b"", b'{"model":"x"'):
            with open(os.path.join(path, "config.json"), "wb") as file:
                file.write(content)
            self.assert_refused(path, "config.json")
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump({"model": "\x1b[2J" + "x" * 1000, "workers": {"a": [1]}, "lr": None}, file)
        self.assertIn("?[2Jxxx", self.told(path))
        os.remove(os.path.join(path, "config.json"))
        with open(os.path.join(path, "metrics.jsonl"), "wb") as file:
            file.write(b'{"step":-1}\n{"step":"1"}\n3\n' + b"[" * 100000 + b'\n{"step":2}\n\xff\n')
        os.remove(os.path.join(path, "summary.json"))
        described = self.described(path)
        self.assertEqual((described["last_step"], described["config"]), (2, None))
        self.assertEqual(described["metrics"]["unreadable_lines"], 5)

    def test_steps_that_do_not_increase(self):
        path = self.copy()
        with open(os.path.join(path, "metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step":5,"loss":7.0}\n{"step":4,"loss":7.0}\n')
        described = self.described(path)
        self.assertEqual((described["last_step"], described["metrics"]["lines"]), (5, 5))
        self.assertEqual(described["metrics"]["unreadable_lines"], 2)
        self.assertNotEqual(described["metrics"]["last"]["loss"], 7.0)

    def test_an_endless_line(self):
        path = self.copy()
        # A hole, which takes no disk.
        for name in ("metrics.jsonl", "observations.jsonl"):
            with open(os.path.join(path, name), "wb") as file:
                file.truncate(1 << 27)
            self.assert_refused(path, name, "a line longer than any that a run writes")
            os.remove(os.path.join(path, name))


class Checkpoints(InspectTest):
    def test_whole(self):
        path = self.copy("checkpoints", "step-4")
        described, told = self.described(path), self.told(path)
        self.assertEqual((described["kind"], described["step"]), ("checkpoint", 4))
        self.assertTrue(described["whole"])
        self.assertEqual(described["settings"]["codec"], "3lc")
        self.assertEqual([node["rank"] for node in described["nodes"]], [0, 1, 2])
        self.assertIn("settings", told)
        for node in described["nodes"]:
            squares = {}
            file = os.path.join(path, f"node-{node['rank']}.safetensors")
            for name, values in floats_of(file).items():
                group = squares.setdefault(name.split("/")[0], [])
                group.extend(value * value for value in values)
            self.assertEqual(sorted(squares), sorted(node["groups"]))
            for group, members in squares.items():
                found = node["groups"][group]
                self.assertEqual(found["values"], len(members))
                self.assertTrue(math.isclose(found["norm"], math.fsum(members) ** 0.5, rel_tol=1e-9))
        self.assertGreater(described["nodes"][0]["groups"]["pushed"]["norm"], 0)

    def test_not_whole(self):
        path = self.copy("checkpoints", "step-4")
        os.remove(os.path.join(path, "node-1.safetensors"))
        described, told = self.described(path), self.told(path)
        self.assertFalse(described["whole"])
        self.assertIn("no file of node 1", described["why_not"])
        self.assertIn("no file of node 1", told)
        shutil.copy(os.path.join(path, "node-0.safetensors"), os.path.join(path, "node-1.safetensors"))
        self.assertIn("another node", self.described(path)["why_not"])

    def test_a_file_left_from_a_larger_job(self):
        """A run resumes from it, so it is whole, though that file is of another job."""
        run_path = self.copy()
        path = os.path.join(run_path, "checkpoints", "step-4")
        shutil.copy(os.path.join(path, "node-2.safetensors"), os.path.join(path, "node-3.safetensors"))
        described, told = self.described(path), self.told(path)
        self.assertEqual((described["whole"], described["why_not"]), (True, None))
        self.assertEqual([node["rank"] for node in described["nodes"]], [0, 1, 2])
        self.assertEqual(described["left_over"], ["node-3.safetensors"])
        self.assertIn("node-3.safetensors is left from a job of more nodes", told)
        self.assertNotIn("not whole", told)
        newest = self.described(run_path)["checkpoints"][0]
        self.assertEqual((newest["step"], newest["whole"]), (4, True))

    def test_claims_of_many_nodes(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        facts = {"tersewire_checkpoint": "1", "made_by": "t", "rank": "0", "nodes": "2000000000",
                 "step": "1", "workers": "1", "settings": "{}"}  # fmt: skip
        with open(os.path.join(path, "node-0.safetensors"), "wb") as file:
            file.write(tensor_file({"model/a": ([1], [2.0])}, facts))
        described = self.described(path)
        self.assertIn("no file of node 1, 2, 3, 4, 5, 6, 7, 8 and 1999999991 more",
                      described["why_not"])  # fmt: skip

    def test_a_node_that_its_job_does_not_have(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        facts = {"tersewire_checkpoint": "1", "made_by": "t", "rank": "5", "nodes": "2",
                 "step": "1", "workers": "1", "settings": "{}"}  # fmt: skip
        with open(os.path.join(path, "node-5.safetensors"), "wb") as file:
            file.write(tensor_file({"model/a": ([1], [2.0])}, facts))
        self.assert_refused(path, "node-5.safetensors: it cannot be of node 5 of 2; use another copy")

    def test_nothing_readable(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        with open(os.path.join(path, "node-0.safetensors"), "wb") as file:
            file.write(tensor_file({"a": ([1], [1.0])}))
        self.assert_refused(path, "node-0.safetensors", "not a checkpoint")
        os.remove(os.path.join(path, "node-0.safetensors"))
        os.mkfifo(os.path.join(path, "node-0.safetensors"))
        self.assert_refused(path, "not a run, checkpoint or comparison")


class Files(InspectTest):
    def test_a_model(self):
        path = os.path.join(self.whole, "model.safetensors")
        described = self.described(path)
        self.assertEqual((described["kind"], described["checksum"]), ("tensors", "valid"))
        self.assertRegex(described["facts"]["made_by"], r"\Atersewire \d")
        tensors = {tensor["name"]: tensor for tensor in described["tensors"]}
        for name, values in floats_of(path).items():
            self.assertEqual(tensors[name]["values"], len(values))
            self.assertEqual(
                (tensors[name]["least"], tensors[name]["greatest"]), (min(values), max(values))
            )
            rms = (math.fsum(value * value for value in values) / len(values)) ** 0.5
            self.assertTrue(math.isclose(tensors[name]["rms"], rms, rel_tol=1e-9))

    def test_a_node_of_a_checkpoint(self):
        path = os.path.join(self.whole, "checkpoints/step-4/node-2.safetensors")
        described, told = self.described(path), self.told(path)
        self.assertEqual(described["kind"], "node of a checkpoint")
        self.assertEqual((described["facts"]["rank"], described["facts"]["step"]), ("2", "4"))
        self.assertIn("server/fc1.weight", told)

    def test_values_that_are_not_finite(self):
        values = [1.0, math.nan, -3.0, math.inf]
        described = self.described(self.write(tensor_file({"a": ([2, 2], values), "b": ([0], [])})))
        self.assertEqual(
            described["tensors"],
            [{"name": "a", "type": "F32", "shape": [2, 2], "values": 4, "least": -3, "greatest": 1,
              "rms": 5**0.5, "not_finite": 2},
             {"name": "b", "type": "F32", "shape": [0], "values": 0, "least": None, "greatest": None,
              "rms": None, "not_finite": 0}],
        )  # fmt: skip

    def test_of_another_program(self):
        described = self.described(self.write(tensor_file({"a": ([1], [1.0])}, sealed=False)))
        self.assertEqual(described["checksum"], "none")

    def test_types_other_than_f32_are_read_or_named_beside_the_others(self):
        header = json.dumps({
            "brain": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
            "eight": {"dtype": "F8_E5M2", "shape": [4], "data_offsets": [4, 8]},
            "plain": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
            "steps": {"dtype": "I64", "shape": [], "data_offsets": [12, 20]}}).encode()  # fmt: skip
        data = bytes.fromhex("c03f00c0") + bytes(4) + struct.pack("<fq", 2.5, 1000)
        path = self.write(struct.pack("<Q", len(header)) + header + data)
        described = {tensor["name"]: tensor for tensor in self.described(path)["tensors"]}
        self.assertEqual((described["brain"]["type"], described["brain"]["least"], described["brain"]["greatest"]),
                         ("BF16", -2, 1.5))
        self.assertEqual((described["steps"]["type"], described["steps"]["greatest"]), ("I64", 1000))
        self.assertEqual(described["plain"]["greatest"], 2.5)
        self.assertEqual(described["eight"], {"name": "eight", "type": "F8_E5M2", "shape": [4]})
        self.assertRegex(self.told(path), r"F8_E5M2 +- +- +- +-  eight \(its type is not read: convert it to F32\)")

    def test_damage_and_what_is_not_ours(self):
        good = tensor_file({"a\x1b[2J\x9b2J\xe9": ([3], [1.0, 2.0, 3.0])}, {"made_by": "test"})
        self.assertIn("a?[2J??2J\xe9", self.told(self.write(good)))
        for content, part in (
            (good[:-1], "safetensors"),
            (good[:-1] + b"\x01", "checksum"),
            (b'{"model": 1}', "text"),
            (b"", "byte"),
            (b"PK\x03\x04" + bytes(100), "TW"),
        ):
            path = self.write(content)
            self.assert_refused(path, path, part)

    def test_directories_that_are_not_ours(self):
        empty = tempfile.mkdtemp(dir=self.scratch)
        self.assert_refused(empty, empty, "not a run, checkpoint or comparison")
        self.assert_refused(os.path.join(empty, "nowhere"), "nowhere")

    def test_a_comparison(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        with open(os.path.join(path, "compare.json"), "w", encoding="utf-8") as file:
            json.dump({"designs": [{"name": "fp32"}, {"name": "3lc"}]}, file)
        described = self.described(path)
        nothing = {"runs": 0, "done": 0, "failed": 0, "missing": 0, "results": False}
        self.assertEqual(described, {"kind": "comparison", "designs": 2, **nothing})

    def test_runs_of_a_comparison(self):
        path = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        (path / "compare.json").write_text(json.dumps(
            {"designs": [{"name": "fp32"}, {"name": "3lc"}], "steps": [5], "seeds": [1, 2, 3]}))
        for name, summary in (("01-a", '{"interrupted": false}'), ("02-a", '{"interrupted": true}'),
                              ("01-b", '{"interrupted": false}'), ("02-b", "[1, {")):
            (path / "cells" / name).mkdir(parents=True)
            (path / "cells" / name / "summary.json").write_text(summary)
        # 01-b is whole by now, 02-a is said to be done and is not, 02-b is there twice, and what
        # is elsewhere is no run of it.
        cells = [{"dir": "cells/01-b", "state": "failed"}, {"dir": "cells/02-a", "state": "done"},
                 {"dir": "cells/02-b", "state": "failed"}, {"dir": "cells/02-b", "state": "failed"},
                 {"dir": "../other", "state": "failed"}, {"dir": 5, "state": "failed"}, 7]
        results = path / "results.json"
        results.write_text(json.dumps({"designs": [{"cells": cells}, {"cells": 5}, None]}))
        expected = {"kind": "comparison", "designs": 2, "runs": 6, "done": 2, "failed": 1,
                    "missing": 3, "results": True}  # fmt: skip
        self.assertEqual(self.described(path), expected)
        self.assertRegex(self.told(path), r"(?m)^missing +3$")
        for damaged in ("[1, {", "[]", '{"designs": {"cells": 1}}'):
            results.write_text(damaged)
            self.assertEqual(self.described(path), {**expected, "failed": 0, "missing": 4})
        # More than was planned cannot be done.
        (path / "compare.json").write_text('{"designs": [1], "steps": [5], "seeds": [1]}')
        described = self.described(path)
        self.assertEqual((described["runs"], described["done"], described["missing"]), (1, 1, 0))

    def test_a_directory_that_may_not_be_entered(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        os.chmod(path, 0o600)
        if os.access(path, os.X_OK):
            self.skipTest("this user may enter every directory")
        self.assert_refused(path, path, "Permission denied")


if __name__ == "__main__":
    program.main(__doc__)
