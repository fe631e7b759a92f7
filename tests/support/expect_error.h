// Errors that a test expects.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tersewire/error.h"

namespace tersewire {

// Expects that `task` throws an Error of this code whose sentence holds `part`.
template <typename Task>
void expect_error(ErrorCode code, const std::string& part, const Task& task) {
  try {
    task();
    ADD_FAILURE() << "no error; expected one about: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "'" << error.what() << "' does not say: " << part;
  }
}

}  // namespace tersewire
