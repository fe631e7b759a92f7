#!/usr/bin/python3
"""Tests of recipes/ and of `tersewire train --recipe`.

    recipes_test.py PATH_TO_TERSEWIRE
"""

import json
import math
import os
import pathlib
import re
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))

import program


def settings_of(path):
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#;"]
    return {key.strip(): value.strip() for key, value in (line.split("=", 1) for line in lines)}


def idx(code, shape):
    """An IDX file of bytes that are all 1."""
    head = bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return head + b"\1" * math.prod(shape)


def make_data_sets(directory):
    """Small ones, where `tersewire data get` would put them."""
    for folder in ["mnist", "cifar10", "tinyshakespeare"]:
        (directory / folder).mkdir()
    for name, images in [("train", 128), ("t10k", 2)]:
        (directory / f"mnist/{name}-images-idx3-ubyte").write_bytes(idx(8, [images, 28, 28]))
        (directory / f"mnist/{name}-labels-idx1-ubyte").write_bytes(idx(8, [images]))
    for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]:
        (directory / f"cifar10/{name}.bin").write_bytes(b"\1" * 26 * 3073)
    (directory / "cifar10/test_batch.bin").write_bytes(b"\1" * 2 * 3073)
    (directory / "tinyshakespeare/input.txt").write_text("To be, or not to be: " * 80)


class RecipeTest(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.runs = 0

    def train(self, *arguments):
        return program.run("train", *arguments, cwd=self.directory)

    def own(self, text, name="own.ini"):
        path = self.directory / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run_of(self, *arguments):
        """What config.json and summary.json say of a run."""
        self.runs += 1
        run = self.directory / f"run{self.runs}"
        result = self.train(*arguments, "--out", run, "--json")
        self.assertEqual(result.returncode, 0, result)
        config = json.loads((run / "config.json").read_text())
        summary = json.loads(result.stdout)
        self.assertEqual(summary, json.loads((run / "summary.json").read_text()))
        return config, summary


class NextCommand(RecipeTest):
    def test_what_data_get_advises_runs(self):
        """The options of each data set, on small ones of its shape."""
        make_data_sets(self.directory)
        source = (ROOT / "apps/data/data_sets.cpp").read_text()
        sets = re.findall(r'\.name = "(\w+)",\s+\.url', source)
        options = re.findall(r'\.train = "(.+)"', source)
        self.assertEqual((len(sets), len(options)), (3, 3))
        for name, advised in zip(sets, options):
            with self.subTest(name):
                config, _ = self.run_of(*advised.split(), "--data", name, "--workers", 2, "--steps", 1,
                                        "--warm-up", 0, "--batch", 1)  # fmt: skip
                self.assertEqual(config["data"], name)


class BuiltIn(RecipeTest):
    def recipes(self):
        return sorted(ROOT.glob("recipes/*.ini"))

    def test_the_list_is_names_and_first_lines(self):
        result = self.train("--list-recipes")
        self.assertEqual((result.returncode, result.stderr), (0, b""), result)
        shown = [line.split(None, 1) for line in result.stdout.decode().splitlines()]
        files = [[path.stem, path.read_text().splitlines()[0].removeprefix("# ")]
                 for path in self.recipes()]
        self.assertEqual(shown, files)
        self.assertGreaterEqual(len(files), 10)

    def test_each_says_of_which_table_it_is_and_what_is_reduced(self):
        for path in self.recipes():
            with self.subTest(recipe=path.name):
                head = re.match(r"(?:#.*\n)*", path.read_text()).group()
                first, second, *rest = head.splitlines()
                self.assertRegex(
                    first,
                    r"^# ((3LC|TernGrad|INCEPTIONN|AdaComp|Oland & Raj), .*(Table|Fig\.|section)|No paper's:) .*\.$",
                )
                self.assertEqual(second, "#")
                self.assertRegex("\n".join(rest), r"# (Reduced|At full size|Longer)")
                self.assertTrue(all(len(line) <= 120 for line in head.splitlines()))

    def test_each_is_read_and_asks_for_its_data(self):
        for path in self.recipes():
            with self.subTest(recipe=path.name):
                data = settings_of(path)["data"]
                name = data.split("/")[0]
                self.assert_refused(self.train("--recipe", path.stem), 1, f"no {data}",
                                    f"'tersewire data get {name}'", "--data")

    def test_each_takes_a_step(self):
        make_data_sets(self.directory)
        for path in self.recipes():
            with self.subTest(recipe=path.name):
                # One sample a worker: a step of a large model takes long.
                shorter = ("--steps", 1, "--warm-up", 1, "--batch", 1)
                config, summary = self.run_of("--recipe", path.stem, *shorter)
                self.assertEqual((config["recipe"], summary["recipe"]), (path.stem, path.stem))
                self.assertEqual((config["steps"], config["batch"]), (1, 1))
                for key, value in settings_of(path).items():
                    if key in ["steps", "epochs", "warm-up", "batch"]:
                        continue
                    found = config["push_codec" if key == "codec" else key.replace("-", "_")]
                    is_text = isinstance(found, str)
                    self.assertEqual(found, value if is_text else json.loads(value), key)


class Own(RecipeTest):
    JOB = "# A comment.\n\n; Another.\n  model=mlp \r\nworkers = 2\nbatch = 8\ncodec = int8\n"

    def config_of(self, recipe, *arguments):
        """What config.json says of a run on a few images."""
        if not (self.directory / "mnist").exists():
            make_data_sets(self.directory)
        config, summary = self.run_of("--recipe", recipe, "--data", "mnist", *arguments)
        self.assertEqual((config["recipe"], summary["recipe"]), (str(recipe), str(recipe)))
        return config

    def test_the_command_line_wins(self):
        own = self.own(self.JOB + "push-codec = fp16\npolicy = first:fp32; kind=bias:fp32\n")
        config = self.config_of(own, "--steps", 1, "--batch", 4)
        found = [config[key] for key in "model workers batch push_codec pull_codec policy".split()]
        self.assertEqual(found, ["mlp", 2, 4, "fp16", "int8", "first:fp32; kind=bias:fp32"])
        # A codec for everything leaves nothing of what the recipe had for a part, ...
        config = self.config_of(own, "--steps", 1, "--codec", "bf16")
        found = [config[key] for key in "push_codec pull_codec policy".split()]
        self.assertEqual(found, ["bf16", "bf16", "auto"])
        # ... but of what the command line has.
        config = self.config_of(own, "--steps", 1, "--codec", "bf16", "--pull-codec", "3lc")
        self.assertEqual([config["push_codec"], config["pull_codec"]], ["bf16", "3lc"])

    def test_the_command_line_wins_over_what_it_excludes(self):
        # An epoch is 128 / 2 / 8 = 8 steps.
        own = self.own(self.JOB + "steps = 5\n")
        self.assertEqual(self.config_of(own, "--epochs", 0.25)["steps"], 2)
        # More than the 1,000 of a run without a number.
        later = ["--later-codec", "1001:fp32"]
        self.assertEqual(self.config_of(own, "--epochs", 126, *later)["steps"], 1008)
        own = self.own(self.JOB + "epochs = 5\n")
        self.assertEqual(self.config_of(own, "--steps", 1)["steps"], 1)

    def test_flags_and_texts(self):
        own = self.own(self.JOB + "scale-lr = true\npolicy =\nsteps = 1\n", "a=b #1.ini")
        config = self.config_of(own)
        self.assertEqual((config["scale_lr"], config["policy"]), (True, ""))
        own = self.own(self.JOB + "scale-lr = false\nsteps = 1\n")
        self.assertFalse(self.config_of(own)["scale_lr"])

    def test_a_byte_order_mark_is_no_setting(self):
        own = self.own("\ufeff" + self.JOB.removeprefix("# A comment.\n\n; Another.\n") + "steps = 1\n")
        self.assertEqual(self.config_of(own)["model"], "mlp")
        own = self.own("\ufeffwokers = 2\n")
        self.assert_refused(self.train("--recipe", own), 2, "line 1", "'wokers'", "'workers'")

    def test_refused(self):
        cases = [
            ("wokers = 2\n", "own0.ini, line 1", "'wokers'", "'workers'"),
            ("\n# One.\nwokers = 2\n", "line 3", "'wokers'", "did you mean 'workers'"),
            ("\n# One.\nlerning-rate = 2\n", "line 3", "'lerning-rate'; 'tersewire train --help' lists them\n"),
            ("out = here\n", "line 1: 'out' is given on the command line, as --out; remove it here"),
            ("json = true\n", "as --json"),
            ("quiet = true\n", "as --quiet"),
            ("resume = x\n", "as --resume;"),
            ("help = true\n", "'help'"),
            ("recipe = other\n", "'recipe'"),
            ("list-recipes = true\n", "'list-recipes'"),
            (" = 2\n", "line 1", "''"),
            ("--batch = 2\n", "'--batch'", "'batch'"),
            ("batch = 2\nbatch = 2\n", "line 2", "'batch' is given twice"),
            ("steps = 2\nepochs = 2\n", "line 2", "'steps' and 'epochs'"),
            ("workers = 0\n", "line 1", "--workers", "0"),
            ("workers = two\n", "line 1", "--workers", "two"),
            ("workers =\n", "line 1", "--workers"),
            ("scale-lr = perhaps\n", "line 1", "scale-lr", "perhaps"),
            ("\nscale-lr = 3\n", "line 2", "scale-lr", "'3'", "true or false"),
            ("servers = some\n", "line 1", "--servers", "some"),
            ("lr\n", "line 1", "'lr' is not a setting", "KEY = VALUE"),
            ("[train]\nlr = 1\n", "line 1", "'[train]' is not a setting"),
            ("exchange = ring\ncodec = 3lc\n", ".ini: ", "3lc does not fit"),
            ("codec = 3lc:s=16\n", ".ini: ", "3lc:s=16"),
            ("momentum = 1\n", ".ini: ", "momentum"),
            ("exchange = all-gather\nservers = 1\n", ".ini: ", "no servers"),
        ]
        files = [self.own(text, f"own{i}.ini") for i, (text, *_) in enumerate(cases)]
        with ThreadPoolExecutor(max_workers=2) as pool:
            results = pool.map(lambda path: self.train("--recipe", path), files)
        for (text, *words), result in zip(cases, results):
            with self.subTest(text=text):
                self.assert_refused(result, 2, *words)
        self.assertTrue(all(name.endswith(".ini") for name in os.listdir(self.directory)))

    def test_a_line_that_the_command_line_overrides_must_be_right_all_the_same(self):
        own = self.own("steps = 2\nepochs = 2\n")
        self.assert_refused(self.train("--recipe", own, "--steps", 1), 2, "exclude each other")

    def test_names(self):
        self.assert_refused(self.train("--recipe", "terngrad-lent"), 2, "'terngrad-lent'",
                            "did you mean 'terngrad-lenet'?")
        self.assert_refused(self.train("--recipe", ""), 2, "unknown recipe ''")

    def test_files(self):
        self.own(b"workers = 2\0\n", "binary.ini")
        self.own("# x\n" * 20000, "huge.ini")
        (self.directory / "folder.ini").mkdir()
        cases = [
            ("none.ini", "none.ini cannot be read"),
            ("./none", "./none cannot be read"),
            ("folder.ini", "folder.ini cannot be read"),
            ("/dev/zero", "/dev/zero is larger than 64 KiB"),
            ("huge.ini", "huge.ini is larger than 64 KiB"),
            ("binary.ini", "binary.ini is not text"),
        ]
        for name, sentence in cases:
            with self.subTest(name=name):
                self.assert_refused(self.train("--recipe", name), 1, sentence)

    def test_an_option_that_there_is_not(self):
        self.assert_refused(self.train("--wokers", 2), 2, "--wokers", "did you mean --workers?")
        self.assert_refused(self.train("--lr-schedule=cosine"), 2, "did you mean --")


if __name__ == "__main__":
    program.main(__doc__)
