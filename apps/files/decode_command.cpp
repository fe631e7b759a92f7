// tersewire decode: a .tw file becomes an array.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/cli/command.h"
#include "apps/cli/defaults.h"
#include "apps/files/file_pairs.h"
#include "apps/files/npy_file.h"
#include "tersewire/thread_pool.h"

namespace tersewire::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tersewire decode gradient.tw back.npy
  tersewire decode --out-dir decoded encoded/*.tw
  tersewire decode - - < gradient.tw > back.npy
The array has the shape and the type (float32 or float64) of the one that was encoded.)";

struct DecodeOptions {
  std::size_t threads = 1;
  bool verbose = false;
  std::string input;
  std::string output;
};

// A few bytes can stand for 2^40 values. A machine that promises more memory than it has would only
// find out in the middle.
void check_memory(std::size_t bytes) {
  const auto pages = static_cast<std::size_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  const auto page_bytes = static_cast<std::size_t>(std::max(::sysconf(_SC_PAGESIZE), 0L));
  if (pages > 0 && bytes / page_bytes > pages) throw std::bad_alloc();
}

// Checked whole before memory is taken for it: `elem_bytes` for each value.
template <typename Values>
Values decoded_values(const Frame& frame, const auto& decode_into, std::size_t elem_bytes,
                      std::size_t threads) {
  const std::size_t elems = frame.description->elems();
  check_payload(frame.codec, frame.payload, elems);
  check_memory(elems * elem_bytes);
  Values values(elems);
  std::optional<ThreadPool> pool;
  if (threads > 1) pool.emplace(threads);
  decode_into(frame.codec, frame.payload, values, pool ? &*pool : nullptr);
  return values;
}

void write_npy(const std::string& path, const Description& description, ByteView values) {
  NewFile file(path);
  file.write(npy_header(description.element_type, description.dims));
  file.write(values);
  file.finish();
  file.publish();
}

Message parse_tw_file(ByteView bytes) {
  Message message = parse_message(bytes);
  if (message.header.kind != MessageKind::kFile) {
    throw Error(ErrorCode::kInvalidArgument,
                "it is a message of another kind than a .tw file; look at it with 'tersewire "
                "inspect'");
  }
  return message;
}

void run_decode(const DecodeOptions& options) {
  const Bytes bytes = read_file(options.input);
  const Message message = with_file(options.input, [&] { return parse_tw_file(bytes); });
  const Frame& frame = message.frames.front();
  const Description& description = *frame.description;
  if (description.element_type == ElementType::kFloat64) {
    // Most codecs decode to floats first.
    constexpr std::size_t kElemBytes = sizeof(double) + sizeof(float);
    const auto values = with_file(options.input, [&] {
      return decoded_values<Doubles>(frame, decode_f64, kElemBytes, options.threads);
    });
    write_npy(options.output, description, std::as_bytes(std::span(values)));
  } else {
    const auto values = with_file(options.input, [&] {
      return decoded_values<Floats>(frame, decode, sizeof(float), options.threads);
    });
    write_npy(options.output, description, std::as_bytes(std::span(values)));
  }
  if (!options.verbose) return;
  complain(fmt::format("{} -> {}: {} values\n", shown(options.input), options.output,
                       description.elems()));
}

}  // namespace

void add_decode_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("decode", "Decode a .tw file into an array (.npy)");
  command->footer(kExamples);
  auto options = std::make_shared<DecodeOptions>();
  command->add_option("--threads", options->threads, "Threads; the values do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMaxThreads));
  command->add_flag("-v,--verbose", options->verbose, "Say what became of each file");
  const auto files = std::make_shared<FilePairs>(*command, ".tw", ".npy");
  command->callback([options, files, command] {
    apply_defaults(*command);
    for (const auto& [input, output] : files->pairs()) {
      options->input = input;
      options->output = output;
      run_decode(*options);
    }
  });
}

}  // namespace tersewire::apps
