#!/usr/bin/env python3
"""What docs/deploying.md and examples/ give to systemd, Slurm and Kubernetes: units that systemd
takes without a complaint, and options that the program has.

usage: deploying_test.py TERSEWIRE SOURCE_DIR
"""

import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TERSEWIRE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
UNIT = re.compile(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"\btersewire[ ,]+((?:certs )?[a-z]+)\b(.*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@functools.lru_cache(None)
def options_of(command):
    help_text = subprocess.run([TERSEWIRE, *command.split(), "--help"], capture_output=True, text=True,
                               check=True).stdout
    return set(OPTION.findall(help_text))


def has_schema():
    if not shutil.which("node"):
        return False
    needs = "require.resolve('kubernetes-models/v1'); require.resolve('js-yaml')"
    return subprocess.run(["node", "-e", needs], capture_output=True, check=False).returncode == 0


class Deploying(unittest.TestCase):
    def setUp(self):
        self.text = (SOURCE / "docs/deploying.md").read_text(encoding="utf-8")

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_takes_the_units(self):
        units = UNIT.findall(self.text)
        self.assertEqual(len(units), 2)
        with tempfile.TemporaryDirectory() as folder:
            for name, unit in units:
                file = pathlib.Path(folder, name)
                file.write_text(unit.replace("/usr/local/bin/tersewire", TERSEWIRE), encoding="utf-8")
                done = subprocess.run(["systemd-analyze", "verify", "--man=no", file],
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.stdout, done.stderr, done.returncode), ("", "", 0))

    def test_the_program_has_their_options(self):
        texts = {"docs/deploying.md": "\n".join(re.findall(r"```.*?```", self.text, re.DOTALL))}
        for name in ("slurm/job.sh", "slurm/worker.sh", "kubernetes/job.yaml"):
            texts[name] = (SOURCE / "examples" / name).read_text(encoding="utf-8")
        for name, text in texts.items():
            with self.subTest(name):
                found = 0
                # Continued: after a backslash, or a comma of a list in YAML.
                for command, rest in COMMAND.findall(re.sub(r"\\\n|,\n", " ", text)):
                    options = set(OPTION.findall(rest.split("|")[0]))
                    self.assertLessEqual(options, options_of(command), f"of tersewire {command}")
                    found += len(options)
                self.assertGreater(found, 3)

    def test_scripts_for_slurm_are_scripts(self):
        for script in sorted((SOURCE / "examples/slurm").iterdir()):
            subprocess.run(["bash", "-n", script], check=True)

    def test_the_manifest_mounts_what_kubernetes_renews_where_the_commands_look(self):
        manifest = (SOURCE / "examples/kubernetes/job.yaml").read_text(encoding="utf-8")
        self.assertNotIn("subPath:", manifest)
        self.assertNotIn("subPathExpr:", manifest)
        for node in ("hub", *(f"worker-{index}" for index in range(4))):
            for name in ("key", "certificate", "authority"):
                place = f"{name}.pem" if node == "hub" else f"{node}/{name}.pem"
                self.assertIn(f"{{key: {node}.{name}.pem, path: {place}}}", manifest)
        self.assertIn("--certs, /certs,", manifest)
        self.assertIn("certs=/certs/worker-$(INDEX)", manifest)

    @unittest.skipUnless(has_schema(), "no kubernetes-models and js-yaml (npm install --prefix BUILD_DIR)")
    def test_the_manifests_are_what_kubernetes_takes(self):
        check = [SOURCE / "tools/check_manifests.mjs", SOURCE / "examples/kubernetes/job.yaml"]
        subprocess.run(check, check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as wrong:
            wrong.write(check[1].read_text(encoding="utf-8").replace("containers:", "container:"))
            wrong.flush()
            done = subprocess.run([check[0], wrong.name], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
