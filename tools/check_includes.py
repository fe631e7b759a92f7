#!/usr/bin/env python3
"""Holds every #include against the table of folders (docs/architecture.md).

usage: check_includes.py [ROOT]

Prints one line a violation and exits with 1 where there is any. tests/, fuzz/ and bench/ may
include what they like; their file names count all the same.
"""

import pathlib
import re
import sys

# The trainer's rooms, each of which sees those before it.
TRAINER = ["trainer/settings", "trainer/files", "trainer/members", "trainer/chooser", "trainer/data",
           "trainer/models", "trainer/loop"]

# Which project folders a folder sees, beside itself. A file belongs to the longest folder that
# holds it, so src/transport means the files directly in it.
SEES = {
    "include/tersewire": [],
    "src/base": ["include/tersewire"],
    "src/kernels": ["include/tersewire", "src/base"],
    # What several codecs' payloads share.
    "src/codec/payload": ["include/tersewire", "src/base", "src/kernels"],
    "src/codec": ["include/tersewire", "src/base", "src/kernels", "src/codec/payload"],
    "src/wire": ["include/tersewire", "src/base"],
    "src/transport": ["include/tersewire", "src/base"],
    # Modelled links draw from the same generator as codecs.
    "src/transport/in_process": [
        "include/tersewire", "src/base", "src/kernels", "src/transport",
    ],
    "src/transport/mpi": ["include/tersewire", "src/base", "src/transport"],
    "src/transport/tcp": ["include/tersewire", "src/base", "src/transport"],
    "src/transport/grpc": ["include/tersewire", "src/base", "src/transport"],
    # Of transports, an exchange knows the public interface alone.
    "src/exchange": ["include/tersewire", "src/base", "src/codec", "src/wire"],
    "src/communicator": [
        "include/tersewire", "src/base", "src/codec", "src/wire", "src/exchange", "src/transport",
        "src/transport/in_process", "src/transport/mpi", "src/transport/tcp", "src/transport/grpc",
    ],
    # What a step takes is what exchanges do, over links as the in-process transport models them.
    "src/predict": [
        "include/tersewire", "src/base", "src/codec", "src/wire", "src/exchange",
        "src/communicator", "src/transport/in_process",
    ],
    "nic": ["include/tersewire"],
    "trainer/settings": ["include/tersewire"],
    "trainer/files": ["include/tersewire", "trainer/settings"],
    "trainer/members": ["include/tersewire", "trainer/settings", "trainer/files"],
    "trainer/chooser": ["include/tersewire", "trainer/settings", "trainer/members"],
    "trainer/data": ["include/tersewire"],
    "trainer/models": ["include/tersewire", "trainer/data"],
    "trainer/loop": ["include/tersewire", *TRAINER],
    # The rooms of the program, from what all of them use to what uses most.
    "apps/cli": ["include/tersewire", "nic", *TRAINER],
    "apps/files": ["include/tersewire", "apps/cli"],
    "apps/hub": ["include/tersewire", "apps/cli", "apps/files", "apps/run"],
    "apps/data": ["include/tersewire", "apps/cli"],
    # The floor that codecs are held against is made of the library's own inner loops.
    "apps/bench": ["include/tersewire", "src/kernels", *TRAINER, "apps/cli", "apps/files"],
    "apps/run": ["include/tersewire", *TRAINER, "apps/cli", "apps/files"],
    "apps/inspect": ["include/tersewire", *TRAINER, "apps/cli", "apps/files", "apps/run"],
    "apps/report": ["include/tersewire", *TRAINER, "apps/cli", "apps/files", "apps/run"],
    "apps/predict": [
        "include/tersewire", *TRAINER, "apps/cli", "apps/files", "apps/bench", "apps/report",
    ],
    "apps/train": [
        "include/tersewire", *TRAINER, "apps/cli", "apps/files", "apps/data", "apps/run",
        "apps/predict",
    ],
    "apps/compare": [
        "include/tersewire", *TRAINER, "apps/cli", "apps/files", "apps/bench", "apps/run",
        "apps/train",
    ],
    "python": ["include/tersewire", *TRAINER],
}

# Headers of others, as regular expressions, and the folders that may include them, those inside
# included. Standard C++ headers (no dot, no slash) are for everyone; what is not named here is for
# nobody.
FOREIGN = {
    r"hwy/.*": ["src/kernels"],
    r"fmt/.*": ["src", "trainer", "apps", "python"],
    r"xxhash\.h": ["src/wire", "src/transport/grpc", "trainer", "apps"],
    r"(png|turbojpeg)\.h": ["trainer/data"],
    r"zlib\.h": ["trainer/data", "trainer/members"],
    r"(torch|ATen|c10|caffe2)/.*": ["trainer/models"],
    r"(pybind11|dlpack)/.*|Python\.h": ["python"],
    r"(mpi\.h|mpi/.*)": ["src/transport/mpi"],
    r"(absl|grpc|grpcpp|google/protobuf)/.*": ["src/transport/grpc"],
    r".*\.pb\.h": ["src/transport/grpc", "apps/run"],
    r"CLI/.*": ["apps"],
    r"nlohmann/.*": ["trainer", "apps"],
    r"openssl/.*": ["src/transport/grpc", "apps/data"],
    r"curl/.*|(archive|archive_entry)\.h": ["apps/data"],
    r"isa-l/.*|microhttpd\.h": ["apps/run"],
    r"(lz4|snappy|zfp|zstd)\.h": ["apps/bench"],
    r"xmmintrin\.h": ["src/base"],  # the floating point mode of x86
    r"libnetfilter_queue/.*|linux/net(filter|link)\.h": ["nic"],
    # POSIX and the C library beyond the standard.
    r"(dlfcn|fcntl|malloc|unistd|signal|spawn|poll|netdb|pthread|sched|time)\.h|"
    r"(sys|net|netinet|arpa)/[a-z]+\.h": ["src", "nic", "trainer", "apps", "python"],
}

# Folders whose files are looked at for their names only.
EXEMPT = ["bench", "fuzz", "tests"]
# A project of its own, as a user would write it: not even its names count.
IGNORED = ["tests/install/consumer"]

SUFFIXES = {".h", ".cpp"}
# Under these a file would escape the checks.
OTHER_SUFFIXES = {".c", ".cc", ".cxx", ".hh", ".hpp", ".hxx", ".inl", ".ipp"}
STANDARD = re.compile(r"[a-z_0-9]+")
# Comments and string literals, which may hold anything; a string after #include stays.
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[ \t]*$", re.MULTILINE)
# A header that Highway's files include once for each SIMD target guards itself so.
PER_TARGET_GUARD = re.compile(r"^#if .*defined\(HWY_TARGET_TOGGLE\)", re.MULTILINE)


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def folder_of(path):
    """The folder of the table that holds a file, or None."""
    holding = [folder for folder in SEES if inside(path, folder)]
    return max(holding, key=len, default=None)


def without_comments(text):
    """The text with comments blanked out, line breaks kept."""
    def blank(match):
        found = match.group()
        return found if found[0] in "\"'" else re.sub(r"[^\n]", " ", found)
    return COMMENT.sub(blank, text)


def sees(path):
    return SEES.get(folder_of(path), [])


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        tops = {folder.split("/")[0] for folder in SEES} | set(EXEMPT)
        found = sorted(
            path.relative_to(self.root).as_posix()
            for top in tops
            for path in (self.root / top).rglob("*")
            if path.suffix in SUFFIXES | OTHER_SUFFIXES and path.is_file())
        found = [f for f in found if not any(inside(f, i) for i in IGNORED)]
        self.files = [f for f in found if pathlib.PurePath(f).suffix in SUFFIXES]
        self.misnamed = [f for f in found if f not in self.files]
        self.by_name = {}
        for path in self.files:
            self.by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)

    def read(self, path):
        return without_comments((self.root / path).read_text(encoding="utf-8", errors="replace"))

    def resolve(self, includer, name):
        """The file of this tree that `includer` means by "name", or None."""
        if name.startswith("tersewire/"):
            candidates = ["include/" + name]
        elif "/" not in name and any(inside(f, "src") for f in [includer, *sees(includer)]):
            # Flat: a folder's own headers and those of the folders that it sees.
            candidates = [f for f in self.by_name.get(name, []) if inside(f, "src")]
        else:
            candidates = [name, includer.rsplit("/", 1)[0] + "/" + name]
        return next((c for c in candidates if c in self.files), None)


def check_foreign(folder, name):
    if STANDARD.fullmatch(name):
        return None
    if name.startswith("tersewire/"):
        return f"<{name}> is this project's own: write it in quotes"
    for pattern, folders in FOREIGN.items():
        if re.fullmatch(pattern, name):
            if any(inside(folder, allowed) for allowed in folders):
                return None
            return f"<{name}> may be included in {', '.join(folders)} only"
    return f"<{name}> is not in the table of tools/check_includes.py"


def check_own(tree, path, folder, name):
    if ".." in name.split("/"):
        return f'"{name}" climbs out of its folder'
    if inside(path, "src") and "/" in name and not name.startswith("tersewire/"):
        return f'"{name}" names a folder: includes within src are flat'
    found = tree.resolve(path, name)
    if found is None:
        return f'"{name}" is no file of this tree: write headers of others as <{name}>'
    target = folder_of(found) or found.split("/")[0]
    if target != folder and target not in SEES[folder]:
        return f'"{name}" is in {target}, which {folder} may not see'
    return None


def check_include(tree, path, folder, argument):
    foreign = re.fullmatch(r"<([^>]+)>", argument)
    own = re.fullmatch(r'"([^"]+)"', argument)
    if foreign:
        return check_foreign(folder, foreign.group(1))
    if own:
        return check_own(tree, path, folder, own.group(1))
    return f"#include {argument} hides what it includes"


def check_file(tree, path):
    """Yields (line, sentence) for each violation in one file."""
    folder = folder_of(path)
    if folder is None:
        yield 1, "is in no folder of the table of tools/check_includes.py"
        return
    text = tree.read(path)
    for match in INCLUDE.finditer(text):
        sentence = check_include(tree, path, folder, match.group(1))
        if sentence:
            yield text.count("\n", 0, match.start()) + 1, sentence


def violations(root):
    tree = Tree(root)
    if not tree.files:
        yield f"{root}: holds no source file of this project"
    for path in tree.misnamed:
        yield f"{path}:1: C++ files of this project end in .h or .cpp"
    for _, paths in sorted(tree.by_name.items()):
        for path in paths[1:]:
            yield f"{path}:1: {paths[0]} has the same name; file names are unique over the tree"
    for path in tree.files:
        if path.endswith(".h") and not guarded(tree.read(path)):
            yield f"{path}:1: has no #pragma once"
        if not any(inside(path, exempt) for exempt in EXEMPT):
            for line, sentence in check_file(tree, path):
                yield f"{path}:{line}: {sentence}"


def guarded(header):
    return PRAGMA_ONCE.search(header) or PER_TARGET_GUARD.search(header)


def main():
    if len(sys.argv) > 2 or "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__.strip())
        return 0 if len(sys.argv) == 2 else 2
    root = sys.argv[1] if len(sys.argv) == 2 else pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
