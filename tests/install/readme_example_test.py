#!/usr/bin/env python3
"""Compiles and runs the first C++ example of a README against an installed tersewire.

usage: readme_example_test.py --readme README.md --prefix PREFIX --work DIR --compiler CXX
                              [--cmake CMAKE]

The example is the first block that begins with ```cpp, and must be a whole program: it has to
build with warnings as errors and to exit with 0.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.22)
project(readme_example LANGUAGES CXX)
find_package(tersewire 0.2 REQUIRED)
add_executable(readme_example readme_example.cpp)
target_compile_options(readme_example PRIVATE -Wall -Wextra -Werror)
target_link_libraries(readme_example PRIVATE tersewire::tersewire)
"""


def first_example(readme):
    """The first ```cpp block's text, and the line that it begins on."""
    text = readme.read_text(encoding="utf-8")
    match = re.search(r"^```cpp[ \t]*\n(.*?)^```[ \t]*$", text, re.MULTILINE | re.DOTALL)
    if not match:
        sys.exit(f"{readme} has no ```cpp block")
    if not re.search(r"\bint\s+main\s*\(", match.group(1)):
        sys.exit(f"{readme}: the first ```cpp block has no main(); show a whole program")
    return match.group(1), text.count("\n", 0, match.start(1)) + 1


def run(what, *command):
    print(f"-- {what}", flush=True)
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        sys.exit(f"{what} failed with {status}: {' '.join(map(str, command))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readme", type=pathlib.Path, required=True)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--cmake", default="cmake")
    arguments = parser.parse_args()

    example, line = first_example(arguments.readme)
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    # Errors name the README's own lines.
    source = f'#line {line} "{arguments.readme.resolve()}"\n{example}'
    (arguments.work / "readme_example.cpp").write_text(source, encoding="utf-8")
    (arguments.work / "CMakeLists.txt").write_text(CMAKE_LISTS, encoding="utf-8")
    build = arguments.work / "build"
    run("configure", arguments.cmake, "-S", arguments.work, "-B", build,
        f"-DCMAKE_PREFIX_PATH={arguments.prefix.resolve()}", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_CXX_COMPILER={arguments.compiler}")
    run("build", arguments.cmake, "--build", build)
    run("run", build / "readme_example")


if __name__ == "__main__":
    main()
