#!/usr/bin/python3
"""Tests of `tersewire predict` and `tersewire probe` from outside.

    predict_command_test.py PATH_TO_TERSEWIRE
"""

import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import mpi_launcher
import program

CONTRACT = {"design", "exchange", "codec", "workers", "link", "step_seconds", "speedup"}
JOB = ["--model", "lenet", "--workers", "4", "--compute-ms", "50"]
run = functools.partial(program.run, text=True)


class Case(unittest.TestCase):
    def output(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def rows(self, *arguments):
        return json.loads(self.output("predict", *arguments, "--json"))

    def refused(self, code, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, code, done)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("tersewire: "), done.stderr)
        return done.stderr


class PredictTest(Case):
    def test_every_exchange_and_every_codec(self):
        rows = self.rows(*JOB, "--link", "100mbit,1ms")
        codecs = {codec["name"] for codec in json.loads(self.output("codecs", "--json"))}
        self.assertEqual({row["codec"].split(":")[0] for row in rows}, codecs)
        self.assertEqual({row["exchange"] for row in rows}, {
            "parameter-server", "gradient-server", "aggregator-tree", "all-gather", "ring",
            "hierarchical-ring", "weight-average"})  # fmt: skip
        for row in rows:
            self.assertLessEqual(CONTRACT, set(row))
            self.assertGreaterEqual(row["step_seconds"], 0.05)
            parts = sum(row[f"{part}_seconds"] for part in ("compute", "codec", "wire", "waiting"))
            self.assertAlmostEqual(parts, row["step_seconds"], 9)
        # What does not fit is not there.
        ring = {row["codec"] for row in rows if row["exchange"] == "ring"}
        self.assertIn("inceptionn", ring)
        self.assertNotIn("3lc", ring)

    def test_speedups_are_over_the_fastest_fp32(self):
        rows = self.rows(*JOB, "--link", "10mbit")
        fp32 = min(row["step_seconds"] for row in rows if row["codec"] == "fp32")
        for row in rows:
            self.assertAlmostEqual(row["speedup"], fp32 / row["step_seconds"], 9)
        alone = self.rows(*JOB, "--link", "10mbit", "--codec", "int8")
        self.assertEqual({row["codec"] for row in alone}, {"int8"})
        self.assertEqual(alone, [row for row in rows if row["codec"] == "int8"])

    def test_an_exchange_that_takes_no_fp32_is_compared_with_its_plain_form(self):
        job = [*JOB, "--link", "10mbit", "--exchange"]
        shared = self.rows(*job, "gradient-server:scaler-sharing=on", "--codec", "terngrad")
        plain, = self.rows(*job, "gradient-server", "--codec", "fp32")
        self.assertEqual(len(shared), 1)
        self.assertAlmostEqual(shared[0]["speedup"], plain["step_seconds"] / shared[0]["step_seconds"], 9)
        self.assertGreater(shared[0]["speedup"], 2)
        # What a policy says of all tensors is not what is compared with.
        ruled, = self.rows(*job, "gradient-server", "--codec", "int8", "--policy", "*:3lc")
        self.assertAlmostEqual(ruled["speedup"], plain["step_seconds"] / ruled["step_seconds"], 9)

    def test_ten_times_the_rate_is_a_tenth_of_the_wire(self):
        job = ["--model", "lenet", "--workers", "4", "--compute-ms", "0", "--exchange", "ring",
               "--codec", "fp32"]  # fmt: skip
        slow, fast = self.rows(*job, "--link", "10mbit", "--link", "100mbit")
        self.assertEqual((slow["link"], fast["link"]), ("10mbit", "100mbit"))
        self.assertAlmostEqual(slow["wire_seconds"] / fast["wire_seconds"], 10, 6)
        # 2 (W - 1) / W n, n = 431,080 values, and a little for heads.
        least = 1.5 * 4 * 431080 * 8 / 10e6 * 1514 / 1448
        self.assertGreater(slow["wire_seconds"], least)
        self.assertLess(slow["wire_seconds"], 1.02 * least)

    def test_several_numbers_of_workers(self):
        rows = self.rows("--model", "lenet", "--workers", "2,8", "--compute-ms", "5", "--link",
                         "1gbit", "--exchange", "all-gather", "--codec", "3lc")  # fmt: skip
        self.assertEqual([row["workers"] for row in rows], [2, 8])

    def test_strong_scaling_shares_the_computation(self):
        job = ["--model", "lenet", "--workers", "4", "--compute-ms", "80", "--link", "1gbit",
               "--exchange", "ring", "--codec", "fp32"]  # fmt: skip
        self.assertAlmostEqual(self.rows(*job)[0]["compute_seconds"], 0.08)
        self.assertAlmostEqual(self.rows(*job, "--scaling", "strong")[0]["compute_seconds"], 0.02)

    def test_the_model_of_terngrad(self):
        """Equation 17, by hand: 61,100,840 values of 32 bits."""
        (row,) = self.rows("--model", "alexnet", "--workers", "8", "--gpus-per-node", "4",
                           "--intra", "100gbit", "--link", "1gbit,1ms", "--compute-ms", "90",
                           "--exchange", "terngrad-model", "--codec", "fp32")  # fmt: skip
        bits = 32 * 61100840
        self.assertAlmostEqual(row["step_seconds"], 0.09 + 2 * bits / 1e11 + 1e-3 + bits / 1e9, 9)

    def test_a_table_and_a_sentence(self):
        text = self.output("predict", *JOB, "--link", "10mbit,1ms")
        lines = text.splitlines()
        self.assertEqual(lines[0], "4 workers, 10mbit,1ms")
        self.assertRegex(lines[1], r"^codec +exchange +step +speedup +computation +codec +wire")
        steps = [line for line in lines[2:-1]]
        self.assertGreaterEqual(len(steps), 17)
        self.assertRegex(lines[-1], r"^Take [a-z-]+(, colocated)?/\S+: .* instead of .*/fp32, "
                         r"[\d.]+ times as fast\. Above [\d.]+ [MG]bit/s compression does not pay")  # fmt: skip
        # Nor is a codec that lost much of a training what to take, small as its messages are.
        self.assertRegex(text, r"local-selection .* 1\.3\n")
        self.assertNotRegex(lines[-1], "dryden|local-selection")

    def test_where_compression_does_not_pay(self):
        text = self.output("predict", *JOB, "--link", "100gbit")
        self.assertIn("Compression does not pay at 100gbit: ", text.splitlines()[-1])
        # Just below the rate that it names, compression pays.
        rate = re.search(r"Above ([\d.]+) ([MG])bit/s compression", text)
        rate = float(rate[1]) * {"M": 1e6, "G": 1e9}[rate[2]]
        for factor, worth in ((0.9, True), (1.1, False)):
            verdict = self.output("predict", *JOB, "--link", f"{factor * rate / 1e6:.3f}mbit")
            self.assertEqual("Take " in verdict, worth, verdict)
        # What it says to take is by itself worth it, and it says by how much.
        for job in (["lenet", "--link", "500mbit,2ms", "--compute-ms", "120"],
                    ["mlp", "--link", "500mbit,2ms", "--compute-ms", "500"]):  # fmt: skip
            verdict = self.output("predict", "--workers", "4", "--model", *job)
            gain = re.search(r"Take .*, ([\d.]+) times as fast", verdict)
            self.assertGreaterEqual(float(gain[1]), 1.05, verdict)

    def test_what_compresses_nothing_says_nothing_of_compression(self):
        job = [*JOB, "--link", "10mbit", "--codec", "fp32"]
        verdict = self.output("predict", *job).splitlines()[-1]
        self.assertRegex(verdict, r"^\S.*/fp32 takes \S+ m?s a step; name other codecs with --codec to compare\.$")
        # A policy may compress.
        verdict = self.output("predict", *job, "--policy", "kind=dense:3lc; *:fp32").splitlines()[-1]
        self.assertIn("times as fast", verdict)

    def test_one_worker_is_one(self):
        text = self.output("predict", "--model", "lenet", "--workers", "1", "--compute-ms", "50", "--link", "10mbit")
        self.assertEqual(text.splitlines()[0], "1 worker, 10mbit")

    def test_where_no_codec_trains_as_fp32_does(self):
        job = [*JOB, "--link", "10mbit", "--exchange", "gradient-server:scaler-sharing=on"]
        verdict = self.output("predict", *job).splitlines()[-1]
        self.assertIn("None of these codecs trained nearly as fp32 does", verdict)
        # Who names one has it compared.
        self.assertIn("Take ", self.output("predict", *job, "--codec", "terngrad"))

    def test_large_numbers_are_no_powers_of_ten(self):
        text = self.output("predict", "--model", "lenet", "--workers", "4", "--compute-ms", "1e8",
                           "--link", "1gbit", "--codec", "int8")  # fmt: skip
        self.assertIn(" 27 h 47 min ", text)
        self.assertNotIn("e+", text)

    def test_a_model_of_a_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "shapes.json")
            path.write_text('[{"name": "fc.weight", "shape": [1000, 1000]},'
                            ' {"name": "fc.bias", "shape": [1000]}]')  # fmt: skip
            job = ["--workers", "2", "--compute-ms", "0", "--link", "1gbit", "--exchange",
                   "all-gather", "--codec", "fp32"]  # fmt: skip
            (row,) = self.rows("--model", path, *job)
            self.assertAlmostEqual(row["wire_seconds"], 32 * 1001000 / 1e9 * 1514 / 1448, 4)
            for text, part in (("[]", "lists no tensors"), ("{}", "lists no tensors"),
                               ("nonsense", "lists no tensors"),
                               ('[{"name": "fc"}]', "tensor number 0 has no shape"),
                               ('[{"shape": [1]}]', "tensor number 0 has no name"),
                               ('[{"name": "a", "shape": [0]}]', "whole numbers from 1 on"),
                               ('[{"name": "a", "shape": [-3]}]', "whole numbers from 1 on"),
                               ('[{"name": "a", "shape": [1099511627776, 2]}]', "shapes.json"),
                               ('[{"name": "a", "shape": [1], "kind": "x"}]', "kind")):  # fmt: skip
                path.write_text(text)
                self.assertIn(part, self.refused(1, "predict", "--model", path, *job))

    def test_what_makes_no_sense(self):
        for link in ("fast", "100", "100mbit,soon", "100mbit,20", "100mbit,-1ms", ",20ms", "0mbit"):
            sentence = self.refused(2, "predict", *JOB, "--link", link)
            self.assertRegex(sentence, "is not a (rate|latency); write ")
        link = ["--link", "1gbit"]
        self.assertIn("neither a file nor a model",
                      self.refused(2, "predict", "--model", "letnet", *JOB[2:], *link))  # fmt: skip
        self.assertIn("--link", self.refused(2, "predict", *JOB))
        self.assertIn("--intra", self.refused(2, "predict", *JOB, *link, "--gpus-per-node", "2"))
        self.assertIn("3 GPUs", self.refused(2, "predict", *JOB, *link, "--gpus-per-node", "3",
                                             "--intra", "10gbit"))  # fmt: skip
        self.assertIn("every hop", self.refused(2, "predict", *JOB, *link, "--exchange", "ring",
                                                "--codec", "3lc"))  # fmt: skip
        self.assertIn("unknown exchange",
                      self.refused(2, "predict", *JOB, *link, "--exchange", "rink"))  # fmt: skip
        self.assertIn("unknown codec", self.refused(2, "predict", *JOB, *link, "--codec", "4lc"))
        self.assertIn("name a file with --page", self.refused(2, "predict", *JOB, *link, "--page", "-"))
        for more in ([*JOB], ["--json"], ["--link", "1gbit"]):
            self.assertIn(f"omit {more[0]}", self.refused(2, "predict", "--from", "dry.json", *more))

    def test_a_page_shows_the_numbers_of_workers_that_fit(self):
        for workers, arguments, shown in (
            (8, ["--exchange", "hierarchical-ring:group=4", "--codec", "int8"],
             [4 * 2**i for i in range(8)]),
            (1024, ["--gpus-per-node", "1024", "--intra", "100gbit", "--codec", "fp32"], [1024]),
        ):  # fmt: skip
            with tempfile.TemporaryDirectory() as directory:
                path = pathlib.Path(directory, "page.html")
                self.output("predict", "--model", "lenet", "--workers", workers, "--compute-ms",
                            "50", "--link", "100mbit", "--page", path, *arguments)  # fmt: skip
                data = re.search(r'<script type="application/json" id="data">(.*?)</script>',
                                 path.read_text(), re.DOTALL)[1]  # fmt: skip
                (curve,) = json.loads(data)["figures"][0]["groups"]
                self.assertEqual([row[0] for row in curve["rows"]], shown)

    def test_a_page_of_charts(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "page.html")
            self.output("predict", *JOB, "--link", "10mbit", "--page", path, "--codec", "fp32",
                        "--codec", "3lc", "--exchange", "all-gather")  # fmt: skip
            page = path.read_text()
            data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>',
                                        page, re.DOTALL)[1])  # fmt: skip
            figures = {figure["id"]: figure for figure in data["figures"]}
            self.assertEqual(list(figures), ["speedup-over-workers", "speedup-over-rate"])
            workers, rates = ([{group["key"][0]: group["rows"] for group in figure["groups"]}]
                              for figure in figures.values())  # fmt: skip
            self.assertEqual([row[0] for row in workers[0]["3lc"]], [2**i for i in range(10)])
            self.assertTrue(all(row[1] == 1 for row in rates[0]["fp32"]))
            gains = [row[1] for row in rates[0]["3lc"]]
            self.assertGreater(gains[0], 5)
            self.assertLess(gains[-1], 1.05)
            for figure in figures:
                self.assertIn(f'"{figure}"', page.split("</script>", 1)[1])  # someone draws it


class ProbeTest(Case):
    PROBE = ["probe", "--transport", "in-process", "--rate", "50mbit", "--json"]

    def test_what_a_probe_says_is_what_predictions_take(self):
        text = self.output(*self.PROBE, "--nodes", "3")
        probe = json.loads(text)
        self.assertLessEqual({"rate_bits_per_second", "latency_seconds", "cores", "codecs"},
                             set(probe))  # fmt: skip
        # No message is faster than its link.
        self.assertLess(probe["rate_bits_per_second"], 50.5e6)
        self.assertGreater(probe["rate_bits_per_second"], 1e6)
        self.assertEqual([peer["rank"] for peer in probe["peers"]], [1, 2])
        for peer in probe["peers"]:
            self.assertGreaterEqual(peer["bits_per_second_to"], probe["rate_bits_per_second"])
            self.assertGreaterEqual(peer["bits_per_second_from"], probe["rate_bits_per_second"])
        self.assertGreaterEqual(probe["cores"], 1)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "probe.json")
            probe |= {"rate_bits_per_second": 1e7, "latency_seconds": 0}
            probe["codecs"] = [{"codec": "3lc", "encode_seconds_per_value": 1e-6,
                                "decode_seconds_per_value": 0, "bits_per_value": 16}]  # fmt: skip
            path.write_text(json.dumps(probe))
            job = ["--model", "lenet", "--workers", "2", "--compute-ms", "0", "--exchange",
                   "all-gather", "--codec", "3lc", "--policy", ""]  # fmt: skip
            (row,) = self.rows(*job, "--probe", path)
            self.assertAlmostEqual(row["codec_seconds"], 0.431080, 1)
            self.assertAlmostEqual(row["wire_seconds"], 16 * 431080 / 1e7 * 1514 / 1448, 2)
            # A link that is said goes before the probe's.
            (other,) = self.rows(*job, "--probe", path, "--link", "100mbit")
            self.assertLess(other["wire_seconds"], row["wire_seconds"] / 9)
            # Where parameters were not probed, the codec's own are what is known.
            one, same = self.rows(*job, "--codec", "3lc:s=1.5", "--probe", path)
            self.assertEqual(one["codec_seconds"], same["codec_seconds"])
            fast = probe | {"rate_bits_per_second": 2.5e10}
            path.write_text(json.dumps(fast))
            self.assertEqual(self.rows(*job, "--probe", path)[0]["link"], "25000mbit,0ms")
            # Of a dry run with fewer steps than codecs.
            probe["codecs"][0] |= {"bits_per_value": 0, "looks": 0}
            path.write_text(json.dumps(probe))
            self.assertIn("codec 3lc was not sampled",
                          self.refused(1, "predict", *job, "--probe", path))  # fmt: skip
            for broken in ("", "[]", "{}", '{"rate_bits_per_second": 0}',
                           '{"rate_bits_per_second": 1e6, "latency_seconds": 0}',
                           '{"rate_bits_per_second": 1e6, "latency_seconds": 0, "codecs": [1]}',
                           '{"rate_bits_per_second": 1e6, "latency_seconds": "soon"}'):  # fmt: skip
                path.write_text(broken)
                sentence = self.refused(1, "predict", *job, "--probe", path)
                self.assertIn("probe.json", sentence)

    def test_a_message_is_as_late_as_two_links(self):
        probe = json.loads(self.output("probe", "--json", "--transport",
                                       "in-process:rate=50mbit,delay=10ms"))  # fmt: skip
        self.assertGreaterEqual(probe["latency_seconds"], 0.02)
        self.assertLess(probe["rate_bits_per_second"], 50.5e6)

    def test_where_it_cannot_be(self):
        self.assertIn("over mpi or in-process, not over grpc",
                      self.refused(2, "probe", "--transport", "grpc"))
        self.assertIn("unknown transport 'udp'", self.refused(2, "probe", "--transport", "udp"))
        self.assertIn("limit that with lab/netlab", self.refused(2, "probe", "--rate", "1mbit"))

    def test_without_a_peer(self):
        sentence = self.refused(1, *self.PROBE, "--nodes", "1")
        self.assertIn("found no other node", sentence)
        self.assertIn("mpirun -n 2", sentence)

    def over_mpi(self, ranks):
        if not mpi_launcher.launcher():
            self.skipTest("no mpirun here")
        with mpi_launcher.environment() as variables:
            done = subprocess.run(mpi_launcher.command(ranks, program.PATH, "probe", "--json"),
                                  capture_output=True, text=True, timeout=300, check=False,
                                  env=variables | {"TERSEWIRE_CONFIG": ""})  # fmt: skip
        if "no MPI" in done.stderr:
            self.skipTest("this build has no MPI")
        return done

    def test_over_mpi_rank_0_alone_prints(self):
        done = self.over_mpi(3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([peer["rank"] for peer in json.loads(done.stdout)["peers"]], [1, 2])

    def test_over_mpi_without_a_peer(self):
        done = self.over_mpi(1)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("found no other node"), 1, done.stderr)

    def test_for_people(self):
        text = self.output(*self.PROBE[:-1])
        self.assertRegex(text, r"node +to it +from it +latency\n1 +[\d.]+ Mbit/s")
        self.assertRegex(text, r"cores; nanoseconds a value")


if __name__ == "__main__":
    program.main(__doc__)
