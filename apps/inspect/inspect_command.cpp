// tersewire inspect: what a file or directory of the program's holds, for people and for scripts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/output.h"
#include "apps/files/input_stream.h"
#include "apps/files/read_file.h"
#include "apps/inspect/inspection.h"
#include "apps/run/run_record.h"
#include "tersewire/tw_file.h"
#include "trainer/files/message_json.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInspectExamples = R"(Examples:
  tersewire inspect gradient.tw
  tersewire inspect gradient.tw --json | jq .bits_per_value
  tersewire inspect runs/lenet-20260102-030405
  tersewire inspect long/checkpoints/step-100
  tersewire inspect long/model.safetensors
Any message is accepted: a .tw file, a state, or what an application captured. Header, checksum and
every payload whose number of values is known are verified; damage is reported, with exit code 1.
Damaged files of a directory are reported with the rest.)";

bool begins_as_json(ByteView bytes) { return !bytes.empty() && bytes.front() == std::byte{'{'}; }

Inspection inspect_tw_file(ByteSource& file, bool with_frames) {
  Json json = trainer::tw_file_json(file, with_frames);
  std::string text = lines_of(json, "");
  return {std::move(json), std::move(text)};
}

Inspection inspect_message(ByteView bytes) {
  Json json = trainer::message_json(bytes);
  std::string text = lines_of(json, "");
  std::size_t i = 0;
  for (const Json& frame : json["frames"]) {
    text += fmt::format("frame {}\n{}", i++, lines_of(frame, "  "));
  }
  return {std::move(json), std::move(text)};
}

Inspection inspect_file(const std::string& path, bool as_json) {
  constexpr std::size_t kHeadBytes = 4;
  InputStream file(path);
  return with_tw_file(path, kUseAnotherCopy, [&] {
    if (begins_as_tw_file(file.peek(kHeadBytes))) return inspect_tw_file(file, as_json);
    const Bytes bytes = file.read_rest();
    if (looks_like_tensor_file(bytes)) return inspect_tensor_file(bytes);
    if (begins_as_json(bytes)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "this is text, not a message; read it, or inspect the directory that it is in");
    }
    return inspect_message(bytes);
  });
}

Inspection inspect_directory(const fs::path& path) {
  check_may_enter(path);
  if (looks_like_checkpoint(path)) return inspect_checkpoint(path);
  if (looks_like_comparison(path)) return inspect_comparison(path);
  if (is_run(path)) return inspect_run(path);
  throw Error(ErrorCode::kNotFound,
              fmt::format("{} is not a run, checkpoint or comparison; name one (RUN, "
                          "RUN/checkpoints/step-N), or a file",
                          path.string()));
}

void run_inspect(const std::string& path, bool as_json) {
  std::error_code error;
  const Inspection inspection =
      fs::is_directory(path, error) ? inspect_directory(path) : inspect_file(path, as_json);
  print(as_json ? json_text(inspection.json) + "\n" : inspection.text);
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Verify a file, checkpoint or run and show its contents");
  command->footer(kInspectExamples);
  auto path = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON");
  command
      ->add_option("PATH", *path,
                   "A .tw or .safetensors file (- for standard input), a run, a checkpoint or a "
                   "comparison")
      ->required();
  command->callback([path, as_json] { run_inspect(*path, *as_json); });
}

}  // namespace tersewire::apps
