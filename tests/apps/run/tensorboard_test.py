#!/usr/bin/env python3
"""What `tersewire train --tensorboard` writes, read by protobuf's own parser.

usage: tensorboard_test.py PATH_TO_TERSEWIRE PATH_TO_TELEMETRY_DRIVER

Set PROTOC to the protobuf compiler's path. The messages below were written from TensorFlow's field
numbers, apart from those of the program, and records and checksums are read by code of this file.
"""

import glob
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import program
from program import ProgramTest, run

DRIVER = None

# Repeated numbers are packed, as proto3 has it.
EVENTS = """
syntax = "proto3";
message Records { repeated Event record = 1; }
message Event {
  double wall_time = 1;
  int64 step = 2;
  oneof what {
    string file_version = 3;
    bytes graph_def = 4;
    Summary summary = 5;
    SessionLog session_log = 7;
  }
}
message SessionLog {
  enum Status { STATUS_UNSPECIFIED = 0; START = 1; STOP = 2; CHECKPOINT = 3; }
  Status status = 1;
  string checkpoint_path = 2;
  string msg = 3;
}
message Summary {
  repeated Value value = 1;
  message Value {
    string node_name = 7;
    string tag = 1;
    Metadata metadata = 9;
    oneof value {
      float simple_value = 2;
      bytes obsolete_old_style_histogram = 3;
      Histogram histo = 5;
      Tensor tensor = 8;
    }
  }
}
message Metadata {
  message Plugin { string plugin_name = 1; bytes content = 2; }
  Plugin plugin_data = 1;
  string display_name = 2;
  string summary_description = 3;
}
message Histogram {
  double min = 1;
  double max = 2;
  double num = 3;
  double sum = 4;
  double sum_squares = 5;
  repeated double bucket_limit = 6;
  repeated double bucket = 7;
}
message Shape {
  message Dim { int64 size = 1; string name = 2; }
  repeated Dim dim = 2;
  bool unknown_rank = 3;
}
message Tensor {
  enum Type { DT_INVALID = 0; DT_FLOAT = 1; DT_DOUBLE = 2; DT_INT32 = 3; DT_STRING = 7; }
  Type dtype = 1;
  Shape tensor_shape = 2;
  int32 version_number = 3;
  bytes tensor_content = 4;
  repeated float float_val = 5;
  repeated double double_val = 6;
  repeated bytes string_val = 8;
}
"""


def table_entry(byte):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


TABLE = [table_entry(byte) for byte in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records_in(path):
    """The records of a TFRecord file, every checksum of it held against its bytes."""
    with open(path, "rb") as file:
        data = file.read()
    records = []
    while data:
        length, check = struct.unpack_from("<QI", data)
        assert check == masked(crc32c(data[:8])), "checksum of a length"
        record, (check,) = data[12 : 12 + length], struct.unpack_from("<I", data, 12 + length)
        assert check == masked(crc32c(record)), "checksum of a record"
        records.append(record)
        data = data[16 + length :]
    return records


def varint(number):
    more, number = number & 0x7F, number >> 7
    return bytes([more | 0x80]) + varint(number) if number else bytes([more])


def value_of(text):
    """Of a field in protobuf's text format."""
    if text.startswith('"'):
        return text[1:-1].encode().decode("unicode_escape")
    if re.fullmatch(r"[A-Z_]+", text):
        return text
    return float(text)


def message_in(lines):
    """{field: [value, ...]} of a message in protobuf's text format, up to the end of its lines."""
    message = {}
    for line in lines:
        line = line.strip()
        if line == "}":
            return message
        if line.endswith(" {"):
            message.setdefault(line[:-2], []).append(message_in(lines))
        else:
            name, text = line.split(": ", 1)
            message.setdefault(name, []).append(value_of(text))
    return message


def events_in(path):
    wrapped = b"".join(b"\x0a" + varint(len(record)) + record for record in records_in(path))
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "events.proto"), "w", encoding="ascii") as file:
            file.write(EVENTS)
        decoded = subprocess.run(
            [os.environ["PROTOC"], "--decode=Records", "-I", directory, "events.proto"],
            input=wrapped, stdout=subprocess.PIPE, check=True, timeout=120,
        )  # fmt: skip
    # A field that the messages do not have shows as its number.
    assert not re.search(rb"^\s*\d", decoded.stdout, re.MULTILINE), decoded.stdout
    return message_in(iter(decoded.stdout.decode().splitlines()))["record"]


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def step_of(event):
    return int(event.get("step", [0])[0])


def values_in(events, field):
    """{tag: {step: value}} of those that have the field."""
    found = {}
    for event in events:
        for summary in event.get("summary", []):
            for value in summary["value"]:
                if field in value:
                    steps = found.setdefault(value["tag"][0], {})
                    assert step_of(event) not in steps, "twice"
                    steps[step_of(event)] = value[field][0]
    return found


def scalars_in(events):
    # Printed with as many digits as tell one from others.
    return {
        tag: {step: as_float(value) for step, value in steps.items()}
        for tag, steps in values_in(events, "simple_value").items()
    }


def histograms_in(events):
    return values_in(events, "histo")


class TensorboardTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.events = self.path("not/yet/there")
        self.out = self.path("run")

    def files(self):
        return sorted(glob.glob(os.path.join(self.events, "*")))

    def train(self, *arguments):
        finished = run("train", "--json", "--tensorboard", self.events, *arguments)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return json.loads(finished.stdout)

    def drive(self, *arguments, **options):
        finished = run("tensorboard", self.events, *arguments, program=DRIVER, **options)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return finished

    def test_the_checksum_of_this_file(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)

    def test_scalars(self):
        self.drive()
        found = scalars_in(events_in(self.files()[0]))
        expected = {
            "loss": {1: 2.5},
            "accuracy/batch": {1: 0.25, 2: 0.25},
            "accuracy/test": {2: 0.625},
            "seconds/step": {1: 0.75, 2: 0.75},
            "seconds/codec": {1: 0.375, 2: 0.375},
            "seconds/wait": {1: 0.0625, 2: 0.0625},
            "bytes/push": {1: 1000, 2: 1000},
            "bytes/pull": {1: 0, 2: 3000},
            "bits_per_value/push": {1: 2, 2: 2},
            "bits_per_value/pull": {2: 6},
            "not_finite_tensors": {1: 0, 2: 1},
            "observed_bits_per_value/conv": {2: 2},
            "observed_bits_per_value/bias": {2: 32},
            "relative_error/conv": {2: 0.3125},
            "relative_error/bias": {2: 0},
            "residual_norm/conv": {2: as_float(12**0.5)},
            "residual_norm/bias": {2: 0},
            "residual_norm/all": {2: as_float(12**0.5)},
        }
        last_loss = found["loss"].pop(2)
        self.assertNotEqual(last_loss, last_loss)  # NaN
        self.assertEqual(found, expected)

    def test_histograms(self):
        self.drive()
        found = {}
        for tag, steps in histograms_in(events_in(self.files()[0])).items():
            ((step, found[tag]),) = steps.items()
            self.assertEqual(step, 2)
        # Where nothing but zeros was seen there are no bins to show.
        self.assertEqual(
            sorted(found), ["decoded/b", "decoded/c1.weight", "gradient/b", "gradient/c1.weight"]
        )
        for tag, factor, limit in (("gradient/c1.weight", 1, 1.26), ("decoded/b", 2, 0.5)):
            histogram = found[tag]
            # Of 63 bins the first 5 and the last 2 hold nothing: a reader takes the edges for the
            # least and greatest values.
            counts = [factor * i for i in range(5, 61)]
            width = 2 * limit / 63
            self.assertEqual(histogram["bucket"], counts)
            for i, right in enumerate(histogram["bucket_limit"], 6):
                self.assertAlmostEqual(right, i * width - limit, delta=1e-12)
            self.assertAlmostEqual(histogram["min"][0], 5 * width - limit, delta=1e-12)
            self.assertAlmostEqual(histogram["max"][0], 61 * width - limit, delta=1e-12)
            self.assertEqual(histogram["num"], [sum(counts)])
            middles = [(i + 0.5) * width - limit for i in range(5, 61)]
            total = sum(count * middle for count, middle in zip(counts, middles))
            squares = sum(count * middle**2 for count, middle in zip(counts, middles))
            self.assertAlmostEqual(histogram["sum"][0], total, delta=1e-9)
            self.assertAlmostEqual(histogram["sum_squares"][0], squares, delta=1e-9)

    def test_configuration(self):
        self.drive()
        (value,) = events_in(self.files()[0])[1]["summary"][0]["value"]
        self.assertEqual(value["tag"], ["configuration/text_summary"])
        self.assertEqual(value["metadata"], [{"plugin_data": [{"plugin_name": ["text"]}]}])
        (tensor,) = value["tensor"]
        self.assertEqual(tensor["dtype"], ["DT_STRING"])
        self.assertEqual(tensor["tensor_shape"], [{"dim": [{"size": [1]}]}])
        lines = tensor["string_val"][0].splitlines()
        self.assertTrue(all(line.startswith("    ") for line in lines), lines)
        self.assertEqual(json.loads("\n".join(lines)), {"policy": "*:3lc\n|a|"})

    def test_a_run(self):
        summary = self.train("--model", "small-mlp", "--workers", 2, "--steps", 5, "--batch", 4,
                             "--observe-steps", 2, "--out", self.out)  # fmt: skip
        (path,) = self.files()
        self.assertRegex(os.path.basename(path), r"\Aevents\.out\.tfevents\.\d{10}\.\S+\Z")
        events = events_in(path)
        self.assertEqual(events[0]["file_version"], ["brain.Event:2"])
        self.assertFalse(any("session_log" in event for event in events))
        text = events[1]["summary"][0]["value"][0]["tensor"][0]["string_val"][0]
        with open(os.path.join(self.out, "config.json"), encoding="utf-8") as file:
            self.assertEqual(json.loads(text), json.load(file))
        with open(os.path.join(self.out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        found, histograms = scalars_in(events), histograms_in(events)
        before = dict.fromkeys(lines[0], 0)
        for line in lines:
            step = line["step"]
            self.assertEqual(found["loss"][step], as_float(line["loss"]))
            self.assertEqual(found["accuracy/batch"][step], as_float(line["accuracy"]))
            for tag, key in (("bytes/push", "push_bytes"), ("bytes/pull", "pull_bytes"),
                             ("not_finite_tensors", "not_finite_tensors")):  # fmt: skip
                self.assertEqual(found[tag][step], line[key] - before[key])
            for tag, key in (("seconds/step", "seconds"), ("seconds/codec", "codec_seconds"),
                             ("seconds/wait", "wait_seconds")):  # fmt: skip
                self.assertAlmostEqual(found[tag][step], line[key] - before[key], delta=1e-6)
            bits = 8 * (line["push_bytes"] - before["push_bytes"]) / summary["values"]
            self.assertAlmostEqual(found["bits_per_value/push"][step], bits, delta=1e-6)
            before = line
        self.assertEqual(sorted(found["loss"]), [1, 2, 3, 4, 5])
        with open(os.path.join(self.out, "observations.jsonl"), encoding="utf-8") as file:
            observations = {line["step"]: line for line in map(json.loads, file)}
        self.assertEqual(sorted(observations), [1, 3, 5])
        for step, line in observations.items():
            self.assertEqual(found["accuracy/test"][step], as_float(line["test_accuracy"]))
            for kind in ("dense", "bias"):
                tensors = [tensor for tensor in line["tensors"] if tensor["kind"] == kind]
                values = sum(tensor["values"] for tensor in tensors)
                bits = 8 * sum(tensor["encoded_bytes"] for tensor in tensors) / values
                norm = sum(t["values"] * t["residual_rms"] ** 2 for t in tensors) ** 0.5
                error = sum(t["values"] * t["relative_error"] for t in tensors) / values
                self.assertAlmostEqual(found[f"observed_bits_per_value/{kind}"][step], bits, 5)
                self.assertAlmostEqual(found[f"residual_norm/{kind}"][step], norm, 5)
                self.assertAlmostEqual(found[f"relative_error/{kind}"][step], error, 5)
            for tensor in line["tensors"]:
                for which in ("gradient", "decoded"):
                    counts = sum(tensor["histogram"][which])
                    histogram = histograms[f"{which}/{tensor['name']}"][step]
                    self.assertEqual(histogram["num"], [counts])

    def test_a_run_that_goes_on(self):
        self.train("--model", "small-mlp", "--workers", 2, "--steps", 5, "--batch", 4, "--out", self.out,
                   "--checkpoint-steps", 2)  # fmt: skip
        (first,) = self.files()
        with open(first, "rb") as file:
            before = file.read()
        os.remove(os.path.join(self.out, "summary.json"))  # as if it had been cut off in step 5
        self.train("--resume", self.out)
        self.assertEqual(len(self.files()), 2)
        with open(first, "rb") as file:
            self.assertEqual(file.read(), before)
        events = events_in(self.files()[1])
        self.assertEqual(events[0]["file_version"], ["brain.Event:2"])
        self.assertEqual((step_of(events[1]), events[1]["session_log"]), (5, [{"status": ["START"]}]))
        losses = scalars_in(events)["loss"]
        self.assertEqual(losses, {5: scalars_in(events_in(first))["loss"][5]})

    def test_a_place_that_cannot_be_written(self):
        self.write("not", b"")
        refused = run("train", "--tensorboard", self.events, "--out", self.out)
        self.assertEqual((refused.returncode, refused.stderr.count(b"\n")), (1, 1), refused.stderr)
        self.assertIn(self.events.encode(), refused.stderr)
        # Nothing keeps the next try from the same --out.
        self.assertFalse(os.path.exists(self.out))

    def test_a_run_that_begins_again(self):
        for events in (self.out, os.path.join(self.out, "events")):
            self.events = events
            job = ["--model", "small-mlp", "--workers", 2, "--steps", 2, "--batch", 4, "--out", self.out]
            self.train(*job)
            os.remove(os.path.join(self.out, "summary.json"))  # cut off before its first checkpoint
            self.train(*job, "--resume-or-start")
            found = glob.glob(os.path.join(events, "events.out.tfevents.*"))
            self.assertEqual(len(found), 1)
            shutil.rmtree(self.out)
        # What no run has written stays.
        self.events = self.out
        os.makedirs(self.out)
        foreign = os.path.join(self.out, "events.out.tfevents.1.host.2.3")
        with open(foreign, "wb"):
            pass
        refused = run("train", *job, "--resume-or-start", "--tensorboard", self.out)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn(b"does not belong to the run", refused.stderr)
        self.assertTrue(os.path.exists(foreign))

    def test_in_the_directory_of_the_run(self):
        self.events = os.path.join(self.out, "events")
        self.train("--model", "small-mlp", "--workers", 2, "--steps", 2, "--batch", 4, "--out", self.out)
        self.assertEqual(len(self.files()), 1)

    def test_no_more_room_does_not_end_the_run(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))

        finished = self.drive(preexec_fn=limit)
        self.assertEqual(finished.stderr.count(b"\n"), 1, finished.stderr)
        self.assertIn(b"continues without TensorBoard's file", finished.stderr)


if __name__ == "__main__":
    DRIVER = sys.argv.pop(2)
    program.main(__doc__)
