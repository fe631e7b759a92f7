// What every node of an exchange does: wait with a deadline, measure, and end the job for all where
// something fails.
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include "errors.h"
#include "float_mode.h"
#include "placement.h"
#include "tersewire/counted.h"
#include "tersewire/measure.h"
#include "tersewire/message.h"
#include "tersewire/transport.h"

namespace tersewire {

// Adds the time from its making to its end to `seconds`.
class Stopwatch {
 public:
  using Clock = double (*)();

  Stopwatch(double& seconds, Clock now) : seconds_(seconds), now_(now), start_(now()) {}
  ~Stopwatch() { seconds_ += now_() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock now_;
  double start_;
};

// Runs `task` in the library's floating point mode; whatever it throws ends the job on every node,
// with `who` before the sentence.
template <typename Task>
decltype(auto) ending_the_job_on_failure(Transport& transport, const std::string& who,
                                         Task&& task) {
  const DefaultFloatMode mode;
  try {
    return std::forward<Task>(task)();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kAborted) {
      // Most likely another node's, which already says who failed; else this is the first.
      transport.abort(error.what());
      throw;
    }
    const std::string sentence = fmt::format("{}: {}", who, error.what());
    transport.abort(sentence);
    throw Error(error.code(), sentence);
  } catch (const std::exception& error) {
    transport.abort(fmt::format("{}: {}", who, error.what()));
    throw;
  } catch (...) {
    transport.abort(who + " failed");
    throw;
  }
}

// The next message, parsed, with the bytes that its frames point into.
struct Received {
  int from;
  SharedBytes bytes;
  Message message;
  std::chrono::steady_clock::time_point arrived;
};

// Parses what arrived; throws kDataLoss where it is malformed or its sender is not who sent it.
inline Received parse_incoming(Incoming incoming) {
  if (incoming.bytes == nullptr) {
    fail(ErrorCode::kDataLoss, "message from rank {}: the transport delivered it without its bytes",
         incoming.from);
  }
  Message message = with_context([&] { return fmt::format("message from rank {}", incoming.from); },
                                 [&] { return parse_message(*incoming.bytes, incoming.own); });
  if (message.header.sender != static_cast<std::uint32_t>(incoming.from)) {
    fail(ErrorCode::kDataLoss, "message from rank {}: it claims to come from rank {}",
         incoming.from, message.header.sender);
  }
  return {incoming.from, std::move(incoming.bytes), message, incoming.arrived};
}

// As receive_within().
inline Received receive_parsed(Transport& transport, const WaitLimits& limits,
                               const std::string& waited_for,
                               const std::function<bool(int)>& needs = {}) {
  return parse_incoming(receive_within(transport, limits, waited_for, needs));
}

// Sends, unless the receiver takes nothing: it would make this node hold ever more. Throws
// kResourceExhausted.
inline void send_bounded(Transport& transport, const Placement& placement, int to,
                         const SharedBytes& bytes) {
  const std::size_t waiting = transport.peer(to).waiting;
  if (waiting > placement.most_waiting_bytes()) {
    fail(ErrorCode::kResourceExhausted,
         "rank {} is not reading its messages: {} MiB are queued; check whether it hangs, or "
         "whether its link is slower than the others",
         to, waiting >> 20U);
  }
  transport.send(to, bytes);
}

// What an encoder made of a part.
inline Frame frame_of(const Placement& placement, std::size_t part, const Encoded& encoded,
                      ByteView payload) {
  return {.tensor = static_cast<std::uint32_t>(placement.parts[part].tensor),
          .part = placement.place_in_tensor(part),
          .codec = encoded.codec,
          .not_finite = encoded.not_finite,
          .description = std::nullopt,
          .payload = payload};
}

// Holds what came from this rank against the longest frame that `name` can have there, so that
// nobody makes a node hold more. Throws kDataLoss.
inline void check_length(int from, const std::string& name, const Frame& frame, std::size_t most) {
  if (frame.payload.size() <= most) return;
  fail(ErrorCode::kDataLoss,
       "message from rank {}: its frame of {} has {} bytes, and none is longer than {}; start all "
       "nodes with the same arguments",
       from, name, frame.payload.size(), most);
}

// Throws kInvalidArgument for a tensor that the job has not ...
inline void check_tensor(const Job& job, std::size_t tensor) {
  if (tensor < job.tensors.size()) return;
  fail(ErrorCode::kInvalidArgument, "there is no tensor number {}; the job has {}", tensor,
       counted(job.tensors.size(), "tensor"));
}

// ... and for another number of its values.
inline void check_values(const Job& job, std::size_t tensor, std::size_t given) {
  check_tensor(job, tensor);
  const TensorInfo& info = job.tensors[tensor];
  if (given == info.elems()) return;
  fail(ErrorCode::kInvalidArgument, "tensor '{}' has {} values, and {} were given", info.name,
       info.elems(), given);
}

// What is wrong with something that came for this step while another, or it again, is open.
inline std::string came_for(std::uint64_t step, std::uint64_t open) {
  if (step == open) return fmt::format("came for step {} a second time", step);
  return fmt::format("came for step {} while step {} is open", step, open);
}

// The part that a frame which came from this rank is of. Throws kDataLoss where there is none.
inline std::size_t part_in(const Placement& placement, int from, const Frame& frame) {
  if (const auto part = placement.find(frame)) return *part;
  fail(ErrorCode::kDataLoss, "message from rank {}: there is no part {} of tensor number {}", from,
       frame.part, frame.tensor);
}

inline SharedBytes shared(MessageWriter& writer, bool own = false) {
  return std::make_shared<const Bytes>(writer.take(own));
}

}  // namespace tersewire
