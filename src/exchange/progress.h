// Progress of a worker's node: messages are taken whatever the application is doing, so that
// partial sums go on, and what others wait for is sent, while a worker computes.
#pragma once

#include <functional>
#include <memory>

#include "tersewire/communicator.h"
#include "worker.h"

namespace tersewire {

// A worker, made over the end that this gives it, for which messages are taken until finish() has
// returned or it is destroyed: by calls of the network, or where it makes none by a thread. Where a
// message fails the job ends, and the application's next call throws what it failed with. `network`
// must outlive it. `alone`: the network has no other node; the application's calls take messages.
std::unique_ptr<Communicator> with_progress(
    Transport& network, bool alone,
    const std::function<std::unique_ptr<Worker>(Transport&)>& make_worker);

}  // namespace tersewire
