// Checkpoints are written beside the training: by a thread for each node, for as long as it has one
// to write. Any thread.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include "trainer/files/checkpoint.h"

namespace tersewire::trainer {

class CheckpointSaver {
 public:
  using Save = std::function<void(NodeCheckpoint)>;

  // `save` writes one and throws where it cannot; then `failed`, called once with the sentence,
  // ends the job.
  CheckpointSaver(Save save, std::function<void(const std::string&)> failed)
      : save_(std::move(save)), failed_(std::move(failed)) {}
  // Waits for what is being written.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Has it written, once the one before of the same node is: no more than two of a node are in
  // memory. Throws what that one failed with.
  void put(NodeCheckpoint checkpoint);

  // Waits until the node's are written. Throws what the last one failed with.
  void finish(int rank);

  // Throws what the first that failed, of any node, failed with.
  void rethrow_failure() const;

 private:
  void save(NodeCheckpoint checkpoint);

  Save save_;
  std::function<void(const std::string&)> failed_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  std::map<int, std::future<void>> being_written_;  // by rank; each used by its node alone
};

}  // namespace tersewire::trainer
