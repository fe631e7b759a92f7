// tersewire bench: what the library costs, measured.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/bench/codec_bench.h"
#include "apps/bench/gradient_source.h"
#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/files/read_file.h"
#include "tersewire/counted.h"
#include "tersewire/simd.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBenchExamples = R"(Examples:
  tersewire bench codecs
  tersewire bench codecs --codec 3lc:s=1.9 --elems 1000000 --threads 1,2,4
  tersewire bench codecs --threads 1 --target best --peers
  tersewire bench codecs --codec 3lc --input gradient.npy --target all --json > bench.json
Times are ratios to memcpy of the same array by one thread in the same rounds, medians over rounds;
floor is two passes over each part, the least that an encoder with a residual can do. Encoders meet
three inputs in rotation, and encode --warm-up times before anything is timed: payloads are tiny at
first and grow until as much leaves the residual as enters it. Errors are those of one encode by a
fresh encoder: the largest, and the root mean square relative to that of the values.)";

constexpr std::size_t kMaxElems = std::size_t{1} << 34;

struct BenchOptions {
  std::vector<std::string> codecs;
  std::size_t elems = 16'000'000;
  std::string input;
  std::vector<std::size_t> threads;
  std::vector<std::string> targets;
  std::size_t rounds = 15;
  std::size_t warm_up_encodes = 150;
  std::size_t part_values = Job::kDefaultPartValues;
  bool peers = false;
  bool json = false;
};

// Every codec as it is by default, then 3lc as it is on slow links and in its paper.
std::vector<std::string> default_codecs() {
  std::vector<std::string> codecs;
  for (const CodecDescription& codec : codec_descriptions()) codecs.push_back(codec.name);
  codecs.insert(codecs.end(), {"3lc:s=1.75", "3lc:mode=paper", "3lc:mode=paper,s=1.75"});
  return codecs;
}

// The targets that a list names, each once, best first.
std::vector<std::string> chosen_targets(const std::vector<std::string>& named) {
  const std::vector<std::string> all = simd_targets();
  std::set<std::string> chosen;
  for (const std::string& name : named) {
    if (name == "all") {
      chosen.insert(all.begin(), all.end());
    } else if (name == "best") {
      chosen.insert(all.front());
    } else if (std::ranges::find(all, name) != all.end()) {
      chosen.insert(name);
    } else {
      throw WrongUsage(fmt::format("unknown SIMD target '{}' on this machine; use best, all, {}",
                                   name, fmt::join(all, ", ")));
    }
  }
  std::vector<std::string> in_order;
  std::ranges::copy_if(all, std::back_inserter(in_order),
                       [&](const std::string& name) { return chosen.contains(name); });
  return in_order;
}

// One thread and all cores.
std::vector<std::size_t> default_threads() {
  const std::size_t cores = std::min(allowed_cores(), kMaxThreads);
  return cores > 1 ? std::vector<std::size_t>{1, cores} : std::vector<std::size_t>{1};
}

std::vector<bench::CodecBenchVariant> variants_of(const BenchOptions& options) {
  const auto threads = options.threads.empty() ? default_threads() : options.threads;
  std::vector<bench::CodecBenchVariant> variants;
  for (const std::size_t count : threads) {
    // Every target by every number of threads would take long and tell little.
    const std::string fallback = count == 1 ? "all" : "best";
    const auto targets =
        chosen_targets(options.targets.empty() ? std::vector{fallback} : options.targets);
    for (const std::string& target : targets) variants.push_back({target, count});
  }
  return variants;
}

Floats input_values(const BenchOptions& options) {
  if (options.input.empty()) return bench::heavy_tailed_values(options.elems);
  Floats values = load_npy_floats(options.input);
  if (values.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                shown(options.input) + ": it has no values to measure with; name a larger array");
  }
  return values;
}

Json rows_json(const std::vector<bench::CodecBenchRow>& rows) {
  Json list = Json::array();
  for (const bench::CodecBenchRow& row : rows) {
    list.push_back({{"codec", row.codec},
                    {"target", row.target},
                    {"threads", row.threads},
                    {"elems", row.elems},
                    {"part_values",
                     setting_json(trainer::PartValuesSetting<const std::size_t>{row.part_values})},
                    {"memcpy_gb_per_s", row.memcpy_gb_per_s},
                    {"encode_ratio", row.encode_ratio},
                    {"decode_ratio", row.decode_ratio},
                    {"decode_add_ratio", optional_json(row.decode_add_ratio)},
                    {"floor_ratio", optional_json(row.floor_ratio)},
                    {"encode_over_floor", optional_json(row.encode_over_floor)},
                    {"bits_per_value", row.bits_per_value},
                    {"max_error", row.max_error},
                    {"relative_error", row.relative_error},
                    {"compute_scaling", optional_json(row.compute_scaling)},
                    {"encode_scaling", optional_json(row.encode_scaling)},
                    {"rounds", row.rounds},
                    {"warm_up_encodes", row.warm_up_encodes}});
  }
  return list;
}

std::string rows_text(const std::vector<bench::CodecBenchRow>& rows) {
  std::size_t width = 5;
  for (const bench::CodecBenchRow& row : rows) width = std::max(width, row.codec.size());
  std::string text = fmt::format(
      "{}, three inputs in rotation; medians of {}; times as ratios to memcpy by one thread\n",
      counted(rows.front().elems, "value"), counted(rows.front().rounds, "round"));
  text += fmt::format(
      "{:<{}}  {:<8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9} {:>10} {:>9} {:>9} {:>11} {:>14}\n",
      "codec", width, "target", "threads", "encode", "decode", "dec.add", "floor", "enc/floor",
      "bits/value", "max err", "rel. err", "memcpy GB/s", "encode scaling");
  for (const bench::CodecBenchRow& row : rows) {
    text += fmt::format(
        "{:<{}}  {:<8} {:>7} {:>7.2f} {:>7.2f} {:>7} {:>7} {:>9} {:>10.3f} {:>9.2g} {:>9.3f} "
        "{:>11.2f} {:>14}\n",
        row.codec, width, row.target, row.threads, row.encode_ratio, row.decode_ratio,
        two_decimals(row.decode_add_ratio), two_decimals(row.floor_ratio),
        two_decimals(row.encode_over_floor), row.bits_per_value, row.max_error, row.relative_error,
        row.memcpy_gb_per_s, two_decimals(row.encode_scaling));
  }
  std::set<std::size_t> told;
  for (const bench::CodecBenchRow& row : rows) {
    if (!row.compute_scaling || !told.insert(row.threads).second) continue;
    text += fmt::format("a loop that only computes is {:.2f} times faster with {} threads here\n",
                        *row.compute_scaling, row.threads);
  }
  return text;
}

std::vector<bench::CodecBenchRow> peer_rows(const BenchOptions& options, const Floats& values) {
  auto rows = bench::bench_peers(options.rounds, values);
  if (rows.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this program was built without the libraries that --peers measures; install "
                "libsnappy-dev, liblz4-dev, libzstd-dev and libzfp-dev and build it again");
  }
  return rows;
}

void run_bench_codecs(const BenchOptions& options) {
  const auto codecs = options.codecs.empty() ? default_codecs() : options.codecs;
  for (const std::string& codec : codecs) codec_argument(codec);
  if (options.part_values == 0) {
    throw WrongUsage("--part-values is 0; give a number of values, or whole");
  }
  const bench::CodecBenchConfig config{.codecs = codecs,
                                       .variants = variants_of(options),
                                       .rounds = options.rounds,
                                       .warm_up_encodes = options.warm_up_encodes,
                                       .part_values = options.part_values};
  const Floats values = input_values(options);
  const auto peers =
      options.peers ? peer_rows(options, values) : std::vector<bench::CodecBenchRow>();
  auto rows = bench::bench_codecs(config, values);
  rows.insert(rows.end(), peers.begin(), peers.end());
  print(options.json ? json_text(rows_json(rows)) + "\n" : rows_text(rows));
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure the library's speed on this machine");
  bench->require_subcommand(1);
  bench->footer("Examples:\n  tersewire bench codecs\n  tersewire bench exchange --model lenet");
  add_bench_exchange_command(*bench);
  CLI::App* command = bench->add_subcommand(
      "codecs", "Encode, decode and decode_add against memcpy, by SIMD target and threads");
  command->footer(kBenchExamples);
  auto options = std::make_shared<BenchOptions>();
  command->add_option("--codec", options->codecs, "Codecs to measure [all, by default]");
  CLI::Option* elems = command->add_option("--elems", options->elems, "Values in the array")
                           ->capture_default_str()
                           ->check(CLI::Range(std::size_t{1}, kMaxElems));
  command->add_option("--input", options->input, "Use this .npy file's values")->excludes(elems);
  command->add_option("--threads", options->threads, "Numbers of threads [1 and all cores]")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, kMaxThreads));
  command
      ->add_option("--target", options->targets,
                   "SIMD targets, best or all [all with one thread, best with several]")
      ->delimiter(',');
  command->add_option("--rounds", options->rounds, "Rounds to take medians of")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  command->add_option("--warm-up", options->warm_up_encodes, "Encodes before anything is timed")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{0}, std::size_t{100000}));
  add_part_values_option(*command, options->part_values,
                         "Encode in parts of this many values, or whole");
  command->add_flag("--peers", options->peers,
                    "Also measure snappy, lz4, zstd and zfp, with one thread");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { run_bench_codecs(*options); });
}

}  // namespace tersewire::apps
