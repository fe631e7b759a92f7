// The embedded data set: digits drawn with a pen, so that a first training run needs no download.
//
// Each image is one of several drawings of its digit, as strokes, that is bent, slanted, turned and
// moved, drawn with a pen of random width and strength, and covered with noise and stray marks. A
// linear classifier stays below 90 % on it and a small convolutional network passes 97 %.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/data/dataset.h"

namespace tersewire::trainer {

// Height and width of an image, in pixels, and the number of classes.
inline constexpr int kStrokeDigitSide = 28;
inline constexpr int kStrokeDigitClasses = 10;

// Draws images first_index ... first_index + count - 1 of the set that `seed` names.
// Image i is a pure function of (seed, i): bit for bit the same on every machine, whichever others
// are drawn. Any ten images from a multiple of ten on hold each class once.
// Any thread. Cost: about 10 microseconds and 785 bytes an image.
Dataset generate_stroke_digits(std::uint64_t seed, std::size_t first_index, std::size_t count);

}  // namespace tersewire::trainer
