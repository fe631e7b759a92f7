// How long a member may be silent before it is given up: set by its job, or by how long members
// were silent before they spoke again. No clock of its own, no threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tersewire {

class SilenceLimit {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // None: it sets itself. Then it is 20 times what 99 of 100 of the last 10,000 silences were
  // shorter than, from 10 to 120 s, and 30 s until 100 of them are known.
  explicit SilenceLimit(std::optional<std::chrono::milliseconds> fixed);

  // A member has spoken again. Some 100 us once in 100 calls.
  void note(Duration silence);

  [[nodiscard]] Duration limit() const { return limit_; }
  // What it comes from, to be put behind the figure: empty where it is fixed.
  [[nodiscard]] std::string reason() const;

 private:
  bool is_fixed_;
  Duration limit_;
  std::vector<Duration> silences_;  // the last ones, in a ring
  std::size_t noted_ = 0;
  Duration quantile_{};
};

}  // namespace tersewire
