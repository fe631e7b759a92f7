#include "trainer/data/stroke_samples.h"

#include <array>
#include <span>

#include "trainer/data/stroke_digits.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {

StrokeSamples::StrokeSamples(std::uint64_t seed, std::size_t first, std::size_t count, View view)
    : seed_(seed),
      first_(first),
      count_(count),
      view_(view),
      value_of_(kMnistNormalization),
      kind_{.shape = {1, shown_side(view, kStrokeDigitSide), shown_side(view, kStrokeDigitSide)},
            .classes = kStrokeDigitClasses},
      drawn_(std::make_unique<std::once_flag[]>(count)),
      pixels_(std::make_unique_for_overwrite<std::uint8_t[]>(count * kStrokeDigitPixels)),
      labels_(std::make_unique_for_overwrite<std::uint16_t[]>(count)) {}

void StrokeSamples::append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const {
  std::uint8_t* const pixels = pixels_.get() + index * kStrokeDigitPixels;
  std::call_once(drawn_[index], [&] {
    labels_[index] = draw_stroke_digit(seed_, first_ + index, {pixels, kStrokeDigitPixels});
  });
  const Image image{
      .channels = 1, .height = kStrokeDigitSide, .width = kStrokeDigitSide, .pixels = pixels};
  append_view(image, view_, value_of_, draws, batch.values);
  batch.labels.push_back(labels_[index]);
}

std::uint64_t StrokeSamples::checksum() const {
  const std::array<std::uint64_t, 4> facts = {kStrokeDigitDrawing, seed_, first_, count_};
  return XXH64(facts.data(), sizeof(facts), 0);
}

}  // namespace tersewire::trainer
