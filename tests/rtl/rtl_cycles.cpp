// Prints, as JSON, how many cycles the engines of rtl/ take a packet, what latency they add, and
// what is left of their rate where ports stall. Counts of cycles: the same on every machine.
#include <cstdio>

#include "Vcompression_engine.h"
#include "Vdecompression_engine.h"
#include "rtl_test_support.h"

namespace {

using namespace tersewire;
using namespace tersewire::test;

constexpr std::size_t kPackets = 200;
constexpr kernels::BurstFormat kFormat{10, true};

std::vector<Frame> copies(const Frame& frame) { return std::vector<Frame>(kPackets, frame); }

struct Row {
  const char* engine;
  const char* packets;
  Stalls stalls;
};

template <typename Model>
void print(const Row& row, const Frame& frame, bool last = false) {
  Engine<Model> one(1);
  const Traffic alone = one.run({frame}, {});
  Engine<Model> many(1);
  const Traffic traffic = many.run(copies(frame), row.stalls);
  const auto cycles = static_cast<double>(traffic.left.back() - traffic.left.front()) /
                      static_cast<double>(kPackets - 1);
  const auto words = [](const Frame& f) { return (f.size() + 31) / 32; };
  std::printf(
      "  {\"engine\": \"%s\", \"packets\": \"%s\", \"stalls_in\": %.3f, \"stalls_out\": %.3f, "
      "\"frame_bytes_in\": %zu, \"words_in\": %zu, \"words_out\": %zu, "
      "\"cycles_a_packet\": %.2f, \"latency_cycles\": %zu}%s\n",
      row.engine, row.packets, row.stalls.in / 256.0, row.stalls.out / 256.0, frame.size(),
      words(frame), words(traffic.frames.front()), cycles,
      alone.left.front() - alone.arrived.front(), last ? "" : ",");
}

Frame frame_of(std::size_t bytes, std::uint8_t tos, float scale) {
  std::mt19937 random(1);
  return make_frame({.tos = tos, .tcp_option_words = 3},
                    bytes_of_values(heavy_tailed((bytes + 3) / 4, 1, scale), bytes), random);
}

}  // namespace

int main() {
  std::printf("[\n");
  for (const std::size_t bytes : {64U, 256U, 1448U, 8948U}) {
    const Frame frame = frame_of(bytes, kMarked, 1e-3F);
    print<Vcompression_engine>({"compression", "marked", {}}, frame);
    print<Vcompression_engine>({"compression", "unmarked", {}}, frame_of(bytes, 0, 1e-3F));
    print<Vcompression_engine>({"compression", "incompressible", {}},
                               frame_of(bytes, kMarked, 1e6F));
    const Frame compressed = compressed_frame(frame, kFormat);
    print<Vdecompression_engine>({"decompression", "compressed", {}}, compressed);
  }
  const Frame frame = frame_of(1448, kMarked, 1e-3F);
  const Frame compressed = compressed_frame(frame, kFormat);
  for (const Stalls stalls : {Stalls{64, 0}, Stalls{0, 64}, Stalls{128, 128}}) {
    print<Vcompression_engine>({"compression", "marked", stalls}, frame);
    print<Vdecompression_engine>({"decompression", "compressed", stalls}, compressed,
                                 stalls.in == 128);
  }
  std::printf("]\n");
}
