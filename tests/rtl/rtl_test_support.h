// What tests of rtl/ share: the simulated engines with stalls on both ports.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "packet_test_support.h"

namespace tersewire::test {

// How often, in 256ths, a port does nothing for a cycle.
struct Stalls {
  unsigned in = 0;
  unsigned out = 0;
};

struct Traffic {
  std::vector<Frame> frames;
  std::size_t cycles = 0;            // from the first word taken to the last one sent
  std::size_t refused = 0;           // cycles in which a word was offered and not taken
  std::vector<std::size_t> arrived;  // the cycle in which each packet's first word was taken
  std::vector<std::size_t> left;     // and sent
};

template <typename Model>
class Engine {
 public:
  explicit Engine(unsigned seed) : random_(seed) {
    model_.rst = 1;
    tick();
    tick();
    model_.rst = 0;
  }

  Model& model() { return model_; }
  void set_layout(std::uint8_t layout) {
    model_.layout_write = 1;
    model_.layout_in = layout;
    tick();
    model_.layout_write = 0;
  }

  // Sends frames through, until nothing has left for `patience` cycles without a stall and all have
  // been taken.
  Traffic run(const std::vector<Frame>& frames, Stalls stalls, std::size_t patience = 2000) {
    Traffic traffic;
    Frame building;
    std::size_t frame = 0;
    std::size_t at = 0;
    bool offered = false;
    std::size_t first_cycle = 0;
    std::size_t last_cycle = 0;
    std::size_t quiet = 0;
    for (std::size_t cycle = 0; quiet < patience; ++cycle) {
      if (!offered) offered = frame < frames.size() && random_() % 256 >= stalls.in;
      model_.s_axis_tvalid = offered;
      if (offered) put(frames[frame], at);
      model_.m_axis_tready = random_() % 256 >= stalls.out;
      model_.clk = 0;
      model_.eval();
      const bool taken = offered && model_.s_axis_tready;
      const bool sent = model_.m_axis_tvalid && model_.m_axis_tready;
      ++quiet;
      if (model_.m_axis_tready == 0) --quiet;
      if (offered && !taken) ++traffic.refused;
      if (sent) {
        quiet = 0;
        if (building.empty()) traffic.left.push_back(cycle);
        get(building);
        last_cycle = cycle;
        if (model_.m_axis_tlast) {
          traffic.frames.push_back(building);
          building.clear();
        }
      }
      model_.clk = 1;
      model_.eval();
      if (!taken) continue;
      quiet = 0;
      offered = false;
      if (at == 0) traffic.arrived.push_back(cycle);
      if (frame == 0 && at == 0) first_cycle = cycle;
      at += 32;
      if (at >= frames[frame].size()) {
        ++frame;
        at = 0;
      }
    }
    EXPECT_EQ(frame, frames.size()) << "the engine hangs";
    EXPECT_TRUE(building.empty()) << "a packet has no end";
    traffic.cycles = last_cycle - first_cycle + 1;
    return traffic;
  }

 private:
  void tick() {
    model_.clk = 0;
    model_.eval();
    model_.clk = 1;
    model_.eval();
  }
  void put(const Frame& frame, std::size_t at) {
    const std::size_t bytes = std::min<std::size_t>(32, frame.size() - at);
    std::uint8_t word[32];
    for (std::uint8_t& byte : word) byte = static_cast<std::uint8_t>(0xEE);  // no one may look
    std::memcpy(word, frame.data() + at, bytes);
    std::memcpy(&model_.s_axis_tdata[0], word, sizeof(word));
    model_.s_axis_tkeep = bytes == 32 ? 0xFFFFFFFFU : (1U << bytes) - 1;
    model_.s_axis_tlast = at + bytes == frame.size();
  }
  void get(Frame& frame) {
    std::uint8_t word[32];
    std::memcpy(word, &model_.m_axis_tdata[0], sizeof(word));
    const auto bytes = static_cast<std::size_t>(std::popcount(model_.m_axis_tkeep));
    frame.insert(frame.end(), word, word + bytes);
  }

  Model model_;
  std::mt19937 random_;
};

}  // namespace tersewire::test
