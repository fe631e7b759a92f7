#include "zero_run.h"

#include <array>
#include <bit>
#include <cstring>

#include "kernels.h"

namespace tersewire::kernels {
namespace {

// What a run becomes where that is short: bytes, the first lowest, and their number.
struct RunCode {
  std::uint64_t bytes;
  std::uint64_t length;
};

// Runs below this have a RunCode.
constexpr std::size_t kTabledRuns = 8 * kLongestRun;
using RunCodes = std::array<RunCode, kTabledRuns>;

constexpr std::uint64_t run_code(std::uint64_t run) {
  return run == 1 ? kZeroGroup : kFirstRunCode + run - kShortestRun;
}

constexpr RunCodes make_run_codes() {
  RunCodes codes{};
  for (std::uint64_t run = 1; run < kTabledRuns; ++run) {
    RunCode& code = codes[run];
    std::uint64_t left = run;
    for (; left >= kLongestRun; left -= kLongestRun) {
      code.bytes |= run_code(kLongestRun) << 8 * code.length++;
    }
    if (left > 0) code.bytes |= run_code(left) << 8 * code.length++;
  }
  return codes;
}

constexpr RunCodes kRunCodes = make_run_codes();

std::uint8_t* write_run(std::uint8_t* out, std::uint64_t run) {
  for (; run >= kLongestRun; run -= kLongestRun) {
    *out++ = static_cast<std::uint8_t>(run_code(kLongestRun));
  }
  if (run != 0) *out++ = static_cast<std::uint8_t>(run_code(run));
  return out;
}

}  // namespace

void ZeroRunWriter::flush_run() {
  out_ = write_run(out_, run_);
  run_ = 0;
}

void ZeroRunWriter::write(const PackedBlock& block, std::size_t from, std::size_t count) {
  std::array<std::uint64_t, kBlockGroups / 64> others;
  not_equal_bits(block.groups.data(), (count + 63) / 64, kZeroGroup, others.data());
  if (count % 64 != 0) others[count / 64] &= (std::uint64_t{1} << count % 64) - 1;
  // Members that bytes are written through would be read again after each byte.
  std::uint8_t* out = out_;
  std::uint64_t run = run_;
  std::size_t done = from;
  for (std::size_t word = 0; word * 64 < count; ++word) {
    for (std::uint64_t left = others[word]; left != 0; left &= left - 1) {
      const auto at = word * 64 + static_cast<std::size_t>(std::countr_zero(left));
      run += at - done;
      done = at + 1;
      if (run >= kTabledRuns) {
        out = write_run(out, run);
        run = 0;
      }
      // No branch depends on how long the run is, as none could be foretold.
      const RunCode code = kRunCodes[run];
      std::uint64_t nowhere;
      // Eight bytes at once where the run has room for them; else it takes one byte or none.
      std::memcpy(run >= kLongestRun ? static_cast<void*>(out) : &nowhere, &code.bytes,
                  sizeof(code.bytes));
      *out = static_cast<std::uint8_t>(code.bytes);
      out += code.length;
      *out++ = block.groups[at];
      run = 0;
    }
  }
  out_ = out;
  run_ = run + count - done;
}

}  // namespace tersewire::kernels
