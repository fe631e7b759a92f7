#include "trainer/run_all.h"

#include <exception>
#include <string>
#include <system_error>
#include <thread>

#include "tersewire/error.h"

namespace tersewire::trainer {

void run_all(const std::vector<std::function<void()>>& tasks, Transport& network) {
  std::vector<std::exception_ptr> errors(tasks.size());
  std::vector<std::thread> threads;
  const auto run_one = [&](std::size_t i) {
    try {
      tasks[i]();
    } catch (const std::exception& error) {
      errors[i] = std::current_exception();
      network.abort(error.what());
    }
  };
  try {
    for (std::size_t i = 0; i < tasks.size(); ++i) threads.emplace_back(run_one, i);
  } catch (const std::system_error&) {
    const Error error(ErrorCode::kResourceExhausted,
                      "the system started only " + std::to_string(threads.size()) + " of " +
                          std::to_string(tasks.size()) +
                          " threads; use fewer workers or raise the limit");
    network.abort(error.what());
    errors.back() = std::make_exception_ptr(error);
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr told_to_stop;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kAborted) throw;
      told_to_stop = error;
    }
  }
  if (told_to_stop) std::rethrow_exception(told_to_stop);
}

}  // namespace tersewire::trainer
