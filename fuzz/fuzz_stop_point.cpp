// Arbitrary messages from peers to a node's end of a run of several processes: what is said of the
// run's end is taken or refused, and leaves an end after which states are saved; all else is passed
// on in its order, but none while nodes agree.
//
// Input: which node it is; then messages, each its length and its bytes.
#include <deque>
#include <span>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/error.h"
#include "trainer/members/node_report.h"
#include "trainer/members/stop_point.h"

namespace tersewire::fuzz {
namespace {

constexpr std::uint64_t kSteps = 20;
constexpr std::uint64_t kStateEvery = 4;
constexpr std::uint64_t kBegun = 5;

void check_end(const trainer::StopPoint& point) {
  const std::uint64_t last = point.last();
  const bool cut_short = last < kSteps;
  require(last <= kSteps && last > kBegun && last % kStateEvery == 0,
          "the run ends after no state");
  require(point.state_after() == (cut_short ? last : 0), "another state than that of the end");
  require(point.asker().has_value() == cut_short, "nobody asked for it");
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  ByteView rest = std::as_bytes(std::span(data, size));
  if (rest.empty()) return 0;
  const std::size_t rank = std::to_integer<std::size_t>(rest[0]) % 2;
  rest = rest.subspan(1);
  auto network = make_in_process_network(2);
  trainer::StopPoint point(kSteps, nullptr, false, kStateEvery);
  point.agree_over(*network[rank], {}, {});
  require(!point.passed(kBegun), "ended before its last step");
  trainer::StopEnd end(*network[rank], point);
  std::deque<Bytes> expected;
  while (!rest.empty()) {
    const ByteView cut = take_message(rest);
    if (!trainer::begins_as<trainer::StopMessage>(cut))
      expected.emplace_back(cut.begin(), cut.end());
    network[1 - rank]->send(static_cast<int>(rank),
                            std::make_shared<const Bytes>(cut.begin(), cut.end()));
    if (!takes_expected(end, expected)) return 0;
    check_end(point);
  }
  return 0;
}
