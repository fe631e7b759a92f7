#include "python/mean_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/policy.h"
#include "tersewire/transport.h"
#include "trainer/chooser/codec_chooser.h"

namespace tersewire::python {
namespace {

// By tensor, whether its parts are: they have one codec.
std::vector<bool> followed_tensors(const Job& job) {
  const std::vector<bool> followed = followed_parts(job);
  std::vector<bool> tensors(job.tensors.size());
  for (const Part& part : job_parts(job)) tensors[part.tensor] = followed[part.number];
  return tensors;
}

std::string codec_of(const Job& job, std::size_t tensor) {
  if (job.ladder) return job.push_codec;
  return std::string(
      codec_name(choose_codecs(job.policy, job.push_codec, job.tensors)[tensor]->id()));
}

}  // namespace

Job mean_job(Job job, bool updates) {
  const ExchangeTraits& traits = exchange_traits(job.exchange);
  if (traits.shards) job.servers = Job::kColocated;
  job.checksum_steps = 0;  // the parameters are the application's
  const bool servers_own = traits.shards && !traits.workers_own_model;
  if (servers_own != updates || traits.averages_weights ||
      !(servers_own || traits.workers_own_model)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("exchange {} has no mean gradient of a step; use gradient-server, all-gather "
                    "or ring{}",
                    job.exchange, servers_own ? ", or DistributedOptimizer()" : ""));
  }
  if (!traits.shards && job.pull_codec != job.push_codec) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("exchange {} has no servers, which pull_codec is for; omit that, or use "
                    "gradient-server",
                    job.exchange));
  }
  if (job.push_codec == trainer::kAutoCodec) trainer::choose_among_codecs(job);
  static_cast<void>(server_nodes(job));  // throws for a job that makes no sense
  return job;
}

std::size_t longest_message(const Job& job) {
  constexpr std::size_t kFrameBytes = 32;  // beside its payload, and the message's head
  const auto pushed = choose_codecs(job.policy, job.push_codec, job.tensors);
  const auto pulled = choose_codecs(job.policy, job.pull_codec, job.tensors);
  std::size_t bytes = 1 << 16;
  for (const Part& part : job_parts(job)) {
    bytes += kFrameBytes + std::max({sizeof(float) * part.elems,
                                     pushed[part.tensor]->max_encoded_bytes(part.elems),
                                     pulled[part.tensor]->max_encoded_bytes(part.elems)});
  }
  return bytes;
}

PartValues by_tensor(const Job& job, const PartValues& values) {
  PartValues tensors(job.tensors.size());
  for (const Part& part : job_parts(job)) {
    if (values[part.number].empty()) continue;
    std::vector<float>& tensor = tensors[part.tensor];
    tensor.resize(job.tensors[part.tensor].elems());
    std::ranges::copy(values[part.number],
                      tensor.begin() + static_cast<std::ptrdiff_t>(part.begin));
  }
  return tensors;
}

void no_update(const Part& /*part*/, std::span<const float> /*mean*/, std::span<float> /*delta*/) {
  throw Error(ErrorCode::kInternal, "means were pulled; please report this");
}

NodeState first_state(const Job& job, int rank, const NodeState* resume) {
  const auto ends = make_in_process_network(job.workers);
  return make_communicator(job, *ends.at(static_cast<std::size_t>(rank)), no_update, nullptr,
                           resume)
      ->state();
}

NodeState moved(const NodeState& state, const Job& from, const Job& to, int rank) {
  NodeState now = first_state(to, rank);
  now.step = state.step;
  const std::vector<bool> followed = followed_tensors(from);
  const std::vector<bool> follows = followed_tensors(to);
  const PartValues pushed = by_tensor(from, state.pushed);
  const PartValues pulled = by_tensor(from, state.pulled);
  const auto add = [](std::vector<float>& sums, const Part& part, const std::vector<float>& values,
                      int times) {
    for (std::size_t i = 0; i < sums.size() && !values.empty(); ++i) {
      sums[i] += static_cast<float>(times) * values[part.begin + i];
    }
  };
  for (const Part& part : job_parts(to)) {
    std::vector<float>& kept = now.pushed[part.number];
    std::vector<float>& served = now.pulled[part.number];
    // Workers owe nothing where differences are sent, which begin anew.
    const bool owed = !followed[part.tensor];
    const bool owes = owed && !pushed[part.tensor].empty();
    if (kept.empty() && (owes || !pulled[part.tensor].empty())) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}' has a residual that is still to be sent, and its new "
                              "codec {} keeps none; use one that does, with ef=on, and policy=\"\" "
                              "if the policy has chosen it",
                              to.tensors[part.tensor].name, codec_of(to, part.tensor)));
    }
    if (owed && !follows[part.tensor]) add(kept, part, pushed[part.tensor], 1);
    // A server's is of the mean. What is followed has no place for it.
    if (!served.empty()) {
      add(served, part, pulled[part.tensor], 1);
    } else if (!follows[part.tensor]) {
      add(kept, part, pulled[part.tensor], to.workers);
    }
  }
  return now;
}

}  // namespace tersewire::python
