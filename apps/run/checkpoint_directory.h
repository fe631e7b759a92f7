// The checkpoints of a run: RUN/checkpoints/step-NUMBER/node-RANK.safetensors, a file for each node
// of the job. A checkpoint counts once all of them are there and whole.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/settings.h"
#include "apps/run/run_files.h"
#include "trainer/files/checkpoint.h"
#include "trainer/files/tensor_file.h"

namespace tersewire::apps {

// What every file of a checkpoint says of the job that made it.
struct CheckpointJob {
  int nodes = 0;
  int workers = 0;
  std::optional<int> servers;
  Settings settings;
};

// One node's file.
struct CheckpointFile {
  CheckpointJob job;
  std::string made_by;  // "tersewire VERSION"
  std::size_t bytes = 0;
  trainer::StoredNode node;  // whose arrays are read from the file
};

// Reads it once, a piece at a time, and keeps none of its arrays. Throws an Error that names it
// where it is missing, damaged or no such file, and kFailedPrecondition where it is of another
// version.
CheckpointFile check_checkpoint_file(const std::filesystem::path& path);

// Whether it says that it is one.
bool is_checkpoint_file(const TensorFile& file);

// Why a whole file does not count, where it is of another node, step or job.
inline constexpr const char* kOfAnother =
    "it is of another node, step or job than its name says; use another copy";

// Throws kDataLoss, naming it, where a whole file is not that of node `rank` after step `step` of
// `job`. Files of ranks that the job does not have are not asked for: they are left from a larger
// one.
void check_is_of(const CheckpointFile& file, const std::filesystem::path& path, int rank,
                 std::uint64_t step, const CheckpointJob& job);

// The files in the directory of one checkpoint, by the ranks that their names say.
std::map<int, std::filesystem::path> checkpoint_files(const std::filesystem::path& directory);

// Every function throws an Error that names the file where something cannot be read or written.
class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(const std::filesystem::path& run)
      : path_(run / kCheckpointsFolder) {}

  // Writes one node's file, whole or not at all, and removes all that is older than its last four,
  // of which one at least is whole on every node. Threads of different nodes.
  void save(const CheckpointJob& job, trainer::NodeCheckpoint checkpoint) const;

  struct Found {
    CheckpointJob job;
    trainer::JobCheckpoint checkpoint;
    // Why newer ones do not count, a sentence each.
    std::vector<std::string> passed_over;
    // As newest_step() then: another one since is of another process.
    std::optional<std::uint64_t> newest_step;
  };
  // The newest that counts; its arrays stay on the disk. Throws kNotFound where there is none,
  // kDataLoss where none can be read, kFailedPrecondition for one of another version.
  [[nodiscard]] Found newest() const;
  // The same; nothing where the run was cut off before it can have had one. Throws kNotFound where
  // so many are incomplete that one has been whole.
  [[nodiscard]] std::optional<Found> newest_if_any() const;

  // Removes what is newer than `step`: a run that goes on from there comes to those steps again.
  void remove_after(std::uint64_t step) const;

  // The newest step of which the files of `nodes` nodes are there. They are written whole or not at
  // all, and not read here.
  [[nodiscard]] std::optional<std::uint64_t> newest_step(int nodes) const;

  // Of the steps that have a directory, from the newest on.
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  [[nodiscard]] std::filesystem::path directory_of(std::uint64_t step) const;

 private:
  [[nodiscard]] Found read(std::uint64_t step) const;

  std::filesystem::path path_;
};

}  // namespace tersewire::apps
