#!/usr/bin/python3
"""Tests of recipes/ and of `tersewire train --recipe`.

    recipes_test.py PATH_TO_TERSEWIRE PATH_TO_SOURCE_DIR
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
RECIPES = None  # the folder of the source

# What takes the digits that are in the program.
GREYSCALE = ["hdc", "lenet", "mlp", "mnist-cnn"]


def settings_of(path):
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#;"]
    return dict(re.fullmatch(r"(\S+) =(?: (.*))?", line).groups() for line in lines)


class RecipeTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def train(self, *arguments):
        return subprocess.run(
            [PROGRAM, "train", *map(str, arguments)],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def own(self, text, name="own.ini"):
        path = self.directory / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def config_of(self, *arguments, steps=("--steps", 1)):
        """What config.json says of a run on embedded data."""
        run = self.directory / "run"
        job = ("--data", "embedded", "--out", run, "--json")
        result = self.train(*arguments, *job, *steps)
        self.assertEqual(result.returncode, 0, result)
        config = json.loads((run / "config.json").read_text())
        summary = json.loads(result.stdout)
        self.assertEqual(summary, json.loads((run / "summary.json").read_text()))
        for name in ["config.json", "metrics.jsonl", "summary.json"]:
            (run / name).unlink()
        return config, summary

    def assert_refused(self, result, code, *words):
        self.assertEqual(result.returncode, code, result)
        sentence = result.stderr.decode()
        self.assertEqual(sentence.count("\n"), 1, sentence)
        for word in words:
            self.assertIn(word, sentence)


class BuiltIn(RecipeTest):
    def recipes(self):
        return sorted(RECIPES.glob("*.ini"))

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
                    r"^# (3LC|TernGrad|INCEPTIONN|AdaComp|Oland & Raj), .*(Table|Fig\.|section) .*\.$",
                )
                self.assertEqual(second, "#")
                self.assertRegex("\n".join(rest), r"# (Reduced|At full size)")
                self.assertTrue(all(len(line) <= 120 for line in head.splitlines()))

    def test_each_is_read_and_asks_for_its_data(self):
        for path in self.recipes():
            with self.subTest(recipe=path.name):
                data = settings_of(path)["data"]
                name = data.split("/")[0]
                self.assert_refused(self.train("--recipe", path.stem), 1, f"no {data}",
                                    f"'tersewire data get {name}'", "--data")

    def test_those_for_digits_take_a_step(self):
        ran = 0
        for path in self.recipes():
            settings = settings_of(path)
            if settings["model"] not in GREYSCALE:
                continue
            with self.subTest(recipe=path.name):
                config, summary = self.config_of("--recipe", path.stem)
                self.assertEqual((config["recipe"], summary["recipe"]), (path.stem, path.stem))
                self.assertEqual((config["data"], config["steps"]), ("embedded", 1))
                for key in ["model", "exchange", "schedule"]:
                    self.assertEqual(config[key], settings[key])
                for key in ["workers", "batch"]:
                    self.assertEqual(config[key], int(settings[key]))
                self.assertEqual(config["lr"], float(settings["lr"]))
                self.assertEqual(config["push_codec"], settings["codec"])
                self.assertEqual(config["policy"], settings["policy"] or "")
            ran += 1
        self.assertGreaterEqual(ran, 4)


class Own(RecipeTest):
    JOB = "# A comment.\n\n; Another.\n  model=mlp \r\nworkers = 2\nbatch = 8\ncodec = int8\n"

    def test_the_command_line_wins(self):
        own = self.own(self.JOB + "push-codec = fp16\npolicy = first:fp32; kind=bias:fp32\n")
        config, _ = self.config_of("--recipe", own, "--batch", 4)
        self.assertEqual(config["recipe"], str(own))
        found = [config[key] for key in "model workers batch push_codec pull_codec policy".split()]
        self.assertEqual(
            found, ["mlp", 2, 4, "fp16", "int8", "first:fp32; kind=bias:fp32"]
        )
        # A codec for everything leaves nothing of what the recipe had for a part, ...
        config, _ = self.config_of("--codec", "bf16", "--recipe", own)
        found = [config[key] for key in "push_codec pull_codec policy".split()]
        self.assertEqual(found, ["bf16", "bf16", "small"])
        # ... but of what the command line has.
        config, _ = self.config_of("--codec", "bf16", "--recipe", own, "--pull-codec", "3lc")
        self.assertEqual([config["push_codec"], config["pull_codec"]], ["bf16", "3lc"])

    def test_the_command_line_wins_over_what_it_excludes(self):
        # An epoch is 20000 / 2 / 5000 = 2 steps.
        own = self.own(self.JOB.replace("batch = 8", "batch = 5000") + "steps = 5\n")
        config, _ = self.config_of("--recipe", own, steps=("--epochs", 0.5))
        self.assertEqual(config["steps"], 1)
        own = self.own(self.JOB + "epochs = 5\n")
        config, _ = self.config_of("--recipe", own)
        self.assertEqual(config["steps"], 1)

    def test_flags_and_texts(self):
        own = self.own(self.JOB + "scale-lr = true\npolicy =\nsteps = 1\n", "dir=name#1.ini")
        config, _ = self.config_of("--recipe", own, steps=())
        self.assertEqual((config["scale_lr"], config["policy"]), (True, ""))
        own = self.own(self.JOB + "scale-lr = false\n")
        self.assertFalse(self.config_of("--recipe", own)[0]["scale_lr"])

    def test_refused(self):
        cases = [
            ("wokers = 2\n", "own.ini, line 1", "'wokers'", "'workers'"),
            ("\n# One.\nlerning-rate = 2\n", "line 3", "'lerning-rate'", "did you mean"),
            ("out = here\n", "'out'"),
            ("json = true\n", "'json'"),
            ("help = true\n", "'help'"),
            ("recipe = other\n", "'recipe'"),
            ("list-recipes = true\n", "'list-recipes'"),
            (" = 2\n", "line 1", "''"),
            ("--batch = 2\n", "'--batch'", "'batch'"),
            ("batch = 2\nbatch = 2\n", "line 2", "'batch' is there twice"),
            ("steps = 2\nepochs = 2\n", "line 2", "'steps' and 'epochs'"),
            ("workers = 0\n", "line 1", "--workers", "0"),
            ("workers = two\n", "line 1", "--workers", "two"),
            ("workers =\n", "line 1", "--workers"),
            ("scale-lr = perhaps\n", "line 1", "scale-lr", "perhaps"),
            ("servers = some\n", "line 1", "--servers", "some"),
            ("lr\n", "line 1", "'lr' is no setting", "KEY = VALUE"),
            ("[train]\nlr = 1\n", "line 1", "'[train]' is no setting"),
            ("exchange = ring\ncodec = 3lc\n", "own.ini", "3lc does not fit"),
            ("codec = 3lc:s=2\n", "own.ini", "3lc:s=2"),
            ("momentum = 1\n", "own.ini", "momentum"),
            ("exchange = all-gather\nservers = 1\n", "own.ini", "no servers"),
        ]
        for text, *words in cases:
            with self.subTest(text=text):
                self.assert_refused(self.train("--recipe", self.own(text)), 2, *words)
        self.assertEqual(os.listdir(self.directory), ["own.ini"])

    def test_a_line_that_the_command_line_overrides_must_be_right_all_the_same(self):
        own = self.own("steps = 2\nepochs = 2\n")
        self.assert_refused(self.train("--recipe", own, "--steps", 1), 2, "exclude each other")

    def test_names(self):
        self.assert_refused(self.train("--recipe", "terngrad-lent"), 2, "'terngrad-lent'",
                            "did you mean 'terngrad-lenet'?")
        self.assert_refused(self.train("--recipe", ""), 2, "no recipe ''")

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
            ("binary.ini", "binary.ini is no text"),
        ]
        for name, sentence in cases:
            with self.subTest(name=name):
                self.assert_refused(self.train("--recipe", name), 1, sentence)

    def test_an_option_that_there_is_not(self):
        self.assert_refused(self.train("--wokers", 2), 2, "--wokers", "did you mean --workers?")
        self.assert_refused(self.train("--lr-schedule=cosine"), 2, "did you mean --")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    RECIPES = pathlib.Path(sys.argv.pop(1)) / "recipes"
    unittest.main()
