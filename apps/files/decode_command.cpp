// tersewire decode: a .tw file becomes an array.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/files/file_pairs.h"
#include "apps/files/input_stream.h"
#include "apps/files/new_file.h"
#include "apps/files/npy_file.h"
#include "apps/files/read_file.h"
#include "tersewire/counted.h"
#include "tersewire/thread_pool.h"
#include "tersewire/tw_file.h"

namespace tersewire::apps {
namespace {

constexpr const char* kDecodeExamples = R"(Examples:
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

// One file that becomes an array, part by part.
class ArrayDecoder {
 public:
  explicit ArrayDecoder(const DecodeOptions& options)
      : options_(options), input_(options.input), reader_(input_) {
    if (options.threads > 1) pool_.emplace(options.threads);
  }

  void run() {
    while (const auto message =
               with_tw_file(options_.input, kUseAnotherCopy, [&] { return reader_.next(); })) {
      if (message->header.kind != MessageKind::kFile) {
        throw Error(ErrorCode::kInvalidArgument,
                    shown(options_.input) +
                        ": it is a state, not an encoded array; show it with 'tersewire inspect'");
      }
      decode_part(message->frames.front());
    }
    output_->finish();
    output_->publish();
    if (!options_.verbose) return;
    complain(fmt::format("{} -> {}: {}\n", shown(options_.input), options_.output,
                         counted(elems_, "value")));
  }

 private:
  void decode_part(const Frame& frame) {
    const Description& description = *frame.description;
    if (description.element_type == ElementType::kFloat64) {
      // Most codecs decode to floats first.
      decode_into(doubles_, decode_f64, sizeof(double) + sizeof(float), frame);
      write(description, std::as_bytes(std::span(doubles_)));
    } else {
      decode_into(floats_, decode, sizeof(float), frame);
      write(description, std::as_bytes(std::span(floats_)));
    }
    elems_ += *frame.elems();
  }

  // The payload is checked whole before memory is taken for it: `elem_bytes` for each value.
  template <typename Values>
  void decode_into(Values& values, const auto& decode_payload, std::size_t elem_bytes,
                   const Frame& frame) {
    with_tw_file(options_.input, kUseAnotherCopy, [&] {
      try {
        const std::size_t elems = *frame.elems();
        check_payload(frame.codec, frame.payload, elems);
        check_memory(elems * elem_bytes);
        values.resize(elems);
        decode_payload(frame.codec, frame.payload, values, pool_ ? &*pool_ : nullptr);
      } catch (const Error& error) {
        if (frame.description->part_values == 0) throw;
        throw Error(error.code(), fmt::format("part {} of {}: {}", frame.part,
                                              frame.description->parts(), error.what()));
      }
    });
  }

  // Nothing is opened, and nothing written to a pipe, for a file that is not one.
  void write(const Description& description, ByteView values) {
    if (!output_) {
      output_.emplace(options_.output);
      output_->write(npy_header(description.element_type, description.dims));
    }
    output_->write(values);
  }

  const DecodeOptions& options_;
  InputStream input_;
  TwReader reader_;
  std::optional<ThreadPool> pool_;
  std::optional<NewFile> output_;
  Floats floats_;
  Doubles doubles_;
  std::size_t elems_ = 0;
};

}  // namespace

void add_decode_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("decode", "Decode a .tw file into an array (.npy)");
  command->footer(kDecodeExamples);
  auto options = std::make_shared<DecodeOptions>();
  command->add_option("--threads", options->threads, "Threads; the values do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMaxThreads));
  command->add_flag("-v,--verbose", options->verbose, "Print a line per file");
  const auto files = std::make_shared<FilePairs>(*command, ".tw", ".npy");
  command->callback([options, files, command] {
    apply_defaults(*command);
    for (const auto& [input, output] : files->pairs()) {
      options->input = input;
      options->output = output;
      ArrayDecoder(*options).run();
    }
  });
}

}  // namespace tersewire::apps
