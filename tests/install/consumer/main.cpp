// Encodes and decodes a tensor with nothing but what is installed.
#include <tersewire/tersewire.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::size_t kElems = 10'000;
  std::vector<float> gradient(kElems);
  for (std::size_t i = 0; i < kElems; ++i) {
    gradient[i] = std::sin(static_cast<float>(i));
  }

  const auto codec = tersewire::make_codec("3lc:s=1.5");
  const auto encoder = codec->make_encoder(kElems);
  tersewire::Bytes payload;
  const tersewire::Encoded encoded = encoder->encode(gradient, 0, payload);
  std::vector<float> received(kElems);
  tersewire::decode(encoded.codec, payload, received);

  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kElems; ++i) {
    // A lead is taken back with a rounding.
    if (std::fabs(received[i] + encoder->residual()[i] - gradient[i]) > 1e-6F) ++wrong;
  }
  std::printf("%s: %zu values in %zu bytes, %zu lost\n", codec->text().c_str(), kElems,
              payload.size(), wrong);
  return wrong == 0 && payload.size() < kElems ? 0 : 1;
}
