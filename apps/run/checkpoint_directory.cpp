#include "apps/run/checkpoint_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "apps/files/input_file.h"
#include "apps/files/new_file.h"
#include "apps/files/on_disk.h"
#include "apps/files/read_file.h"
#include "tersewire/setting_text.h"
#include "trainer/files/tensor_file.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDirectoryPrefix = "step-";
// The number of this format. The first, in which arrays are whole tensors, is read too.
constexpr const char* kVersion = "2";
constexpr const char* kFirstVersion = "1";
// When a node writes one, every other has written the one that is two before, and in a tree three
// (TrainHooks::on_checkpoint).
constexpr std::size_t kKept = 4;

// Facts of every file beside those of the trainer.
constexpr const char* kVersionFact = "tersewire_checkpoint";
constexpr const char* kMadeBy = "made_by";
constexpr const char* kRank = "rank";
constexpr const char* kNodes = "nodes";
constexpr const char* kStep = "step";
constexpr const char* kWorkers = "workers";
constexpr const char* kServers = "servers";
constexpr const char* kSettings = "settings";

// Without those in which the processes of a job may differ. Servers have a fact of their own,
// however their number was given.
Settings of_the_job(Settings settings) {
  settings.erase("link");
  settings.erase("servers");
  const trainer::TrainConfig config;
  trainer::visit_settings(config, [&](const trainer::Setting& setting, const auto& /*member*/) {
    if (setting.scope == trainer::SettingScope::kNode) settings.erase(setting.key);
  });
  return settings;
}

constexpr std::string_view kFilePrefix = "node-";
constexpr std::string_view kFileSuffix = ".safetensors";

std::string file_of(int rank) { return fmt::format("{}{}{}", kFilePrefix, rank, kFileSuffix); }

// The number in PREFIX12SUFFIX.
template <typename Number>
std::optional<Number> number_between(std::string_view name, std::string_view prefix,
                                     std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() < prefix.size() + suffix.size()) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  return parsed_number<Number>(name);
}

std::string text_in(const TensorFileIndex& file, const char* name) {
  const auto found = file.facts.find(name);
  if (found != file.facts.end()) return found->second;
  throw Error(
      ErrorCode::kDataLoss,
      fmt::format("it has no '{}', so it is not a checkpoint of this program; use another copy",
                  name));
}

template <typename Number>
Number number_in(const TensorFileIndex& file, const char* name) {
  const std::string text = text_in(file, name);
  if (const auto number = parsed_number<Number>(text)) return *number;
  throw Error(ErrorCode::kDataLoss,
              fmt::format("its '{}' is '{}', not a number; use another copy", name, text));
}

Settings settings_in(const TensorFileIndex& file) {
  Settings settings;
  const auto json = nlohmann::json::parse(text_in(file, kSettings), nullptr, false);
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) break;
    settings[name] = value.get<std::string>();
  }
  if (!json.is_object() || settings.size() != json.size()) {
    throw Error(ErrorCode::kDataLoss, "its settings are not an object of texts; use another copy");
  }
  return settings;
}

CheckpointJob job_in(const TensorFileIndex& file) {
  const std::string version = text_in(file, kVersionFact);
  if (version != kVersion && version != kFirstVersion) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the checkpoint is of version {}, made by {}, and this program reads "
                            "version {}; resume with the one that made it",
                            version, text_in(file, kMadeBy), kVersion));
  }
  CheckpointJob job{.nodes = number_in<int>(file, kNodes),
                    .workers = number_in<int>(file, kWorkers),
                    .servers = {},
                    .settings = settings_in(file)};
  if (file.facts.contains(kServers)) job.servers = number_in<int>(file, kServers);
  if (job.workers < 1 || job.nodes < job.workers) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("it cannot be a job of {} workers among {} nodes; use another copy",
                            job.workers, job.nodes));
  }
  return job;
}

trainer::StoredNode node_in(TensorFileIndex index, const std::string& path) {
  trainer::StoredNode node;
  node.rank = number_in<int>(index, kRank);
  node.step = number_in<std::uint64_t>(index, kStep);
  node.facts = std::move(index.facts);
  for (const auto& [name, place] : index.arrays) {
    // Opened each time: a job may have more nodes than a process may open files.
    node.arrays[name] = {
        .elems = place.elems,
        .read = [path, begin = place.begin](std::size_t first, std::span<float> values) {
          InputFile(path).read(begin + first * sizeof(float), std::as_writable_bytes(values));
        }};
  }
  return node;
}

TensorFileIndex index_of(const InputFile& file) {
  Bytes bytes;
  const PieceOfFile piece = [&](std::size_t begin, std::size_t count) -> ByteView {
    bytes.resize(count);
    file.read(begin, bytes);
    return bytes;
  };
  return index_tensor_file(file.size(), piece, true);
}

bool is_same_job(const CheckpointJob& a, const CheckpointJob& b) {
  return a.nodes == b.nodes && of_the_job(a.settings) == of_the_job(b.settings);
}

// Unlike remove_all() it does not stop where a file is gone already: several nodes may remove the
// directory at once. What cannot be removed now is tried again at the next checkpoint.
void remove_shared(const fs::path& directory) {
  std::error_code error;
  for (const fs::path& file : entries_in(directory, error)) fs::remove_all(file, error);
  fs::remove(directory, error);
}

}  // namespace

bool is_checkpoint_file(const TensorFile& file) { return file.facts.contains(kVersionFact); }

void check_is_of(const CheckpointFile& file, const fs::path& path, int rank, std::uint64_t step,
                 const CheckpointJob& job) {
  if (file.node.rank == rank && file.node.step == step && is_same_job(file.job, job)) return;
  throw Error(ErrorCode::kDataLoss, path.string() + ": " + kOfAnother);
}

CheckpointFile check_checkpoint_file(const fs::path& path) {
  const InputFile file(path.string());
  return with_file(path.string(), [&] {
    TensorFileIndex index = index_of(file);
    CheckpointJob job = job_in(index);
    std::string made_by = text_in(index, kMadeBy);
    trainer::StoredNode node = node_in(std::move(index), path.string());
    if (node.rank < 0 || node.rank >= job.nodes) {
      throw Error(
          ErrorCode::kDataLoss,
          fmt::format("it cannot be of node {} of {}; use another copy", node.rank, job.nodes));
    }
    return CheckpointFile{.job = std::move(job),
                          .made_by = std::move(made_by),
                          .bytes = file.size(),
                          .node = std::move(node)};
  });
}

std::map<int, fs::path> checkpoint_files(const fs::path& directory) {
  std::map<int, fs::path> files;
  std::error_code error;
  for (const auto& entry : entries_in(directory, error)) {
    const std::string name = entry.path().filename().string();
    const auto rank = number_between<int>(name, kFilePrefix, kFileSuffix);
    if (rank && *rank >= 0 && name == file_of(*rank) && entry.is_regular_file(error)) {
      files[*rank] = entry.path();
    }
  }
  return files;
}

fs::path CheckpointDirectory::directory_of(std::uint64_t step) const {
  return path_ / fmt::format("{}{}", kDirectoryPrefix, step);
}

std::vector<std::uint64_t> CheckpointDirectory::steps() const {
  std::vector<std::uint64_t> steps;
  std::error_code error;
  for (const auto& entry : entries_in(path_, error)) {
    const auto step =
        number_between<std::uint64_t>(entry.path().filename().string(), kDirectoryPrefix, "");
    if (step) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void CheckpointDirectory::save(const CheckpointJob& job, trainer::NodeCheckpoint checkpoint) const {
  TensorFile file{.facts = std::move(checkpoint.facts), .arrays = {}};
  file.facts[kVersionFact] = kVersion;
  file.facts[kMadeBy] = "tersewire " TERSEWIRE_VERSION;
  file.facts[kRank] = std::to_string(checkpoint.rank);
  file.facts[kNodes] = std::to_string(job.nodes);
  file.facts[kStep] = std::to_string(checkpoint.step);
  file.facts[kWorkers] = std::to_string(job.workers);
  if (job.servers) file.facts[kServers] = std::to_string(*job.servers);
  file.facts[kSettings] = json_text(nlohmann::json(job.settings), -1);
  for (auto& [name, array] : checkpoint.arrays) {
    file.arrays[name] = {std::move(array.shape), std::move(array.values)};
  }
  const fs::path directory = directory_of(checkpoint.step);
  std::error_code error;
  make_directories(directory, error);
  if (error) fail_file(directory.string(), "made", error.value());
  // What rank 0 has noted of the steps until then goes on from there, too.
  if (checkpoint.rank == 0) {
    for (const char* lines : {kMetricsFile, kObservationsFile})
      sync_file(path_.parent_path() / lines);
  }
  write_new_file((directory / file_of(checkpoint.rank)).string(), tensor_file_bytes(file));

  // Older ones go with all that is in them, also of nodes that a resumed job no longer has.
  std::size_t kept = 0;
  for (const std::uint64_t step : steps()) {
    if (kept == kKept) {
      remove_shared(directory_of(step));
    } else if (fs::exists(directory_of(step) / file_of(checkpoint.rank), error)) {
      ++kept;
    }
  }
}

CheckpointDirectory::Found CheckpointDirectory::read(std::uint64_t step) const {
  const fs::path directory = directory_of(step);
  Found found;
  for (int rank = 0; rank == 0 || rank < found.job.nodes; ++rank) {
    const fs::path path = directory / file_of(rank);
    CheckpointFile file = check_checkpoint_file(path);
    if (rank == 0) found.job = file.job;
    check_is_of(file, path, rank, step, found.job);
    found.checkpoint.nodes.push_back(std::move(file.node));
  }
  found.checkpoint.workers = found.job.workers;
  found.checkpoint.servers = found.job.servers;
  return found;
}

std::optional<CheckpointDirectory::Found> CheckpointDirectory::newest_if_any() const {
  try {
    return newest();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || steps().size() >= kKept) throw;
    return std::nullopt;
  }
}

CheckpointDirectory::Found CheckpointDirectory::newest() const {
  std::vector<std::string> passed_over;
  bool all_missing = true;  // as where a run was cut off while its nodes saved
  for (const std::uint64_t step : steps()) {
    try {
      Found found = read(step);
      found.passed_over = std::move(passed_over);
      found.newest_step = newest_step(found.job.nodes);
      return found;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kFailedPrecondition) throw;
      passed_over.emplace_back(error.what());
      all_missing = all_missing && error.code() == ErrorCode::kNotFound;
    }
  }
  std::string why;
  std::string advice =
      "give the directory of a run that was started with --checkpoint-steps N and has passed step "
      "N";
  if (!passed_over.empty()) {
    // Without what to do with that file alone.
    why = ": " + passed_over.front().substr(0, passed_over.front().rfind("; "));
    advice = "restore one from a copy, or begin a new run with another --out";
  }
  throw Error(all_missing ? ErrorCode::kNotFound : ErrorCode::kDataLoss,
              fmt::format("there is no whole checkpoint in {}{}; {}", path_.string(), why, advice));
}

std::optional<std::uint64_t> CheckpointDirectory::newest_step(int nodes) const {
  for (const std::uint64_t step : steps()) {
    if (std::cmp_greater_equal(checkpoint_files(directory_of(step)).size(), nodes)) return step;
  }
  return std::nullopt;
}

void CheckpointDirectory::remove_after(std::uint64_t step) const {
  std::error_code error;
  for (const std::uint64_t newer : steps()) {
    if (newer <= step) continue;
    fs::remove_all(directory_of(newer), error);
    if (error) fail_file(directory_of(newer).string(), "removed", error.value());
  }
}

}  // namespace tersewire::apps
