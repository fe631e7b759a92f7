// How many bytes codecs make of arrays, for encoded_sizes_test.py.
//
// usage: encoded_sizes CODEC... -- KIND:FILE...
//
// A FILE holds raw float32 values; KIND is a tensor's kind, as tersewire/tensor.h names them.
// Prints a line for each file: the bytes of the whole message, frame and head included, that each
// codec makes of it in the first step and, where it keeps a residual, in the tenth of ten steps
// with the same values.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/message.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kSteps = 10;

std::vector<float> read_values(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::size_t message_bytes(Encoder& encoder, std::span<const float> values, std::uint64_t step) {
  Bytes payload;
  const Encoded encoded = encoder.encode(values, step, payload);
  MessageWriter writer({.kind = MessageKind::kPush, .sender = 0, .step = step});
  writer.add({.tensor = 0,
              .codec = encoded.codec,
              .not_finite = encoded.not_finite,
              .description = {},
              .payload = payload});
  return writer.finish().size();
}

void print_sizes(const std::string& codec, TensorKind kind, std::span<const float> values) {
  const auto encoder = make_codec(codec)->make_encoder(
      values.size(), {.seed = 1, .sender = 0, .tensor = 0, .kind = kind});
  std::printf(" %zu", message_bytes(*encoder, values, 0));
  if (encoder->residual().empty()) return;
  std::size_t bytes = 0;
  for (std::uint64_t step = 1; step < kSteps; ++step) bytes = message_bytes(*encoder, values, step);
  std::printf("/%zu", bytes);
}

void print_lines(const std::vector<std::string>& arguments) {
  std::vector<std::string> codecs;
  std::size_t i = 0;
  while (i < arguments.size() && arguments[i] != "--") codecs.push_back(arguments[i++]);
  for (++i; i < arguments.size(); ++i) {
    const std::size_t colon = arguments[i].find(':');
    const TensorKind kind = tensor_kind(arguments[i].substr(0, colon));
    const auto values = read_values(arguments[i].substr(colon + 1));
    for (const std::string& codec : codecs) print_sizes(codec, kind, values);
    std::printf("\n");
  }
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  try {
    tersewire::print_lines({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encoded_sizes: %s\n", error.what());
    return 1;
  }
}
