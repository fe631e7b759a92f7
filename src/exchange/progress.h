// The progress thread of a worker's node: it receives whatever the application is doing, so that
// partial sums go on, and what others wait for is sent, while a worker computes.
#pragma once

#include <functional>
#include <memory>

#include "tersewire/communicator.h"
#include "worker.h"

namespace tersewire {

// A worker, made over the end that this gives it, with a thread that receives for it until finish()
// has returned or it is destroyed. Where that thread fails the job ends, and the application's next
// call throws what it failed with. `network` must outlive it. `alone`: the network has no other
// node; the application's calls receive, and there is no thread.
std::unique_ptr<Communicator> with_progress(
    Transport& network, bool alone,
    const std::function<std::unique_ptr<Worker>(Transport&)>& make_worker);

}  // namespace tersewire
