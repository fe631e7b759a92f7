// The job whose worker takes means in the same step, as tersewire.torch has it, and what a rank
// keeps of it when the job goes on as another: nothing here knows Python.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/state.h"

namespace tersewire::python {

using PartValues = std::vector<std::vector<float>>;

// Completes a job that has its tensors, exchange, number of workers, codecs, policy, seed, warm-up
// and time limits. `updates`: whether the application's optimizer runs where the exchange has the
// model. Throws kInvalidArgument for an exchange that has no mean of a step, or another place for
// the optimizer, and for a job that makes no sense.
Job mean_job(Job job, bool updates);

// Whatever is in one message of the job, all of its parts would be as long at most, in bytes.
std::size_t longest_message(const Job& job);

// By tensor: as many values as it has, 0 where there are none, or none at all.
PartValues by_tensor(const Job& job, const PartValues& values);

// The update of a job of which nobody pulls a model.
void no_update(const Part& part, std::span<const float> mean, std::span<float> delta);

// What the node of this rank keeps when the job begins: which residuals there are. Throws where it
// cannot go on from `resume`.
NodeState first_state(const Job& job, int rank, const NodeState* resume = nullptr);

// The state of a node of a job with other codecs, or another exchange, in which nothing is lost,
// except what a server owed where differences are sent to no server. Both have as many workers.
// Throws kInvalidArgument where a tensor has a residual, and its new codec keeps none.
NodeState moved(const NodeState& state, const Job& from, const Job& to, int rank);

}  // namespace tersewire::python
