#!/usr/bin/env python3
"""Makes the README's pictures: trains a few designs on the embedded images, makes a report of them,
and takes the top of its page from headless Chromium, in light and dark.

    make_pictures.py PATH_TO_TERSEWIRE [DIRECTORY]

Writes report-light.png and report-dark.png to DIRECTORY (docs/pictures unless said). Takes a few
minutes.
"""

import base64
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import browser

DESIGNS = ("fp32", "int8", "stoch3", "3lc:s=1.00", "3lc:s=1.75")
STEPS = 1000
WIDTH = 1100
# The last figure that a picture shows.
LAST = "figure-accuracy-over-time"


def train(program, codec, directory):
    subprocess.run([program, "train", "--codec", codec, "--steps", str(STEPS),
                    "--observe-steps", str(STEPS // 10), "--out", directory],
                   check=True, stdout=subprocess.DEVNULL)
    return directory


def picture(chromium, page, dark):
    opened = chromium.open(page.as_uri(), width=WIDTH, dark=dark)
    opened.send("Emulation.setScrollbarsHidden", hidden=True)
    opened.settle()
    bottom = opened.run(f"document.getElementById('{LAST}').getBoundingClientRect().bottom")
    opened.resize(WIDTH, int(bottom) + 18)
    opened.settle()
    return base64.b64decode(opened.send("Page.captureScreenshot", format="png")["data"])


def main():
    if len(sys.argv) not in (2, 3) or not browser.executable():
        sys.exit(__doc__.strip() if browser.executable() else "install the package chromium first")
    program = pathlib.Path(sys.argv[1]).resolve()
    root = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else root / "docs" / "pictures"
    with tempfile.TemporaryDirectory() as work:
        runs = [train(program, codec, f"{work}/{i}") for i, codec in enumerate(DESIGNS)]
        page = pathlib.Path(work) / "report.html"
        subprocess.run([program, "report", "--out", page, *runs], check=True)
        with browser.Browser() as chromium:
            for name, dark in (("light", False), ("dark", True)):
                (target / f"report-{name}.png").write_bytes(picture(chromium, page, dark))


if __name__ == "__main__":
    main()
