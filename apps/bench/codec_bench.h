// How fast codecs are, as ratios to memcpy of the same array on the same machine in the same run.
//
// Everything is timed in interleaved rounds (memcpy, the floor, encode, decode, decode_add in
// each), so that whatever else the machine does hits all alike; a row reports medians over its
// rounds. One thread's times are those of the processor, several threads' those on the clock.
// Encoders meet three inputs in rotation, and run until their payloads have stopped growing before
// anything is timed. It changes the SIMD target of the whole process while it runs: one caller, and
// nothing else that encodes or decodes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/communicator.h"

namespace tersewire::bench {

// How each codec is measured once.
struct CodecBenchVariant {
  std::string target;  // as force_simd_target() takes it
  std::size_t threads = 1;
};

struct CodecBenchConfig {
  std::vector<std::string> codecs;
  std::vector<CodecBenchVariant> variants;
  std::size_t rounds = 15;
  std::size_t warm_up_encodes = 150;  // for codecs with a residual
  // The array is encoded and decoded in parts of so many values, each with its encoder, and threads
  // take parts. Job::kWholeTensors: whole, and threads share it. At least 1.
  std::size_t part_values = Job::kDefaultPartValues;
};

// One codec under one variant. Ratios are times over the time of memcpy, which is always one
// thread's.
struct CodecBenchRow {
  std::string codec;
  std::string target;
  std::size_t threads = 1;
  std::size_t elems = 0;
  std::size_t part_values = Job::kWholeTensors;
  std::size_t rounds = 0;
  std::size_t warm_up_encodes = 0;
  double memcpy_gb_per_s = 0;  // 10^9 bytes of the array copied
  double encode_ratio = 0;     // residual included
  double decode_ratio = 0;
  std::optional<double> decode_add_ratio;  // a library that is no codec has none
  // The two passes that error accumulation cannot avoid, part by part, by as many threads.
  std::optional<double> floor_ratio;
  std::optional<double> encode_over_floor;
  double bits_per_value = 0;  // of payload
  // What decoding one encode without residual and lead leaves of `values`: the largest difference,
  // and the root of the mean square over that of the values.
  double max_error = 0;
  double relative_error = 0;
  // With several threads, how many times faster than with one: a loop that only computes, once in
  // a run, and encode.
  std::optional<double> compute_scaling;
  std::optional<double> encode_scaling;
};

// Runs all variants of all codecs over inputs made of `values`, which must be finite and not none.
// Throws kInvalidArgument for a codec or target that does not exist.
// Memory: about 17 bytes a value beside `values`, more for codecs that do not compress.
std::vector<CodecBenchRow> bench_codecs(const CodecBenchConfig& config,
                                        std::span<const float> values);

// The same for the libraries of peers.h, one thread each.
std::vector<CodecBenchRow> bench_peers(std::size_t rounds, std::span<const float> values);

}  // namespace tersewire::bench
