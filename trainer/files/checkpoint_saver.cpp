#include "trainer/files/checkpoint_saver.h"

#include <system_error>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::trainer {

void CheckpointSaver::put(NodeCheckpoint checkpoint) {
  finish(checkpoint.rank);
  std::future<void> written;
  const int rank = checkpoint.rank;
  try {
    written = std::async(std::launch::async, [this, checkpoint = std::move(checkpoint)]() mutable {
      save(std::move(checkpoint));
    });
  } catch (const std::system_error&) {
    throw Error(ErrorCode::kResourceExhausted,
                "the system cannot start a thread to write the checkpoint of rank " +
                    std::to_string(rank) + "; use fewer workers or raise the limit");
  }
  const std::lock_guard lock(mutex_);
  being_written_[rank] = std::move(written);
}

void CheckpointSaver::finish(int rank) {
  std::future<void> written;
  {
    const std::lock_guard lock(mutex_);
    written = std::exchange(being_written_[rank], {});
  }
  if (written.valid()) written.get();
}

void CheckpointSaver::rethrow_failure() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void CheckpointSaver::save(NodeCheckpoint checkpoint) {
  try {
    save_(std::move(checkpoint));
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw;
      failure_ = std::current_exception();
    }
    failed_(error.what());
    throw;
  }
}

}  // namespace tersewire::trainer
