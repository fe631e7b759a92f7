#!/usr/bin/env python3
"""Proves that tools/check_includes.py catches what it is there to catch.

usage: check_includes_test.py PATH_OF_CHECK_INCLUDES
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = None  # the script under test, from the command line
MODULE = None  # the same, loaded: a process for each of hundreds of trees would take long

# A small tree that breaks no rule: one header a folder, each included by all that may see it.
SOUND = {
    "include/tersewire/api.h": "#pragma once\n#include <vector>\n",
    "src/base/base_part.h": '#pragma once\n#include <fmt/format.h>\n#include "tersewire/api.h"\n',
    "src/kernels/kernel_part.h": '#pragma once\n#include <hwy/highway.h>\n#include "base_part.h"\n',
    "src/codec/codec_part.h": '#pragma once\n#include "base_part.h"\n#include "kernel_part.h"\n',
    "src/wire/wire_part.h": '#pragma once\n#include <xxhash.h>\n#include "base_part.h"\n',
    "src/transport/transport_part.h": '#pragma once\n#include "base_part.h"\n',
    "src/transport/in_process/in_process_part.h": '#pragma once\n#include "transport_part.h"\n',
    "src/transport/mpi/mpi_part.h": '#pragma once\n#include <mpi.h>\n#include "transport_part.h"\n',
    "src/transport/grpc/grpc_part.h":
        "#pragma once\n#include <grpcpp/grpcpp.h>\n#include <wire.pb.h>\n",
    "src/exchange/exchange_part.h":
        '#pragma once\n#include "base_part.h"\n#include "codec_part.h"\n#include "wire_part.h"\n',
    "src/communicator/communicator_part.h":
        '#pragma once\n#include "exchange_part.h"\n#include "codec_part.h"\n'
        '#include "wire_part.h"\n#include "transport_part.h"\n#include "in_process_part.h"\n'
        '#include "mpi_part.h"\n#include "grpc_part.h"\n',
    "trainer/models/trainer_part.h":
        '#pragma once\n#include <torch/torch.h>\n#include "tersewire/api.h"\n',
    "apps/bench/bench_part.h": '#pragma once\n#include "kernel_part.h"\n',
    "apps/train/apps_part.h":
        '#pragma once\n#include <CLI/CLI.hpp>\n#include "trainer/models/trainer_part.h"\n'
        '#include "tersewire/api.h"\n',
    "python/python_part.h":
        '#pragma once\n#include <pybind11/pybind11.h>\n#include "tersewire/api.h"\n',
    # Exempt from the table.
    "tests/tests_part.cpp": '#include <gtest/gtest.h>\n#include "kernel_part.h"\n',
    "fuzz/fuzz_part.cpp": '#include "codec_part.h"\n',
    # A user's project, names and all.
    "tests/install/consumer/api.h": "#include <whatever.h>\n",
}

# Written down a second time, by hand: which part each folder's part may include.
PARTS = {
    "base": '"base_part.h"', "kernels": '"kernel_part.h"', "codec": '"codec_part.h"',
    "wire": '"wire_part.h"', "transport": '"transport_part.h"', "in_process": '"in_process_part.h"',
    "mpi": '"mpi_part.h"', "grpc": '"grpc_part.h"', "exchange": '"exchange_part.h"',
    "communicator": '"communicator_part.h"',
}
ALLOWED = {
    "base": {"base"},
    "kernels": {"base", "kernels"},
    "codec": {"base", "kernels", "codec"},
    "wire": {"base", "wire"},
    "transport": {"base", "transport"},
    "in_process": {"base", "kernels", "transport", "in_process"},
    "mpi": {"base", "transport", "mpi"},
    "grpc": {"base", "transport", "grpc"},
    "exchange": {"base", "codec", "wire", "exchange"},
    "communicator": set(PARTS) - {"kernels"},
}
FOLDERS = {
    "base": "src/base", "kernels": "src/kernels", "codec": "src/codec", "wire": "src/wire",
    "transport": "src/transport", "in_process": "src/transport/in_process",
    "mpi": "src/transport/mpi", "grpc": "src/transport/grpc", "exchange": "src/exchange",
    "communicator": "src/communicator",
}
FOREIGN = {
    "<hwy/highway.h>": {"src/kernels"},
    "<torch/torch.h>": {"trainer/models"},
    "<ATen/ATen.h>": {"trainer/models"},
    "<mpi.h>": {"src/transport/mpi"},
    "<grpcpp/server.h>": {"src/transport/grpc"},
    "<pybind11/numpy.h>": {"python"},
    "<dlpack/dlpack.h>": {"python"},
    "<nlohmann/json.hpp>": {"trainer/data", "trainer/models", "apps/files"},
    "<zlib.h>": {"trainer/data"},
    "<boost/any.hpp>": set(),
    "<unheard_of.h>": set(),
}


class CheckIncludes(unittest.TestCase):
    def lines(self, changes):
        """What the check says of the sound tree with changes."""
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, changes)
            return list(MODULE.violations(root))

    def assert_sound(self, changes):
        self.assertEqual(self.lines(changes), [])

    def assert_caught(self, changes, place, word):
        """Exactly one violation, at `place` and with `word` in its sentence."""
        lines = self.lines(changes)
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(place + ": "), lines[0])
        self.assertIn(word, lines[0])

    def test_a_sound_tree_passes(self):
        self.assert_sound({})

    def test_every_pair_of_folders_within_src(self):
        for folder, where in FOLDERS.items():
            for other, part in PARTS.items():
                with self.subTest(folder=folder, includes=other):
                    path = f"{where}/extra.cpp"
                    change = {path: f"#include {part}\n"}
                    if other in ALLOWED[folder]:
                        self.assert_sound(change)
                    else:
                        self.assert_caught(change, f"{path}:1", "may not see")

    def test_outer_folders_see_the_installed_api_alone(self):
        for folder in ["include/tersewire", "trainer/loop", "apps/files", "python"]:
            path = f"{folder}/extra.h"
            for name in ["base_part.h", "src/base/base_part.h", "codec/codec_part.h"]:
                with self.subTest(folder=folder, includes=name):
                    self.assert_caught({path: f'#pragma once\n#include "{name}"\n'}, f"{path}:2",
                                       name)

    def test_trainer_sees_neither_apps_nor_bench_nor_python(self):
        for name in ["apps/train/apps_part.h", "apps/bench/bench_part.h", "python/python_part.h"]:
            with self.subTest(includes=name):
                self.assert_caught({"trainer/loop/extra.cpp": f'#include "{name}"\n'},
                                   "trainer/loop/extra.cpp:1", "may not see")

    def test_rooms_of_the_trainer_see_those_before_them(self):
        for room in ["settings", "files", "members", "chooser", "data"]:
            path = f"trainer/{room}/extra.cpp"
            with self.subTest(room=room):
                self.assert_caught({path: '#include "trainer/models/trainer_part.h"\n'}, f"{path}:1",
                                   "may not see")

    def test_rooms_of_the_program_see_those_below(self):
        for room in ["cli", "files", "data", "bench", "run", "inspect", "report"]:
            path = f"apps/{room}/extra.cpp"
            with self.subTest(room=room):
                self.assert_caught({path: '#include "apps/train/apps_part.h"\n'}, f"{path}:1",
                                   "may not see")
        self.assert_sound({"apps/compare/extra.cpp": '#include "apps/train/apps_part.h"\n'})
        self.assert_caught({"apps/extra.cpp": "\n"}, "apps/extra.cpp:1", "in no folder")

    def test_nobody_outside_sees_tests(self):
        self.assert_caught({"tests/support.h": "#pragma once\n",
                            "apps/cli/extra.cpp": '#include "tests/support.h"\n'},
                           "apps/cli/extra.cpp:1", "may not see")

    def test_headers_of_others_stay_in_their_folders(self):
        for header, allowed in FOREIGN.items():
            for folder in ["include/tersewire", *FOLDERS.values(), "trainer/data", "trainer/models",
                           "apps/files", "python"]:
                with self.subTest(header=header, folder=folder):
                    path = f"{folder}/extra.cpp"
                    change = {path: f"#include {header}\n"}
                    if folder in allowed:
                        self.assert_sound(change)
                    else:
                        self.assert_caught(change, f"{path}:1", header)

    def test_no_header_of_others_in_the_installed_api(self):
        for header in ["<fmt/format.h>", "<xxhash.h>", "<unistd.h>", "<hwy/base.h>"]:
            with self.subTest(header=header):
                self.assert_caught(
                    {"include/tersewire/extra.h": f"#pragma once\n#include {header}\n"},
                    "include/tersewire/extra.h:2", header)

    def test_ways_around_the_table(self):
        for text, word in [
                ('#include "../wire/wire_part.h"\n', "climbs"),
                ('#include "codec/codec_part.h"\n', "flat"),
                ('#include "nowhere.h"\n', "no file"),
                ('#include "tersewire/nowhere.h"\n', "no file"),
                ('#include "hwy/highway.h"\n', "flat"),
                ("#include <tersewire/api.h>\n", "in quotes"),
                ("#include HIDDEN\n", "hides"),
                ('  #  include   "wire_part.h"   // why not\n', "may not see"),
                ('/* one */ \n#include "wire_part.h" /* two */\n', "may not see")]:
            with self.subTest(text=text):
                line = text[:text.index("#")].count("\n") + 1
                self.assert_caught({"src/codec/extra.cpp": text}, f"src/codec/extra.cpp:{line}",
                                   word)

    def test_comments_include_nothing(self):
        self.assert_sound({"src/codec/extra.cpp":
                           '// #include "wire_part.h"\n/*\n#include "wire_part.h"\n*/\n'
                           'const char* text = "/*";\n#include "base_part.h"\n'})

    def test_names_are_unique(self):
        for path in ["src/wire/base_part.h", "tests/base_part.h", "apps/data/base_part.h"]:
            with self.subTest(path=path):
                first, second = sorted([path, "src/base/base_part.h"])
                lines = self.lines({path: "#pragma once\n"})
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(f"{second}:1: {first} has the same name", lines[0])

    def test_headers_have_pragma_once(self):
        for text in ["", "// #pragma once\n", "#ifndef GUARD\n#define GUARD\n#endif\n"]:
            for folder in ["src/wire", "include/tersewire", "tests", "fuzz", "bench"]:
                with self.subTest(text=text, folder=folder):
                    self.assert_caught({f"{folder}/extra.h": text}, f"{folder}/extra.h:1",
                                       "#pragma once")

    def test_headers_of_simd_targets_guard_themselves(self):
        guard = "#if defined(EXTRA_H) == defined(HWY_TARGET_TOGGLE)\n"
        self.assert_sound({"src/kernels/extra_inl.h": guard + "#endif\n"})

    def test_files_outside_the_table(self):
        for path in ["src/extra.cpp", "src/unheard_of/extra.cpp", "include/extra.cpp"]:
            with self.subTest(path=path):
                self.assert_caught({path: ""}, f"{path}:1", "no folder")
        self.assert_caught({"src/codec/extra.hpp": ""}, "src/codec/extra.hpp:1", "end in")

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(run_script(root)[0], 1, "an empty tree is no success")
            write_tree(root, {})
            self.assertEqual(run_script(root), (0, "", ""))
            write_tree(root, {"src/codec/extra.cpp": '\n#include "wire_part.h"\n'})
            self.assertEqual(
                run_script(root),
                (1, 'src/codec/extra.cpp:2: "wire_part.h" is in src/wire, which src/codec may not '
                    "see\n", ""))


def write_tree(root, changes):
    for name, text in {**SOUND, **changes}.items():
        path = pathlib.Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run_script(root):
    run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True,
                         check=False)
    return run.returncode, run.stdout, run.stderr


def load(path):
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("check_includes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    SCRIPT = sys.argv.pop(1)
    MODULE = load(SCRIPT)
    unittest.main()
