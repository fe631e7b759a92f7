// Waiting that Ctrl-C ends.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace tersewire::python {

// What `call` returns, which runs without the GIL, in a thread of its own. Where a signal of
// Python's comes meanwhile that raises, as Ctrl-C does, `stop` is called, which must end the call
// soon; without one the call is left to itself. With the GIL; in Python's main thread, elsewhere
// there are no signals. Cost: 50 us.
template <typename Call>
auto interruptible(Call call, const std::function<void()>& stop = {}) {
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  const auto is_done = [&](std::chrono::milliseconds time) {
    const pybind11::gil_scoped_release released;
    return result.wait_for(time) == std::future_status::ready;
  };
  while (!is_done(std::chrono::milliseconds(100))) {
    if (PyErr_CheckSignals() == 0) continue;
    if (stop) {
      const pybind11::gil_scoped_release released;
      stop();
      thread.join();
    } else {
      thread.detach();
    }
    throw pybind11::error_already_set();
  }
  thread.join();
  return result.get();
}

}  // namespace tersewire::python
