#!/usr/bin/env python3
"""Tests of `tersewire report`: its data against runs written here by hand, damaged files, and the
page in headless Chromium.

    report_test.py PATH_TO_TERSEWIRE

Those in a browser are skipped, by name, where there is none.
"""

import csv
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import unittest
import urllib.parse

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tools")]

import browser
import program

RATES = {"10 Mbit/s": 1e7, "100 Mbit/s": 1e8, "1 Gbit/s": 1e9}
VALUES = 1000
BINS = 63
HOSTILE = '</script><b>"quoted", <!--'
WIDTHS = (360, 768, 1280)
# A line is drawn of at most so many points.
MAX_POINTS = 150


def json_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def loss_at(step):
    return 2.0 / step


def metrics(steps, push=250, pull=500):
    """What a worker that pushes `push` bytes a step, a quarter more every second step, leaves."""
    pushed, pulled = 0, 0
    for step in range(1, steps + 1):
        pushed += push + (push // 4 if step % 2 == 0 else 0)
        pulled += pull
        yield {"step": step, "loss": loss_at(step), "accuracy": 1 - 1 / (step + 1),
               "seconds": 0.1 * step, "push_bytes": pushed, "pull_bytes": pulled,
               "push_values": VALUES * step, "pull_values": VALUES * step,
               "push_bits_per_value": 8 * pushed / (VALUES * step),
               "pull_bits_per_value": 8 * pulled / (VALUES * step),
               "codec_seconds": 0.001 * step, "wait_seconds": 0.002 * step,
               "not_finite_tensors": 0}


def tensor(name, codec, values, step):
    counts = [0] * BINS
    counts[BINS // 2] = values
    return {"name": name, "kind": "conv", "values": values, "codec": codec, "encoded_bytes": 125,
            "bits_per_value": 2.0, "not_finite": False, "rms": 1e-3, "relative_error": 0.5,
            "residual_rms": 0.01 * step, "residual_p95": 0.02 * step, "residual_max": 0.05 * step,
            "histogram": {"limit": 0.63, "gradient": counts, "decoded": counts[::-1]}}


def observations(steps, every, codec):
    for step in range(1, steps + 1, every):
        yield {"step": step, "seconds": 0.1 * step, "test_accuracy": 0.5 + 0.4 * step / steps,
               "tensors": [tensor("conv1.weight", codec, 600, step),
                           tensor("fc.weight", codec, 400, step)]}


def write_run(directory, codec="3lc:s=1.75", steps=10, *, accuracy=0.9, wire_bytes=1e5, seed=1,
              observe=0, finished=True, config=None, summary=None):
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({
        "model": "lenet", "data": "/data/mnist", "workers": 4, "servers": 1, "local_steps": 1,
        "push_codec": codec, "pull_codec": codec, "exchange": "parameter-server", "policy": "",
        "batch": 16, "steps": steps, "seed": seed, **(config or {})}))
    json_lines(directory / "metrics.jsonl", metrics(steps))
    if observe:
        json_lines(directory / "observations.jsonl", observations(steps, observe, codec))
    if finished:
        (directory / "summary.json").write_text(json.dumps({
            "test_accuracy": accuracy, "test_loss": 1 - accuracy, "final_loss": 0.1, "steps": steps,
            "interrupted": False, "resumed_after": 0,
            "values": VALUES, "workers": 4, "push_bits_per_value": 2.25,
            "pull_bits_per_value": 4.0, "compression_ratio": 10.0, "step_seconds": 0.1,
            "compute_seconds": 0.01, "codec_seconds": 0.002, "wait_seconds": 0.03,
            "busiest_node_bytes": wire_bytes,
            "modelled": {name: {"step_seconds": 0.012 + 8 * wire_bytes / rate,
                                "fp32_step_seconds": 0.01 + 8e6 / rate}
                         for name, rate in RATES.items()}, **(summary or {})}))
    return directory


def step_seconds(wire_bytes, rate):
    return 0.01 + 0.002 + 8 * wire_bytes / RATES[rate]


class Report:
    """What `tersewire report` wrote."""

    def __init__(self, html):
        self.html = html.read_text(encoding="utf-8")
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.html,
                         re.DOTALL)
        self.data = json.loads(data.group(1))
        self.tables = {}
        for path in (html.parent / f"{html.stem}-data").iterdir():
            with open(path, newline="", encoding="utf-8") as file:
                self.tables[path.stem] = list(csv.DictReader(file))

    def notes(self):
        return " ".join(self.data["notes"])

    def rows(self, table, **keys):
        return [row for row in self.tables[table]
                if all(row[key] == value for key, value in keys.items())]


def column(rows, name):
    return [float(row[name]) for row in rows]


class ReportTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.html = self.folder / "out" / "page.html"
        self.html.parent.mkdir()

    def run_report(self, *arguments):
        return program.run("report", "--out", self.html, *arguments, text=True)

    def report(self, *arguments):
        done = self.run_report(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return Report(self.html)

    def assert_refused(self, sentence, *arguments, status=1):
        done = self.run_report(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertFalse(self.html.exists())

    def comparison(self, results=True, name="comparison", config=None):
        """Three designs, two lengths, two seeds; 3lc is within 0.5 points and the fastest."""
        directory = self.folder / name
        designs = []
        for name, codec, accuracy, wire_bytes in (("int8", "int8", 0.898, 25e4),
                                                  ("fp32", "fp32", 0.9, 1e6),
                                                  ("3lc, fine", "3lc:s=1.00", 0.897, 2e4)):
            cells = []
            for steps in (10, 20):
                for seed in (1, 2):
                    cell = f"cells/{codec.replace(':', '-')}-{steps}-{seed}"
                    write_run(directory / cell, codec, steps, seed=seed, wire_bytes=wire_bytes,
                              config=config,
                              accuracy=accuracy + 0.001 * (2 * seed - 3) - (20 - steps) / 100)
                    cells.append({"steps": steps, "seed": seed, "dir": cell})
            designs.append({"name": name, "cells": cells})
        if results:
            (directory / "results.json").write_text(json.dumps({
                "baseline": "fp32", "designs": designs,
                "rates": [{"name": "1mbit", "bits_per_second": 1e6}]}))
        return directory


class DataTest(ReportTest):
    def test_lines_are_the_steps_of_a_short_run(self):
        report = self.report(write_run(self.folder / "run"))
        loss = report.rows("loss", design="3lc:s=1.75")
        self.assertEqual(column(loss, "step"), list(range(1, 11)))
        for row, step in zip(loss, range(1, 11)):
            self.assertAlmostEqual(float(row["training_loss"]), loss_at(step), places=6)
        push = column(report.rows("bits-per-value", direction="push"), "bits_per_value")
        # 250 bytes, or 312, of 1000 values.
        self.assertEqual(push, [8 * (250 + 62 * (step % 2 == 0)) / VALUES for step in range(1, 11)])
        pull = column(report.rows("bits-per-value", direction="pull"), "bits_per_value")
        self.assertEqual(pull, [4.0] * 10)
        batches = report.rows("accuracy", on="training batches")
        self.assertEqual(column(batches, "accuracy")[0], 0.5)

    def test_points_of_a_long_run_are_means(self):
        steps = 10 * MAX_POINTS + 3
        report = self.report(write_run(self.folder / "run", steps=steps))
        loss = report.rows("loss")
        self.assertLessEqual(len(loss), MAX_POINTS)
        at = 0
        for row in loss:
            last = int(row["step"])
            mean = sum(loss_at(step) for step in range(at + 1, last + 1)) / (last - at)
            self.assertAlmostEqual(float(row["training_loss"]), mean, delta=1e-6 * mean)
            at = last
        self.assertEqual(at, steps)
        bits = report.rows("bits-per-value", direction="push")
        pushed = sum(float(row["bits_per_value"]) * (int(row["step"]) - before)
                     for row, before in zip(bits, [0] + [int(row["step"]) for row in bits]))
        self.assertAlmostEqual(pushed * VALUES / 8, list(metrics(steps))[-1]["push_bytes"], delta=1)

    def test_bits_of_a_resumed_run(self):
        run = write_run(self.folder / "run", summary={"resumed_after": 4})
        lines = list(metrics(10))
        # Its first four steps pulled more; bits are counted from where it was resumed.
        for line in lines:
            line["pull_bytes"] += 500 * min(line["step"], 4)
        json_lines(run / "metrics.jsonl", lines)
        pull = column(self.report(run).rows("bits-per-value", direction="pull"), "bits_per_value")
        self.assertEqual(pull, [8.0] * 4 + [4.0] * 6)

    def test_steps_between_exchanges_are_one_point(self):
        run = write_run(self.folder / "run", config={"local_steps": 2}, summary={})
        report = self.report(run)
        self.assertEqual(column(report.rows("bits-per-value", direction="pull"), "step"),
                         [2, 4, 6, 8, 10])

    def test_step_times(self):
        report = self.report(write_run(self.folder / "run", wire_bytes=25e4))
        row = report.rows("step-time", rate="100 Mbit/s")[0]
        self.assertEqual(row["times"], "modelled")
        self.assertEqual((row["computation_seconds"], row["codec_seconds"], row["wire_seconds"],
                          row["waiting_seconds"]), ("0.01", "0.002", "0.02", ""))
        row = report.rows("step-time", rate="as run")[0]
        self.assertEqual((row["waiting_seconds"], row["wire_seconds"]), ("0.03", ""))
        self.assertAlmostEqual(float(row["other_seconds"]), 0.1 - 0.01 - 0.002 - 0.03)
        row = report.rows("designs")[0]
        self.assertAlmostEqual(float(row["modelled_step_seconds at 10 Mbit/s"]),
                               step_seconds(25e4, "10 Mbit/s"))
        # Without a baseline against the fp32 that the run models.
        self.assertAlmostEqual(float(row["speedup at 10 Mbit/s"]), (0.01 + 0.8) / 0.212, places=5)

    def test_observed_steps(self):
        run = write_run(self.folder / "run", steps=11, observe=5)
        report = self.report(run)
        tests = report.rows("accuracy", on="test data")
        # Before steps 1, 6 and 11, and after the last.
        self.assertEqual(column(tests, "step"), [1, 6, 11, 12])
        self.assertEqual(float(tests[-1]["accuracy"]), 0.9)
        over_time = report.rows("accuracy-over-time", rate="1 Gbit/s")
        for steps, seconds in zip((5, 10, 11), column(over_time, "seconds")):
            self.assertAlmostEqual(seconds, steps * step_seconds(1e5, "1 Gbit/s"))
        residuals = report.rows("residuals", tensor="fc.weight")
        self.assertEqual([round(value, 6) for value in column(residuals, "residual_p95")],
                         [0.02, 0.12, 0.22])
        histogram = report.rows("histograms", tensor="conv1.weight", step="11")
        self.assertEqual(len(histogram), BINS)
        self.assertAlmostEqual(float(histogram[0]["value"]), -0.62)
        self.assertEqual(column(histogram, "gradient_count")[BINS // 2], 600)
        layer = report.rows("layers", tensor="conv1.weight")[0]
        self.assertEqual((layer["codec"], layer["kind"], layer["ratio"], layer["relative_error"]),
                         ("3lc:s=1.75", "conv", "16", "0.5"))

    def test_largest_tensors_are_followed(self):
        run = write_run(self.folder / "run", observe=5)
        sizes = [40, 10, 90, 20, 80, 30, 70, 60]
        json_lines(run / "observations.jsonl", [
            {"step": step, "test_accuracy": 0.5, "tensors": [
                tensor(f"t{size}", "3lc", size, step) for size in sizes]} for step in (1, 6)])
        report = self.report(run)
        self.assertEqual({row["tensor"] for row in report.tables["residuals"]},
                         {f"t{size}" for size in (90, 80, 70, 60, 40, 30)})
        self.assertEqual([row["tensor"] for row in report.tables["layers"]],
                         [f"t{size}" for size in sizes])

    def test_designs_differ_in_s(self):
        runs = [write_run(self.folder / f"s{i}", codec, accuracy=0.9 - i / 100)
                for i, codec in enumerate(("3lc:s=1.9", "3lc", "3lc:s=1.5", "int8"))]
        report = self.report(*runs)
        rows = report.tables["sensitivity"]
        self.assertEqual(column(rows, "s"), [1.25, 1.5, 1.9])
        self.assertEqual(column(rows, "test_accuracy"), [0.89, 0.88, 0.9])
        self.assertNotIn("sensitivity", self.report(runs[0], runs[3]).tables)

    def test_front_of_bits_against_accuracy(self):
        # The fourth sends more than the second and reaches less; the last diverged.
        ends = [("fp32", 32, 0.97), ("int8", 8, 0.96), ("3lc", 1, 0.95), ("topk", 9, 0.955),
                ("adacomp", 0.1, 0.99)]  # fmt: skip
        runs = [write_run(self.folder / codec, codec, accuracy=accuracy,
                          summary={"push_bits_per_value": bits, "pull_bits_per_value": bits / 2})
                for codec, bits, accuracy in ends]  # fmt: skip
        summary = json.loads((runs[4] / "summary.json").read_text())
        (runs[4] / "summary.json").write_text(json.dumps({**summary, "final_loss": None}))
        rows = self.report(*runs).tables["accuracy-for-bits"]
        self.assertEqual({row["design"]: row["on_front"] for row in rows},
                         {"fp32": "1", "int8": "1", "3lc": "1", "topk": "0"})
        self.assertEqual(column(rows, "bits_per_value"), [48, 12, 1.5, 13.5])
        self.assertNotIn("accuracy-for-bits", self.report(runs[0]).tables)

    def test_runs_are_named_by_what_differs(self):
        runs = [write_run(self.folder / "a", "fp32"), write_run(self.folder / "b", "int8"),
                write_run(self.folder / "c", "fp32", config={"exchange": "ring"}),
                write_run(self.folder / "d", "int8", seed=2)]
        report = self.report(*runs)
        self.assertEqual(report.data["designs"], ["fp32", "int8", "fp32, exchange=ring"])
        self.assertEqual(report.data["baseline"], "fp32")
        self.assertEqual(report.rows("designs", design="int8")[0]["runs"], "2")

    def test_a_run_named_twice_counts_once(self):
        run = write_run(self.folder / "run")
        report = self.report(run, f"{run}/../run")
        self.assertEqual(report.rows("designs")[0]["runs"], "1")

    def test_comparison(self):
        report = self.report(self.comparison())
        self.assertEqual(report.data["designs"], ["fp32", "int8", "3lc, fine"])
        rows = report.rows("accuracy-over-time", rate="1 Mbit/s", design="3lc, fine")
        self.assertEqual(column(rows, "steps"), [10, 20])
        self.assertEqual(column(rows, "runs"), [2, 2])
        self.assertAlmostEqual(float(rows[1]["seconds"]), 20 * (0.012 + 0.16))
        self.assertAlmostEqual(float(rows[1]["test_accuracy"]), 0.897)
        self.assertAlmostEqual(float(rows[1]["lowest_accuracy"]), 0.896)
        design = report.rows("designs", design="3lc, fine")[0]
        self.assertAlmostEqual(float(design["accuracy_difference_points"]), -0.3, places=5)
        self.assertAlmostEqual(float(design["test_loss"]), 0.103, places=5)
        self.assertAlmostEqual(float(design["speedup at 1 Mbit/s"]), 8.012 / 0.172, places=4)

    def test_headline_names_the_fastest_within_the_tolerance(self):
        comparison = self.comparison()
        headline = self.report(comparison).data["headline"]
        self.assertEqual(headline["title"], "Best for this job: 3lc, fine")
        self.assertIn("0.5 points of fp32's 90.00 %", headline["detail"])
        self.assertEqual(headline["verdicts"][0]["gain"], "47 times as fast as fp32")
        self.assertEqual(headline["verdicts"][0]["times"], "modelled")
        headline = self.report("--tolerance", "0.25", comparison).data["headline"]
        self.assertEqual(headline["title"], "Best for this job: int8")
        headline = self.report("--tolerance", "0", comparison).data["headline"]
        self.assertEqual(headline["title"], "No other design comes within 0 points of fp32 here")
        slower = write_run(self.folder / "slower", "terngrad", wire_bytes=2e6)
        fp32 = write_run(self.folder / "fp32", "fp32", wire_bytes=1e6)
        self.assertEqual(self.report(fp32, slower).data["headline"]["title"],
                         "No design is faster than fp32 here")

    def test_measured_steps_of_a_comparison_count(self):
        comparison = self.comparison()
        results = json.loads((comparison / "results.json").read_text())
        for i, design in enumerate(results["designs"]):
            design["rates"] = [{"bits_per_second": 1e6, "step_seconds": 3.0 - i,
                                "kind": "measured"}]
        (comparison / "results.json").write_text(json.dumps(results))
        report = self.report(comparison)
        rows = report.rows("accuracy-over-time", design="fp32")
        self.assertEqual([row["times"] for row in rows], ["measured"] * 2)
        self.assertEqual(column(rows, "seconds"), [20, 40])
        # Where one design's is modelled, all are.
        results["designs"][0]["rates"][0]["kind"] = "modelled"
        (comparison / "results.json").write_text(json.dumps(results))
        rows = self.report(comparison).rows("accuracy-over-time", design="fp32")
        self.assertEqual([row["times"] for row in rows], ["modelled"] * 2)

    def test_times_are_rounded_before_they_are_split(self):
        comparison = self.comparison()
        results = json.loads((comparison / "results.json").read_text())
        for design, seconds in zip(results["designs"], (3599.7, 3599.7, 119.7)):
            design["rates"] = [{"bits_per_second": 1e6, "step_seconds": seconds / 20,
                                "kind": "measured"}]
        (comparison / "results.json").write_text(json.dumps(results))
        verdict = self.report(comparison).data["headline"]["verdicts"][0]
        self.assertIn("2 min 0 s instead of 1 h 0 min, ", verdict["detail"])

    def test_comparisons_whose_designs_have_the_same_names(self):
        first, again, other = (self.comparison(name=name, config={"lr": rate}) for name, rate in (
            ("first", 0.01), ("again", 0.01), ("other", 0.001)))
        for directory, seconds in ((first, 1.0), (other, 3.0)):
            results = json.loads((directory / "results.json").read_text())
            for design in results["designs"]:
                design["rates"] = [{"bits_per_second": 1e6, "step_seconds": seconds,
                                    "kind": "measured"}]
            (directory / "results.json").write_text(json.dumps(results))
        report = self.report(first, again, other)
        self.assertEqual(sorted(report.data["designs"]), [
            "3lc, fine", "3lc, fine (other)", "fp32", "fp32 (other)", "int8", "int8 (other)"])
        self.assertEqual(report.data["baseline"], "fp32")
        for design, runs, seconds in (("fp32", "4", 10), ("fp32 (other)", "2", 30)):
            row = report.rows("accuracy-over-time", design=design)[0]
            self.assertEqual((row["runs"], row["times"]), (runs, "measured"))
            self.assertEqual(float(row["seconds"]), seconds)

    def test_designs_of_a_comparison_may_differ_with_their_length(self):
        comparison = self.comparison()
        for path in comparison.glob("cells/*-20-*/config.json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "warm_up_steps": 2}))
        self.assertEqual(len(self.report(comparison).data["designs"]), 3)

    def test_warm_up_makes_another_design(self):
        runs = [write_run(self.folder / f"run-{steps}", config={"warm_up_steps": steps})
                for steps in (0, 5)]
        self.assertEqual(self.report(*runs).data["designs"],
                         ["3lc:s=1.75", "3lc:s=1.75, warm_up_steps=5"])

    def test_comparison_without_its_record(self):
        report = self.report(self.comparison(results=False))
        self.assertEqual(report.data["designs"], ["fp32", "3lc:s=1.00", "int8"])
        self.assertEqual(report.rows("designs", design="int8")[0]["runs"], "2")

    def test_cells_outside_of_the_comparison_are_not_read(self):
        comparison = self.comparison()
        write_run(self.folder / "elsewhere", "terngrad")
        results = json.loads((comparison / "results.json").read_text())
        for path in ("../elsewhere", str(self.folder / "elsewhere"), "cells/missing"):
            results["designs"].append({"name": path, "cells": [{"dir": path}]})
        (comparison / "results.json").write_text(json.dumps(results))
        report = self.report(comparison)
        self.assertEqual(len(report.data["designs"]), 3)
        self.assertIn("1 of the comparison's runs is not there yet", report.notes())

    def test_page_and_tables_hold_the_same(self):
        report = self.report(write_run(self.folder / "run", observe=3))
        self.assertEqual({figure["id"] for figure in report.data["figures"]}, set(report.tables))
        for figure in report.data["figures"]:
            rows = [group["key"] + ["" if value is None else value for value in row]
                    for group in figure["groups"] for row in group["rows"]]
            table = report.tables[figure["id"]]
            self.assertEqual(len(rows), len(table))
            for row, line in zip(rows, table):
                for cell, text in zip(row, line.values()):
                    self.assertEqual(cell, text if isinstance(cell, str) else float(text))


class DamageTest(ReportTest):
    def test_runs_that_diverged_are_not_praised(self):
        fp32 = write_run(self.folder / "fp32", "fp32", wire_bytes=1e6)
        int8 = write_run(self.folder / "int8", "int8", wire_bytes=2e5)
        nothing = {"final_loss": None}
        diverged = write_run(self.folder / "3lc", wire_bytes=1e4, accuracy=0.99, summary=nothing)
        report = self.report(fp32, int8, diverged)
        self.assertEqual(report.data["headline"]["title"], "Best for this job: int8")
        self.assertIn("3lc:s=1.75: 1 of 1 runs diverged", report.notes())
        # Or tenfold over its best.
        grown = write_run(self.folder / "grown", wire_bytes=1e4, accuracy=0.99,
                          summary={"diverged_step": 37})
        self.assertIn("1 of 1 runs diverged (at step 37)", self.report(fp32, int8, grown).notes())
        self.assertEqual(self.report(grown).data["headline"]["title"], "3lc:s=1.75: diverged")
        # Of two seeds the other counts.
        write_run(self.folder / "again", wire_bytes=1e4, accuracy=0.9, seed=2)
        report = self.report(fp32, diverged, self.folder / "again")
        self.assertEqual(float(report.rows("designs", design="3lc:s=1.75")[0]["test_accuracy"]), 0.9)
        # A baseline is none, then.
        bad = write_run(self.folder / "bad", "fp32", accuracy=0.99, seed=3, summary=nothing)
        headline = self.report(bad, int8, self.folder / "again").data["headline"]
        self.assertNotIn("fp32", headline["detail"])
        self.assertEqual(self.report(bad).data["headline"]["title"], "fp32: diverged")
        self.assertEqual(self.report(bad, diverged).data["headline"]["title"],
                         "2 designs, none with a result")

    def test_a_directory_that_may_not_be_entered(self):
        run = write_run(self.folder / "run")
        run.chmod(0o600)
        self.addCleanup(run.chmod, 0o700)
        if os.access(run, os.X_OK):
            self.skipTest("this user may enter every directory")
        self.assert_refused("Permission denied", run)

    def test_run_that_was_cut_off(self):
        run = write_run(self.folder / "run", observe=3)
        self.report(run)
        (run / "summary.json").unlink()
        with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 11, "lo')
        (run / "config.json").write_text(
            (run / "config.json").read_text().replace('"steps": 10', '"steps": 99'))
        report = self.report(run)
        self.assertIn("was cut off after step 10 of 99", report.notes())
        self.assertEqual(len(report.data["notes"]), 1, report.notes())
        self.assertEqual(len(report.rows("loss")), 10)
        self.assertEqual(column(report.rows("bits-per-value", direction="pull"),
                                "bits_per_value"), [4.0] * 10)
        # The earlier report's table went.
        self.assertNotIn("step-time", report.tables)

    def test_run_that_was_interrupted(self):
        run = write_run(self.folder / "run", summary={"interrupted": True})
        self.assertIn("was interrupted after step 10", self.report(run).notes())

    def test_run_that_never_began(self):
        run = write_run(self.folder / "run", finished=False)
        (run / "metrics.jsonl").write_text("")
        report = self.report(run)
        self.assertEqual(set(report.tables), {"designs"})

    def test_damaged_lines_are_left_out_and_told(self):
        run = write_run(self.folder / "run")
        lines = (run / "metrics.jsonl").read_text().splitlines()
        lines[2] = "\0" * 100
        lines[4] = '{"step": "5"}'
        lines[5] = "[" * 100000
        lines[6] = lines[0]
        lines[7] = '{"step": 8, "loss": 1e999}'
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        report = self.report(run)
        self.assertEqual(column(report.rows("loss"), "step"), [1, 2, 4, 9, 10])
        self.assertIn("5 lines of", report.notes())

    def test_numbers_that_are_none(self):
        run = write_run(self.folder / "run", observe=3,
                        summary={"test_accuracy": None, "compute_seconds": "fast"})
        lines = list(metrics(10))
        for line in lines[5:]:
            line["loss"] = None  # a NaN
        json_lines(run / "metrics.jsonl", lines)
        observed = list(observations(10, 3, "3lc"))
        observed[0]["tensors"] = {"conv": 1}
        observed[1]["tensors"][0] = {"name": "conv1.weight", "values": 600, "not_finite": True}
        observed[1]["tensors"][1]["histogram"] = {"limit": 1, "gradient": [1, -1], "decoded": [1]}
        observed[2]["tensors"] = [None, 5, {"name": 7}]
        json_lines(run / "observations.jsonl", observed)
        report = self.report(run)
        self.assertEqual(column(report.rows("loss"), "step"), [1, 2, 3, 4, 5])
        self.assertNotIn("step-time", report.tables)
        self.assertTrue(all(row["step"] == "10" for row in report.rows("histograms")))
        for table in report.tables.values():
            for row in table:
                for text in row.values():
                    self.assertNotIn(text, ("nan", "inf", "-inf"))

    def test_damaged_summary(self):
        run = write_run(self.folder / "run")
        (run / "summary.json").write_text('{"test_accuracy": 0.9')
        report = self.report(run)
        self.assertIn("summary.json is damaged", report.notes())
        self.assertIn("was cut off", report.notes())

    def test_damaged_configuration(self):
        run = write_run(self.folder / "run")
        (run / "config.json").write_text("[]")
        self.assert_refused("config.json is missing or damaged", run)
        (run / "config.json").unlink()
        os.mkfifo(run / "config.json")
        self.assert_refused("config.json is missing or damaged", run)
        # One of many is left out.
        comparison = self.comparison()
        (comparison / "cells" / "int8-10-1" / "config.json").write_text("{")
        report = self.report(comparison)
        self.assertIn("Left out:", report.notes())
        self.assertEqual(report.rows("accuracy-over-time", design="int8")[0]["runs"], "1")

    def test_a_directory_in_the_place_of_a_file(self):
        run = write_run(self.folder / "run")
        (run / "metrics.jsonl").unlink()
        (run / "metrics.jsonl").mkdir()
        self.assert_refused("metrics.jsonl is not a regular file", run)

    def test_no_run(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_refused("holds neither a run nor a comparison", empty)
        self.assert_refused("is not a directory", self.folder / "nowhere")
        (self.folder / "file").write_text("")
        self.assert_refused("is not a directory", self.folder / "file")
        (empty / "cells").mkdir()
        self.assert_refused("without a readable run", empty)
        (empty / "results.json").write_text("{}")
        self.assert_refused("without a readable run", empty)

    def test_file_that_never_ends(self):
        run = write_run(self.folder / "run")
        (run / "metrics.jsonl").unlink()
        (run / "metrics.jsonl").symlink_to("/dev/zero")
        self.assert_refused("metrics.jsonl is not a regular file", run)

    def test_wrong_usage(self):
        run = write_run(self.folder / "run")
        self.assert_refused("--tolerance is in percentage points", "--tolerance", "-1", run,
                            status=2)
        self.assert_refused("nan is not a finite number", "--tolerance", "nan", run, status=2)
        self.assert_refused("DIR is required", status=2)

    def test_out_that_cannot_be_written(self):
        self.html = self.folder / "none" / "page.html"
        self.assert_refused("cannot be written", write_run(self.folder / "run"))

    def test_runs_of_different_jobs_are_not_compared(self):
        report = self.report(write_run(self.folder / "a", "fp32"),
                             write_run(self.folder / "b", "int8", config={"model": "mlp"}))
        self.assertIn("The runs differ in model (lenet, mlp)", report.notes())
        self.assertEqual(report.data["headline"]["verdicts"], [])

    def test_a_page_is_not_for_standard_output(self):
        run = write_run(self.folder / "run")
        done = program.run("report", "--out", "-", run, cwd=self.folder, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("name a file with --out", done.stderr)
        self.assertFalse((self.folder / "--data").exists())

    def test_page_is_named_like_its_directory(self):
        run = write_run(self.folder / "run")
        write_run(self.folder / "other")
        for arguments, name in ((("run/",), "run"), (("run", "other"), "report")):
            self.assertEqual(program.run("report", *arguments, cwd=self.folder).returncode, 0)
            self.assertTrue((self.folder / f"{name}.html").is_file())
            self.assertTrue((self.folder / f"{name}-data" / "loss.csv").is_file())
        self.assertFalse((run / "run.html").exists())

    def test_names_stay_text(self):
        run = write_run(self.folder / "run", HOSTILE, config={"model": HOSTILE}, observe=3)
        lines = list(observations(10, 3, HOSTILE))
        for line in lines:
            line["tensors"][0]["name"] = HOSTILE
        json_lines(run / "observations.jsonl", lines)
        report = self.report(run)
        self.assertEqual(report.data["designs"], [HOSTILE])
        self.assertNotIn("<b>", report.html)
        self.assertEqual(report.rows("layers")[0]["tensor"], HOSTILE)

    def test_bytes_that_are_no_text(self):
        run = write_run(self.folder / "run", "3lc")
        config = (run / "config.json").read_bytes().replace(b"lenet", b"le\xffnet")
        (run / "config.json").write_bytes(config)
        self.assert_refused("config.json is missing or damaged", run)


@unittest.skipUnless(browser.executable(), "no Chromium here: install the package chromium")
class PageTest(ReportTest):
    @classmethod
    def setUpClass(cls):
        cls.chromium = browser.Browser()
        cls.chromium.__enter__()
        cls.addClassCleanup(cls.chromium.__exit__)

    def page(self, *arguments, **look):
        self.report(*arguments)
        return self.chromium.open(self.html.resolve().as_uri(), **look)

    def designs(self):
        """All kinds of figures."""
        return [write_run(self.folder / f"run{i}", codec, steps=40, observe=10,
                          wire_bytes=1e6 / (1 + 20 * i), accuracy=0.9 + 0.001 * i)
                for i, codec in enumerate(("fp32", "3lc:s=1.00", "3lc:s=1.75"))]

    def assert_sound(self, page):
        self.assertEqual(page.complaints(), [])
        self.assertEqual([url for url in page.requests() if not url.startswith("data:")],
                         [self.html.resolve().as_uri()])

    def assert_fits(self, page, width):
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), width)
        self.assertEqual(page.run(
            "[...document.querySelectorAll('.uplot')].filter((one) =>"
            " one.scrollWidth > one.parentElement.clientWidth + 1).length"), 0)

    def test_every_figure_is_drawn_at_every_width(self):
        runs = self.designs()
        page = self.page(*runs)
        figures = {figure["id"] for figure in Report(self.html).data["figures"]}
        self.assertEqual(len(figures), 11)
        for width in WIDTHS:
            page.resize(width)
            page.settle()
            self.assert_fits(page, width)
        self.assertEqual(set(page.run(
            "[...document.querySelectorAll('.figure')].map((one) => one.id.slice(7))")), figures)
        # Each chart has been drawn upon.
        self.assertEqual(page.run("""[...document.querySelectorAll('.plot')].filter((plot) => {
            const canvas = plot.querySelector('canvas');
            return !canvas || !canvas.getContext('2d')
              .getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte);
        }).length"""), 0)
        self.assertIn("Best for this job: 3lc:s=1.75", page.run("document.title"))
        self.assertEqual(page.run("document.querySelectorAll('.verdicts li').length"), len(RATES))
        self.assert_sound(page)

    def test_durations(self):
        page = self.page(write_run(self.folder / "run", summary={"compute_seconds": 119.0,
                                                                 "codec_seconds": 0.7}))
        totals = "[...document.querySelectorAll('#figure-step-time .total')].map((one) => one.innerText)"
        self.assertIn("2 min", page.run(totals))

    def test_theme(self):
        page = self.page(*self.designs(), dark=True)
        background = "getComputedStyle(document.body).backgroundColor"
        dark = page.run(background)
        page.run("document.getElementById('theme').click()")
        page.settle()
        self.assertNotEqual(page.run(background), dark)
        page.run("document.getElementById('theme').click()")
        self.assertEqual(page.run(background), dark)
        self.assert_sound(page)

    def test_legend_hides_a_design_everywhere(self):
        page = self.page(*self.designs())
        rows = "document.querySelectorAll('#figure-step-time .bar-row').length"
        before = page.run(rows)
        page.run("document.querySelector('#figure-loss .legend button').click()")
        self.assertEqual(page.run(rows), before * 2 // 3)
        page.run("document.querySelectorAll('#figure-loss .legend button')"
                 ".forEach((one, i) => i && one.click())")
        page.settle()
        self.assertEqual(page.run("document.querySelectorAll('#figure-loss canvas').length"), 0)
        page.run("document.querySelector('#figure-loss .legend button').click()")
        page.settle()
        self.assertEqual(page.run("document.querySelectorAll('#figure-loss canvas').length"), 1)
        self.assert_sound(page)

    def test_keyboard(self):
        page = self.page(*self.designs())
        page.run("document.querySelector('#figure-loss .plot').focus()")
        page.press("Home")
        self.assertIn("Step: 1", page.run("document.getElementById('spoken').textContent"))
        page.press("ArrowRight")
        spoken = page.run("document.getElementById('spoken').textContent")
        self.assertIn("Step: 2", spoken)
        self.assertIn("3lc:s=1.75", spoken)
        page.press("Escape")
        self.assertEqual(page.run("document.querySelectorAll('.tip').length"), 0)
        self.assert_sound(page)

    def test_csv_of_the_page_is_the_file(self):
        page = self.page(*self.designs())
        for figure in ("loss", "designs"):
            link = page.run(f"document.querySelector('#figure-{figure} .data a').href")
            text = urllib.parse.unquote(link.split(",", 1)[1])
            rows = list(csv.reader(text.splitlines()))
            with open(self.html.parent / "page-data" / f"{figure}.csv", newline="",
                      encoding="utf-8") as file:
                expected = list(csv.reader(file))
            self.assertEqual(rows[0], expected[0])
            self.assertEqual(len(rows), len(expected))
            self.assertTrue(math.isclose(float(rows[-1][-1]), float(expected[-1][-1])))

    def test_choices_redraw(self):
        page = self.page(*self.designs())
        page.run("""for (const select of document.querySelectorAll('select')) {
            for (const option of select.options) {
              select.value = option.value;
              select.dispatchEvent(new Event('change'));
            }
        }""")
        page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.settle()
        self.assert_fits(page, 1280)
        self.assert_sound(page)

    def test_run_that_was_cut_off(self):
        run = write_run(self.folder / "run", finished=False)
        page = self.page(run, width=360)
        self.assertIn("was cut off", page.run("document.getElementById('notes').innerText"))
        self.assert_fits(page, 360)
        self.assert_sound(page)

    def test_one_run_alone(self):
        page = self.page(write_run(self.folder / "run", observe=5), width=360)
        self.assert_fits(page, 360)
        self.assert_sound(page)

    def test_hostile_names(self):
        run = write_run(self.folder / "run", HOSTILE, config={"model": HOSTILE + "x" * 300},
                        observe=3)
        page = self.page(run, write_run(self.folder / "other", "y" * 300), width=360)
        self.assertIn(HOSTILE, page.run("document.body.innerText"))
        self.assertEqual(page.run("document.querySelectorAll('.figures b').length"), 0)
        self.assert_fits(page, 360)
        self.assert_sound(page)


if __name__ == "__main__":
    program.main(__doc__)
