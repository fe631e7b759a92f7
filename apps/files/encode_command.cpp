// tersewire encode: an array becomes a .tw file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/files/file_pairs.h"
#include "apps/files/input_stream.h"
#include "apps/files/new_file.h"
#include "apps/files/npy_file.h"
#include "apps/files/one_array.h"
#include "apps/files/read_file.h"
#include "tersewire/communicator.h"
#include "tersewire/counted.h"
#include "tersewire/thread_pool.h"
#include "tersewire/tw_file.h"

namespace tersewire::apps {
namespace {

constexpr const char* kEncodeExamples = R"(Examples:
  tersewire encode gradient.npy gradient.tw
  tersewire encode --codec 3lc:s=1.75 gradient.npy gradient.tw
  tersewire encode --codec 3lc --state residual.tw step1.npy step1.tw   what step1.tw leaves out
  tersewire encode --codec 3lc --state residual.tw step2.npy step2.tw   is added to step2.tw
  tersewire encode --out-dir encoded gradients/*.npy
  tersewire decode gradient.tw - | tersewire encode --codec int8 - again.tw
Arrays are float32 or float64 .npy files in C order. Codecs: see tersewire codecs)";

constexpr std::string_view kStateAdvice =
    "use another copy of it or the release of tersewire that wrote it, or remove it to begin "
    "without a residual";

struct EncodeOptions {
  std::string codec = "3lc";
  std::string state;
  std::string gradient;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::size_t threads = 1;
  std::size_t part_values = Job::kDefaultPartValues;
  bool verbose = false;
  std::string input;
  std::string output;
};

void check_gradient(const EncodeOptions& options, const Codec& codec) {
  const bool needed = codec.needs_gradient();
  if (needed && options.gradient.empty()) {
    throw WrongUsage(fmt::format(
        "codec '{}' takes its bits from a gradient; name one with --gradient", options.codec));
  }
  if (options.gradient.empty()) return;
  refuse_same_file(options.gradient, options.output);
  if (options.gradient == kStandardStream && options.input == kStandardStream) {
    throw WrongUsage("array and gradient cannot both be standard input; name a file for one");
  }
  if (!needed) {
    throw WrongUsage(
        fmt::format("codec '{}' does not use a gradient; omit --gradient", options.codec));
  }
}

void check(const EncodeOptions& options, const Codec& codec) {
  if (options.part_values != Job::kWholeTensors &&
      (options.part_values == 0 || options.part_values % 4 != 0)) {
    throw WrongUsage(
        fmt::format("--part-values is {}; give a multiple of 4, or whole", options.part_values));
  }
  check_gradient(options, codec);
  if (codec.sends_differences()) {
    throw WrongUsage(fmt::format(
        "codec '{}' sends differences, which only an exchange adds up; omit ef=21", options.codec));
  }
  if (options.state.empty()) return;
  refuse_same_file(options.input, options.state);
  refuse_same_file(options.output, options.state);
  if (!options.gradient.empty()) refuse_same_file(options.gradient, options.state);
  if (!codec.keeps_residual()) {
    throw WrongUsage(fmt::format(
        "codec '{}' keeps no residual; omit --state, or give the codec ef=on if it takes it",
        options.codec));
  }
  if (options.state == kStandardStream) {
    throw WrongUsage(
        "a state is both read and written, so it cannot be standard input; name a file");
  }
  std::error_code none;
  const auto status = std::filesystem::status(options.state, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw WrongUsage(options.state + " cannot be a state because it is not a file; name a file");
  }
}

// An .npy file that is read part by part.
struct NpyFile {
  explicit NpyFile(const std::string& path)
      : stream(path), reader(with_file(path, [&] { return NpyReader(stream); })) {}

  InputStream stream;
  NpyReader reader;
};

// The residuals that an earlier encode --state left, whichever parts they were cut into.
class OldState {
 public:
  OldState(ByteSource& source, std::vector<std::uint64_t> shape)
      : reader_(source), shape_(std::move(shape)) {
    read_part();
  }

  // The next ones, which there are where all together are as many as the shape says.
  void read(std::span<float> residual) {
    while (!residual.empty()) {
      if (taken_ == part_.size()) read_part();
      const std::size_t count = std::min(residual.size(), part_.size() - taken_);
      std::ranges::copy(std::span(part_).subspan(taken_, count), residual.begin());
      taken_ += count;
      residual = residual.subspan(count);
    }
  }

  void expect_end() { reader_.next(); }

 private:
  [[noreturn]] static void refuse(const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, sentence);
  }

  void read_part() {
    const Message message = reader_.next().value();
    if (message.header.kind != MessageKind::kState) {
      refuse("it is not a state; name the file that an earlier encode --state wrote");
    }
    const Frame frame = message.frames.front();
    if (frame.description->dims != shape_) {
      refuse(fmt::format(
          "it is the state of an array of shape ({}), but this one's is ({}); use a state "
          "for each tensor",
          fmt::join(frame.description->dims, ", "), fmt::join(shape_, ", ")));
    }
    check_payload(frame.codec, frame.payload, *frame.elems());
    part_.resize(*frame.elems());
    decode(frame.codec, frame.payload, part_);
    const auto bad = std::ranges::find_if(part_, [](float value) { return !std::isfinite(value); });
    if (bad != part_.end()) {
      refuse(fmt::format("value {} of the residual is not finite; delete the file to start afresh",
                         before_ + static_cast<std::size_t>(bad - part_.begin())));
    }
    before_ += part_.size();
    taken_ = 0;
  }

  TwReader reader_;
  std::vector<std::uint64_t> shape_;
  Floats part_;
  std::size_t taken_ = 0;   // values of the part
  std::size_t before_ = 0;  // values of this and earlier parts
};

// One array that becomes a file, and perhaps a state, part by part.
class ArrayEncoder {
 public:
  ArrayEncoder(const EncodeOptions& options, const Codec& codec)
      : options_(options), codec_(codec), array_(options.input), output_(options.output) {
    const NpyHeader& header = array_.reader.header();
    if (header.elems > options.part_values) description_.part_values = options.part_values;
    description_.element_type = header.element_type;
    description_.dims = header.shape;
    if (options.threads > 1) pool_.emplace(options.threads);
    if (!options.gradient.empty()) open_gradient(header.elems);
    if (!options.state.empty()) open_states();
  }

  void run() {
    const std::size_t elems = array_.reader.header().elems;
    const std::uint64_t parts = description_.parts();
    for (std::uint64_t part = 0; part < parts; ++part) {
      const std::size_t first = part * description_.part_values;
      const std::size_t count = parts == 1 ? elems : std::min(options_.part_values, elems - first);
      encode_part(static_cast<std::uint32_t>(part), first, count);
    }
    with_file(options_.input, [&] { array_.reader.expect_end(); });
    if (gradient_) with_file(options_.gradient, [&] { gradient_->reader.expect_end(); });
    if (old_state_) with_state([&] { old_state_->expect_end(); });
    publish();
    if (options_.verbose) say_what_became();
  }

 private:
  void open_gradient(std::size_t elems) {
    gradient_.emplace(options_.gradient);
    const std::size_t values = gradient_->reader.header().elems;
    if (values == elems) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has {} values, but the array has {}; name the gradient with respect to it",
                    options_.gradient, values, elems));
  }

  void open_states() {
    old_stream_ = InputStream::if_exists(options_.state);
    if (old_stream_) {
      with_state([&] { old_state_.emplace(*old_stream_, description_.dims); });
    }
    new_state_.emplace(options_.state);
  }

  template <typename Task>
  void with_state(Task&& task) const {
    with_tw_file(options_.state, kStateAdvice, task);
  }

  // What is said of a part names it.
  template <typename Task>
  auto with_part(std::size_t first, Task&& task) const {
    return with_file(options_.input, [&] {
      try {
        return task();
      } catch (const Error& error) {
        if (description_.part_values == 0) throw;
        throw Error(error.code(), fmt::format("in the part of {} values from value {} on: {}",
                                              description_.part_values, first, error.what()));
      }
    });
  }

  void encode_part(std::uint32_t part, std::size_t first, std::size_t count) {
    with_file(options_.input, [&] { read_values(count); });
    const auto encoder = with_part(first, [&] {
      return codec_.make_encoder(count, {.seed = options_.seed, .first_elem = first});
    });
    if (gradient_) {
      with_file(options_.gradient, [&] {
        gradient_->reader.read(count, gradient_values_);
        encoder->observe_gradient(gradient_values_);
      });
    }
    if (old_state_) with_state([&] { old_state_->read(encoder->residual()); });
    payload_.clear();
    const Encoded encoded = with_part(first, [&] { return encode_values(*encoder); });
    bytes_ += write_part(output_, MessageKind::kFile,
                         {.tensor = 0,
                          .part = part,
                          .codec = encoded.codec,
                          .not_finite = encoded.not_finite,
                          .description = description_,
                          .payload = payload_});
    if (!new_state_) return;
    Description of_state = description_;
    of_state.element_type = ElementType::kFloat32;
    write_part(*new_state_, MessageKind::kState,
               {.tensor = 0,
                .part = part,
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = of_state,
                .payload = std::as_bytes(encoder->residual())});
  }

  void read_values(std::size_t count) {
    if (description_.element_type == ElementType::kFloat64) {
      array_.reader.read(count, doubles_);
    } else {
      array_.reader.read(count, floats_);
    }
  }

  Encoded encode_values(Encoder& encoder) {
    ThreadPool* threads = pool_ ? &*pool_ : nullptr;
    return description_.element_type == ElementType::kFloat64
               ? encoder.encode_f64(doubles_, options_.step, payload_, threads)
               : encoder.encode(floats_, options_.step, payload_, threads);
  }

  // Returns the message's length.
  std::size_t write_part(NewFile& file, MessageKind kind, const Frame& frame) {
    writer_.clear({.kind = kind, .sender = 0, .step = 0});
    with_file(options_.input, [&] { writer_.add(frame); });
    const ByteView message = writer_.finish();
    file.write(message);
    return message.size();
  }

  // Both files are on the disk before the first gets its name: where there is no room, neither
  // appears, and what the encoders took from their residuals is not lost.
  void publish() {
    if (new_state_) new_state_->finish();
    output_.finish();
    output_.publish();
    if (!new_state_) return;
    try {
      new_state_->publish();
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("{}; {} is new but the state is still the old one, so delete {} and "
                              "encode again",
                              error.what(), options_.output, options_.output));
    }
  }

  void say_what_became() const {
    const bool wide = description_.element_type == ElementType::kFloat64;
    const std::size_t elems = array_.reader.header().elems;
    const auto before = static_cast<double>(elems * (wide ? sizeof(double) : sizeof(float)));
    complain(fmt::format("{} -> {}: {}, {:.1f}x smaller\n", shown(options_.input), options_.output,
                         counted(elems, "value"), before / static_cast<double>(bytes_)));
  }

  const EncodeOptions& options_;
  const Codec& codec_;
  NpyFile array_;
  NewFile output_;
  Description description_;  // the array's, with how it is cut
  std::optional<NpyFile> gradient_;
  std::unique_ptr<InputStream> old_stream_;
  std::optional<OldState> old_state_;
  std::optional<NewFile> new_state_;
  std::optional<ThreadPool> pool_;
  Floats floats_;
  Doubles doubles_;
  Floats gradient_values_;
  Bytes payload_;
  MessageWriter writer_{{.kind = MessageKind::kFile, .sender = 0, .step = 0}};
  std::size_t bytes_ = 0;  // of the file
};

void run_encode(EncodeOptions options, const std::vector<FilePair>& pairs) {
  if (pairs.size() > 1 && !(options.state.empty() && options.gradient.empty())) {
    throw WrongUsage(
        "--state and --gradient are for one array; encode one array at a time with them");
  }
  const auto codec = codec_argument(options.codec);
  const auto used =
      options.state.empty() ? codec_argument(codec_for_one_array(options.codec)) : codec;
  for (const auto& [input, output] : pairs) {
    options.input = input;
    options.output = output;
    check(options, *codec);
    ArrayEncoder(options, *used).run();
  }
}

}  // namespace

void add_encode_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("encode", "Encode an array (.npy) into a .tw file");
  command->footer(kEncodeExamples);
  auto options = std::make_shared<EncodeOptions>();
  command->add_option("--codec", options->codec, "The codec and its parameters")
      ->capture_default_str();
  command->add_option(
      "--state", options->state,
      "File that holds the residual: read where it exists, written afterwards; without "
      "it the codec uses neither residual nor lead");
  command->add_option(
      "--gradient", options->gradient,
      "For oland-raj:bits-from=gradient: the gradient with respect to the array (.npy)");
  command->add_option("--seed", options->seed, "Random seed of stochastic codecs")
      ->capture_default_str();
  command
      ->add_option("--step", options->step,
                   "Step number for stochastic codecs; use a new one for each encoding")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; the file does not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMaxThreads));
  add_part_values_option(*command, options->part_values,
                         "Cut arrays into parts of at most this many values, each with its own "
                         "scale and residual; whole: one part per array");
  command->add_flag("-v,--verbose", options->verbose, "Print a line per array");
  const auto files = std::make_shared<FilePairs>(*command, ".npy", ".tw");
  command->callback([options, files, command] {
    apply_defaults(*command);
    run_encode(*options, files->pairs());
  });
}

}  // namespace tersewire::apps
