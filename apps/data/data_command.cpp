// tersewire data get: the data sets that examples and recipes use.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/output.h"
#include "apps/cli/progress_line.h"
#include "apps/data/data_get.h"

namespace tersewire::apps {
namespace {

constexpr const char* kDataExamples = R"(Examples:
  tersewire data get mnist                          4 files, 11.6 MB, into mnist/
  tersewire data get cifar10 --to data/cifar10      6 files, 184 MB (another 170 MB while unpacking)
  tersewire data get tinyshakespeare                1 file, 1.1 MB
  tersewire data get mnist --url http://localhost:8000/mnist   from another mirror

Every download is checked against its SHA-256, whatever the mirror. Run the same command again to
continue an interrupted one.)";

struct GetFlags {
  std::string name;
  std::string directory;
  std::string url;
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const DataSet& set : known_data_sets()) all.push_back(set.name);
  return all;
}

DataSet chosen_set(const GetFlags& flags) {
  DataSet set = *std::ranges::find(known_data_sets(), flags.name, &DataSet::name);
  if (!flags.url.empty()) set.url = flags.url;
  while (set.url.ends_with('/')) set.url.pop_back();
  return set;
}

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Told how many bytes are there, of which the first ones may have been before it was made.
class DownloadProgress {
 public:
  explicit DownloadProgress(std::uint64_t total) : total_(total), line_(total) {}

  void show(std::uint64_t bytes, const std::string& file) {
    const auto now = std::chrono::steady_clock::now();
    // Where a download goes on, or starts over, what was there before says nothing of the speed.
    if (file != file_ || bytes < start_bytes_) {
      file_ = file;
      start_bytes_ = bytes;
      start_ = now;
    }
    if (!line_.is_due(bytes)) return;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds > 0 ? megabytes(bytes - start_bytes_) / seconds : 0;
    std::string text =
        fmt::format("{:.1f} of {:.1f} MB  {}", megabytes(bytes), megabytes(total_), file);
    if (rate > 0) {
      text +=
          fmt::format("  {:.1f} MB/s  {} left", rate, clock_text(megabytes(total_ - bytes) / rate));
    }
    line_.show(bytes, text);
  }
  void finish() { line_.finish(); }

 private:
  std::uint64_t total_;
  ProgressLine line_;
  std::string file_;
  std::uint64_t start_bytes_ = 0;
  std::chrono::steady_clock::time_point start_{};
};

void run_get(const GetFlags& flags) {
  const DataSet set = chosen_set(flags);
  const std::string directory = flags.directory.empty() ? set.name : flags.directory;
  DownloadProgress progress(set.bytes());
  std::string kept;
  get_data_set(set, directory,
               {.on_kept = [&](const std::string& path) { kept += path + " is here already\n"; },
                .on_progress = [&](std::uint64_t bytes,
                                   const std::string& file) { progress.show(bytes, file); }});
  progress.finish();
  print(fmt::format("{}{} is in {}; next: tersewire train {} --data {}\n", kept, set.name,
                    directory, set.train, directory));
}

}  // namespace

void add_data_command(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Fetch data sets");
  data->require_subcommand(1);
  data->footer(kDataExamples);
  CLI::App* get = data->add_subcommand("get", "Download a data set and check its SHA-256");
  get->footer(kDataExamples);
  auto flags = std::make_shared<GetFlags>();
  get->add_option("NAME", flags->name, "Data set")->required()->check(CLI::IsMember(names()));
  get->add_option("--to", flags->directory, "Directory for it (default: NAME)");
  get->add_option("--url", flags->url, "Address of the directory of another mirror")
      ->check([](const std::string& url) {
        return url.starts_with("http://") || url.starts_with("https://")
                   ? ""
                   : "must begin with http:// or https://";
      });
  get->callback([flags] { run_get(*flags); });
}

}  // namespace tersewire::apps
