// Throwing tersewire::Error with a formatted sentence.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "tersewire/error.h"

namespace tersewire {

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(code, fmt::format(sentence, std::forward<Args>(args)...));
}

// Runs `task`; an Error that it throws is thrown on with `context` before its sentence.
template <typename Task>
decltype(auto) with_context(const auto& context, Task&& task) {
  try {
    return std::forward<Task>(task)();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", context(), error.what()));
  }
}

}  // namespace tersewire
