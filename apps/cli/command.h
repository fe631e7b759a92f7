// What the commands of the program share: wrong usage, files, output. One thread.
//
// A command registers itself with add_NAME_command(); its callback does the work and throws where
// it fails. main() turns exceptions into one sentence on stderr and an exit code.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/message.h"

namespace CLI {
class App;
}

namespace tersewire::apps {

void add_encode_command(CLI::App& app);
void add_decode_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_codecs_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_bench_exchange_command(CLI::App& bench);
void add_report_command(CLI::App& app);
void add_nic_command(CLI::App& app);

// Those that need libtorch: what they do is in the program tersewire-train, and in `tersewire` a
// call of it (train_program.cpp).
void add_train_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_probe_command(CLI::App& app);
inline constexpr const char* kTrainSummary =
    "Train a network with several workers, all traffic compressed, and show what it saved";
inline constexpr const char* kCompareSummary =
    "Train the same network with several designs, and show what each saves and costs";

inline constexpr std::size_t kMaxThreads = 256;

// Thrown for arguments that make no sense: the program ends with 2 instead of 1.
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown where rank 0 of the same job says what failed, and ends with the exit code of that: this
// process ends with 0 and without a word. A launcher stops all others at the first exit code but 0,
// perhaps before rank 0 has said its sentence.
class ToldElsewhere : public std::exception {};

// Thrown where nobody reads standard output any more: the program ends as others do then, without a
// word.
class ReaderGone : public std::exception {};

// --exchange TEXT, --servers N|colocated, --backup-workers N, --local-steps K, --raw-from-all,
// --part-values N|whole and --bucket-bytes N, as Job takes them.
void add_exchange_options(CLI::App& command, std::string& exchange, std::optional<int>& servers,
                          int& backup_workers, int& local_steps, bool& raw_from_all,
                          std::size_t& part_values, std::optional<std::size_t>& bucket_bytes);

// --servers N|colocated alone, as Job takes it.
void add_servers_option(CLI::App& command, std::optional<int>& servers);

// --part-values alone, of what the option cuts ("tensors", "a tensor").
void add_part_values_option(CLI::App& command, std::size_t& part_values, std::string_view what,
                            std::string_view one);

// How many values a part has: in JSON a number, or "whole".
nlohmann::json part_values_json(std::size_t part_values);

// Bits per second of a rate as lab/netlab takes them: 10mbit, 1gbit, 2.5gbit. Throws WrongUsage.
double rate_argument(const std::string& text);

// What the library calls an invalid argument came from the command line.
template <typename Task>
auto as_usage(Task&& task) {
  try {
    return task();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) throw WrongUsage(error.what());
    throw;
  }
}

// Of a job of several processes: whether that of rank 0 fails with the same sentence, and says it.
bool told_by_rank_0(const std::exception& failure);

// The codec that an argument names. Throws WrongUsage with the library's sentence.
std::shared_ptr<const Codec> codec_argument(const std::string& text);

// In the place of a file's name: standard input, or standard output.
inline constexpr std::string_view kStandardStream = "-";

// A file's name as sentences have it.
std::string shown(const std::string& path);

// Throws WrongUsage where two paths are one file: writing one would destroy the other.
void refuse_same_file(const std::string& first, const std::string& second);

// Runs `task`, which works on the file's contents; what it throws is thrown on with the file's
// name, where it has none yet: what fails to read the file says it.
template <typename Task>
auto with_file(const std::string& path, Task&& task) {
  try {
    return std::forward<Task>(task)();
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(shown(path) + " cannot be read")) throw;
    throw Error(error.code(), fmt::format("{}: {}", shown(path), error.what()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted,
                path + ": there is not enough memory for its array; use a machine with more");
  }
}

// Throws an Error that says that `path` cannot be `done` ("read", "written"), why (an errno), and
// what to do.
[[noreturn]] void fail_file(const std::string& path, const char* done, int error);

// The whole of a regular file, a pipe or, for -, standard input. Throws an Error that names it and
// says what to do.
Bytes read_file(const std::string& path);
// The same; nothing where it does not exist.
std::optional<Bytes> read_file_if_exists(const std::string& path);

// The values of an .npy file; f8 is rounded to f32. Throws as well where one is too large for that.
Floats load_npy_floats(const std::string& path);

// A file that appears under its name complete or not at all: written next to it, where the file
// system can without a name so that nothing is left of it if the program is killed, then renamed.
// What is no regular file (a pipe, a device) is written directly. Every function throws an Error
// that names the file.
//
// For - it is standard output, written directly. Of a link the target is written, whether it is
// there yet or not.
class NewFile {
 public:
  explicit NewFile(std::string path);
  // Removes what was not published.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(ByteView bytes);
  // Brings what was written to the disk: what can fail for lack of room has failed after this.
  void finish();
  // Puts the finished file in its place, over what was there.
  void publish();

 private:
  void open_standard_output();
  void open_temporary();
  // Gives the file a name next to its own that no other has, by `make`, which fails with EEXIST
  // where one has it.
  template <typename Make>
  void name_temporary(const Make& make);

  std::string path_;       // as the user named it
  std::string target_;     // with symbolic links followed
  std::string temporary_;  // its name until then; empty where it has none (yet, or any more)
  bool replaces_ = true;   // false where it is written directly
  unsigned mode_ = 0666;
  int descriptor_ = -1;
};

// Whether a NewFile has this name until it is published. One of a process that was killed stays.
bool is_temporary_file(std::string_view name);

// The whole of a NewFile.
void write_new_file(const std::string& path, ByteView bytes);

// JSON for people (indent 2) or on one line (-1); what is not UTF-8, as a path may be, is replaced.
std::string json_text(const nlohmann::json& json, int indent = 2);

// What a file holds, as text.
std::string string_of(const Bytes& bytes);

// What a file holds; is_discarded() where that is no JSON.
nlohmann::json parse_json(ByteView bytes);

// Writes to stdout. Throws where that fails (a full disk behind it), and ReaderGone.
void print(std::string_view text);

// Writes to stderr. What nobody can read is no reason to fail.
void complain(std::string_view text) noexcept;

// The same for what need not be said, unless be_quiet() has been called (--quiet).
void note(std::string_view text) noexcept;
void be_quiet() noexcept;

}  // namespace tersewire::apps
