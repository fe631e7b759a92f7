// tersewire encode: an array becomes a .tw file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/cli/command.h"
#include "apps/cli/defaults.h"
#include "apps/files/file_pairs.h"
#include "tersewire/thread_pool.h"

namespace tersewire::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tersewire encode gradient.npy gradient.tw
  tersewire encode --codec 3lc:s=1.75 gradient.npy gradient.tw
  tersewire encode --codec 3lc --state residual.tw step1.npy step1.tw   what step1.tw does not say
  tersewire encode --codec 3lc --state residual.tw step2.npy step2.tw   goes into step2.tw
  tersewire encode --out-dir encoded gradients/*.npy
  tersewire decode gradient.tw - | tersewire encode --codec int8 - again.tw
Arrays are float32 or float64 .npy files in C order. What there is for --codec: tersewire codecs)";

struct EncodeOptions {
  std::string codec = "3lc";
  std::string state;
  std::string gradient;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::size_t threads = 1;
  bool verbose = false;
  std::string input;
  std::string output;
};

// An empty tensor's residual is empty too, so another length is asked.
bool keeps_residual(const Codec& codec) { return !codec.make_encoder(1)->residual().empty(); }

void check_gradient(const EncodeOptions& options, const Codec& codec) {
  const bool needed = codec.text().find("bits-from=gradient") != std::string::npos;
  if (needed && options.gradient.empty()) {
    throw WrongUsage(fmt::format(
        "codec '{}' takes its bits from a gradient; name one with --gradient", options.codec));
  }
  if (options.gradient.empty()) return;
  refuse_same_file(options.gradient, options.output);
  if (!needed) {
    throw WrongUsage(
        fmt::format("codec '{}' has no use for a gradient; leave --gradient out", options.codec));
  }
}

void check(const EncodeOptions& options, const Codec& codec) {
  check_gradient(options, codec);
  if (options.state.empty()) return;
  refuse_same_file(options.input, options.state);
  refuse_same_file(options.output, options.state);
  if (!options.gradient.empty()) refuse_same_file(options.gradient, options.state);
  if (!keeps_residual(codec)) {
    throw WrongUsage(fmt::format("codec '{}' keeps no residual; leave --state out", options.codec));
  }
  std::error_code none;
  const auto status = std::filesystem::status(options.state, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw WrongUsage(options.state + " cannot be a state because it is not a file; name a file");
  }
}

void load_state(ByteView bytes, const std::vector<std::uint64_t>& shape,
                std::span<float> residual) {
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  const Message message = parse_message(bytes);
  if (message.header.kind != MessageKind::kState) {
    refuse("it is not a state; name the file that an earlier encode --state wrote");
  }
  const Frame& frame = message.frames.front();
  if (frame.description->dims != shape) {
    refuse(fmt::format(
        "it is the state of an array of shape ({}), and this one's is ({}); use a state "
        "for each tensor",
        fmt::join(frame.description->dims, ", "), fmt::join(shape, ", ")));
  }
  decode(frame.codec, frame.payload, residual);
  const auto bad =
      std::ranges::find_if(residual, [](float value) { return !std::isfinite(value); });
  if (bad != residual.end()) {
    refuse(fmt::format("value {} of the residual is not finite; delete the file to start afresh",
                       bad - residual.begin()));
  }
}

Bytes message_of(MessageKind kind, const Frame& frame) {
  MessageWriter writer({.kind = kind, .sender = 0, .step = 0});
  writer.add(frame);
  return writer.take();
}

Encoded encode_array(const Array& array, Encoder& encoder, const EncodeOptions& options,
                     Bytes& out) {
  std::optional<ThreadPool> pool;
  if (options.threads > 1) pool.emplace(options.threads);
  ThreadPool* threads = pool ? &*pool : nullptr;
  return array.element_type == ElementType::kFloat64
             ? encoder.encode_f64(array.doubles, options.step, out, threads)
             : encoder.encode(array.floats, options.step, out, threads);
}

Bytes encoded_message(const Array& array, Encoder& encoder, const EncodeOptions& options) {
  Bytes payload;
  const Encoded encoded = encode_array(array, encoder, options, payload);
  return message_of(MessageKind::kFile,
                    {.tensor = 0,
                     .codec = encoded.codec,
                     .not_finite = encoded.not_finite,
                     .description = Description{array.element_type, array.shape},
                     .payload = payload});
}

Bytes state_message(const Array& array, Encoder& encoder) {
  return message_of(MessageKind::kState,
                    {.tensor = 0,
                     .codec = CodecId::kFp32,
                     .not_finite = false,
                     .description = Description{ElementType::kFloat32, array.shape},
                     .payload = std::as_bytes(encoder.residual())});
}

// Both files are on the disk before the first gets its name: where there is no room, neither
// appears, and what the encoder took from its residual is not lost.
void write_outputs(const EncodeOptions& options, ByteView message, ByteView state_bytes) {
  std::optional<NewFile> state;
  if (!options.state.empty()) {
    state.emplace(options.state);
    state->write(state_bytes);
    state->finish();
  }
  NewFile output(options.output);
  output.write(message);
  output.finish();
  output.publish();
  if (!state) return;
  try {
    state->publish();
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{}; {} is new but the state is still the old one, so delete {} and "
                            "encode again",
                            error.what(), options.output, options.output));
  }
}

void run_encode(const EncodeOptions& options) {
  const auto codec = codec_argument(options.codec);
  check(options, *codec);
  const Array array = load_npy(options.input);
  const auto encoder = with_file(
      options.input, [&] { return codec->make_encoder(array.elems(), {.seed = options.seed}); });
  if (!options.gradient.empty()) {
    const Floats gradient = load_npy_floats(options.gradient);
    with_file(options.gradient, [&] { encoder->observe_gradient(gradient); });
  }
  if (!options.state.empty()) {
    if (const auto bytes = read_file_if_exists(options.state)) {
      with_file(options.state, [&] { load_state(*bytes, array.shape, encoder->residual()); });
    }
  }
  const Bytes message =
      with_file(options.input, [&] { return encoded_message(array, *encoder, options); });
  Bytes state;
  if (!options.state.empty()) {
    state = with_file(options.state, [&] { return state_message(array, *encoder); });
  }
  write_outputs(options, message, state);
  if (!options.verbose) return;
  const std::size_t elem_bytes =
      array.element_type == ElementType::kFloat64 ? sizeof(double) : sizeof(float);
  const auto bytes = static_cast<double>(array.elems() * elem_bytes);
  complain(fmt::format("{} -> {}: {} values, {:.1f}x smaller\n", shown(options.input),
                       options.output, array.elems(), bytes / static_cast<double>(message.size())));
}

void run_encode(EncodeOptions options, const std::vector<FilePair>& pairs) {
  if (pairs.size() > 1 && !(options.state.empty() && options.gradient.empty())) {
    throw WrongUsage("a --state and a --gradient are one array's; encode one at a time with them");
  }
  for (const auto& [input, output] : pairs) {
    options.input = input;
    options.output = output;
    run_encode(options);
  }
}

}  // namespace

void add_encode_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("encode", "Encode an array (.npy) into a .tw file");
  command->footer(kExamples);
  auto options = std::make_shared<EncodeOptions>();
  command->add_option("--codec", options->codec, "The codec and its parameters")
      ->capture_default_str();
  command->add_option("--state", options->state,
                      "File that holds the residual: read where it exists, written afterwards");
  command->add_option(
      "--gradient", options->gradient,
      "For oland-raj:bits-from=gradient: the gradient by the array's values (.npy)");
  command->add_option("--seed", options->seed, "For stochastic codecs: what they draw from")
      ->capture_default_str();
  command->add_option("--step", options->step, "For stochastic codecs: another for each encoding")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; the file does not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMaxThreads));
  command->add_flag("-v,--verbose", options->verbose, "Say what became of each array");
  const auto files = std::make_shared<FilePairs>(*command, ".npy", ".tw");
  command->callback([options, files, command] {
    apply_defaults(*command);
    run_encode(*options, files->pairs());
  });
}

}  // namespace tersewire::apps
