// What python_overhead.py measures the Python package against: the same steps from C++.
//
// usage: python_overhead CODEC INPUT.f32 STEPS
//
// Encodes the file's values and adds them up, STEPS times with one encoder, and prints the
// nanoseconds of each "encode decode_add", a line a step.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

#include "tersewire/codec.h"

namespace {

using Clock = std::chrono::steady_clock;

long long nanoseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
}

tersewire::Floats read_floats(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  tersewire::Floats values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

void run(const char* text, const char* path, std::uint64_t steps) {
  const auto codec = tersewire::make_codec(text);
  const tersewire::Floats values = read_floats(path);
  const auto encoder = codec->make_encoder(values.size());
  std::vector<float> sums(values.size());
  tersewire::Bytes payload;
  for (std::uint64_t step = 0; step < steps; ++step) {
    payload.clear();
    const auto begin = Clock::now();
    const tersewire::Encoded made = encoder->encode(values, step, payload);
    const auto encoded = Clock::now();
    tersewire::decode_add(made.codec, payload, 1.0F, sums);
    const auto added = Clock::now();
    std::printf("%lld %lld\n", nanoseconds(begin, encoded), nanoseconds(encoded, added));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: python_overhead CODEC INPUT.f32 STEPS\n", stderr);
    return 2;
  }
  std::uint64_t steps = 0;
  std::from_chars(argv[3], argv[3] + std::strlen(argv[3]), steps);
  try {
    run(argv[1], argv[2], steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
