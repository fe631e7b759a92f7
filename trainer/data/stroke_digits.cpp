#include "trainer/data/stroke_digits.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

// The images are the same on every machine because single precision +, -, *, / and sqrt are exactly
// defined, are compiled without contraction, and nothing else of libm is called.
static_assert(FLT_EVAL_METHOD == 0, "the images need float arithmetic that is rounded to float");

namespace tersewire::trainer {
namespace {

constexpr int kSide = kStrokeDigitSide;
constexpr std::size_t kPixels = kStrokeDigitPixels;

// Domains of CounterRandom.
constexpr std::uint64_t kClassDomain = 0x636C617373;  // "class"
constexpr std::uint64_t kImageDomain = 0x696D616765;  // "image"

// How far the images stray. Chosen so that a linear classifier stays below 90 % and LeNet passes
// 97 %: turning, moving and resizing hold the first down, noise and stray marks the second.
constexpr float kPointJitter = 0.06F;   // of a drawing's half height
constexpr float kElasticReach = 0.28F;  // the same, at a node of the displacement grid
constexpr float kMaxTurn = 0.30F;       // radians
constexpr float kMaxShear = 0.30F;      // to the side, for each step down
constexpr float kMinHalfHeight = 7.5F;  // pixels
constexpr float kMaxHalfHeight = 10.0F;
constexpr float kMinAspect = 0.75F;  // width to height, against the drawing's own
constexpr float kMaxAspect = 1.20F;
constexpr float kMaxShift = 1.9F;  // pixels
constexpr float kMinPen = 0.7F;    // half the stroke's width, pixels
constexpr float kMaxPen = 1.7F;
constexpr float kMinInk = 0.55F;    // of white
constexpr float kMinNoise = 0.02F;  // standard deviation, of white
constexpr float kMaxNoise = 0.15F;
constexpr float kMaxBackground = 0.12F;
constexpr std::uint32_t kMaxMarks = 3;
constexpr float kMarkInk = 1.0F;  // of the drawing's ink, at most

struct Point {
  float x = 0;
  float y = 0;
};

Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
Point operator*(float s, Point a) { return {s * a.x, s * a.y}; }

enum class Path : std::uint8_t {
  kCorners,  // straight from point to point
  kCurve,    // smoothly through the points
  kLoop,     // the same, and back to the first one
};

constexpr std::size_t kMaxPoints = 10;
constexpr std::size_t kMaxStrokes = 3;

struct Stroke {
  constexpr Stroke() = default;
  constexpr Stroke(Path p, std::initializer_list<Point> list) : path(p), count(list.size()) {
    std::copy(list.begin(), list.end(), points.begin());
  }

  Path path = Path::kCorners;
  std::size_t count = 0;
  std::array<Point, kMaxPoints> points{};
};

struct Drawing {
  constexpr Drawing(int d, std::initializer_list<Stroke> list) : digit(d), count(list.size()) {
    std::copy(list.begin(), list.end(), strokes.begin());
  }

  int digit;
  std::size_t count;
  std::array<Stroke, kMaxStrokes> strokes{};
};

constexpr Path kCorners = Path::kCorners;
constexpr Path kCurve = Path::kCurve;
constexpr Path kLoop = Path::kLoop;

// Ways to write each digit, ordered by digit; x to the right, y downwards, half a height is 1.
// clang-format off
constexpr Drawing kDrawings[] = {
    {0, {{kLoop, {{0, -1}, {.45F, -.75F}, {.62F, 0}, {.45F, .75F}, {0, 1}, {-.45F, .75F},
                  {-.62F, 0}, {-.45F, -.75F}}}}},
    {0, {{kCurve, {{.15F, -.95F}, {-.35F, -.7F}, {-.5F, 0}, {-.3F, .8F}, {.1F, .95F},
                   {.45F, .5F}, {.45F, -.4F}, {.2F, -.85F}, {-.15F, -.8F}}}}},
    {1, {{kCorners, {{0, -1}, {0, 1}}}}},
    {1, {{kCorners, {{-.35F, -.55F}, {.05F, -1}, {.05F, 1}}}}},
    {1, {{kCorners, {{-.35F, -.55F}, {.05F, -1}, {.05F, 1}}},
         {kCorners, {{-.4F, 1}, {.45F, 1}}}}},
    {2, {{kCurve, {{-.55F, -.5F}, {-.35F, -.9F}, {.1F, -1}, {.5F, -.75F}, {.5F, -.3F},
                   {.1F, .25F}, {-.55F, .95F}}},
         {kCorners, {{-.55F, .95F}, {.6F, .95F}}}}},
    {2, {{kCurve, {{-.5F, -.6F}, {-.1F, -1}, {.45F, -.7F}, {.35F, -.1F}, {-.1F, .6F},
                   {-.45F, .9F}, {-.55F, .65F}, {-.25F, .6F}, {.15F, .9F}, {.6F, .85F}}}}},
    {3, {{kCurve, {{-.5F, -.75F}, {-.1F, -1}, {.4F, -.8F}, {.4F, -.3F}, {-.1F, -.05F}}},
         {kCurve, {{-.1F, -.05F}, {.45F, .15F}, {.55F, .6F}, {.1F, 1}, {-.55F, .75F}}}}},
    {3, {{kCorners, {{-.5F, -.95F}, {.5F, -.95F}, {-.05F, -.15F}}},
         {kCurve, {{-.05F, -.15F}, {.45F, .1F}, {.5F, .65F}, {0, 1}, {-.55F, .75F}}}}},
    {4, {{kCorners, {{-.4F, -.95F}, {-.5F, .1F}, {.6F, .1F}}},
         {kCorners, {{.3F, -.6F}, {.25F, 1}}}}},
    {4, {{kCorners, {{.25F, 1}, {.25F, -1}, {-.6F, .35F}, {.6F, .35F}}}}},
    {5, {{kCorners, {{.5F, -.95F}, {-.35F, -.95F}, {-.42F, -.1F}}},
         {kCurve, {{-.42F, -.1F}, {.1F, -.25F}, {.5F, .1F}, {.5F, .6F}, {.05F, 1},
                   {-.55F, .8F}}}}},
    {5, {{kCurve, {{.5F, -.95F}, {-.3F, -.9F}, {-.4F, -.2F}, {.15F, -.2F}, {.5F, .3F},
                   {.3F, .85F}, {-.5F, .9F}}}}},
    {6, {{kCurve, {{.35F, -.95F}, {-.2F, -.6F}, {-.5F, .1F}, {-.4F, .75F}, {.05F, 1},
                   {.45F, .7F}, {.4F, .2F}, {0, .05F}, {-.4F, .3F}}}}},
    {6, {{kCurve, {{-.1F, -1}, {-.4F, -.1F}, {-.45F, .6F}, {-.05F, 1}, {.4F, .75F}, {.4F, .3F},
                   {.05F, .1F}, {-.4F, .4F}}}}},
    {7, {{kCorners, {{-.55F, -.9F}, {.55F, -.9F}, {-.1F, 1}}}}},
    {7, {{kCorners, {{-.55F, -.9F}, {.55F, -.9F}, {-.1F, 1}}},
         {kCorners, {{-.25F, .05F}, {.45F, .05F}}}}},
    {7, {{kCorners, {{-.55F, -.7F}, {-.5F, -.95F}, {.5F, -.9F}}},
         {kCurve, {{.5F, -.9F}, {.15F, -.2F}, {-.05F, .4F}, {-.1F, 1}}}}},
    {8, {{kLoop, {{0, -1}, {.4F, -.8F}, {.4F, -.3F}, {0, -.05F}, {-.4F, -.3F}, {-.4F, -.8F}}},
         {kLoop, {{0, -.05F}, {.5F, .2F}, {.5F, .75F}, {0, 1}, {-.5F, .75F}, {-.5F, .2F}}}}},
    {8, {{kLoop, {{.4F, -.75F}, {0, -1}, {-.4F, -.7F}, {-.2F, -.25F}, {.25F, .15F}, {.45F, .6F},
                  {0, 1}, {-.45F, .6F}, {-.2F, .15F}, {.25F, -.25F}}}}},
    {9, {{kLoop, {{.4F, -.55F}, {.05F, -1}, {-.4F, -.75F}, {-.4F, -.3F}, {0, -.05F},
                  {.35F, -.3F}}},
         {kCorners, {{.42F, -.6F}, {.35F, 1}}}}},
    {9, {{kCurve, {{.42F, -.7F}, {0, -1}, {-.45F, -.6F}, {-.2F, -.1F}, {.3F, -.3F},
                   {.42F, -.7F}}},
         {kCurve, {{.42F, -.7F}, {.4F, .2F}, {.15F, .9F}, {-.35F, .95F}}}}},
};
// clang-format on

// The drawings of one digit: they lie side by side in kDrawings.
std::span<const Drawing> drawings_of(int digit) {
  const auto is_its = [digit](const Drawing& drawing) { return drawing.digit == digit; };
  const auto* first = std::find_if(std::begin(kDrawings), std::end(kDrawings), is_its);
  const auto* last = std::find_if_not(first, std::end(kDrawings), is_its);
  return {first, last};
}

// Bends the plane: a quadratic B-spline over a grid of random displacements. Smoothing comes from
// the spline, and only points of strokes are moved, never pixels.
class Elastic {
 public:
  explicit Elastic(CounterRandom& random) {
    for (Point& node : nodes_) {
      node.x = random.uniform(-kElasticReach, kElasticReach);
      node.y = random.uniform(-kElasticReach, kElasticReach);
    }
  }

  [[nodiscard]] Point moved(Point p) const {
    const Axis x = axis_at(p.x);
    const Axis y = axis_at(p.y);
    Point sum = p;
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t column = 0; column < 3; ++column) {
        const Point& node = nodes_[(y.first + row) * kNodes + x.first + column];
        sum = sum + (x.weights[column] * y.weights[row]) * node;
      }
    }
    return sum;
  }

 private:
  static constexpr std::size_t kNodes = 6;

  struct Axis {
    std::size_t first;
    std::array<float, 3> weights;
  };

  // The three nodes that act on a coordinate; the grid's inner part spans [-1.25, 1.25].
  static Axis axis_at(float value) {
    const float cells = static_cast<float>(kNodes - 2);
    const float at = std::clamp((value + 1.25F) * (cells / 2.5F), 0.0F, cells - 0.001F);
    const auto first = static_cast<std::size_t>(at);
    const float t = at - static_cast<float>(first);
    const float u = 1 - t;
    return {first, {0.5F * u * u, 0.5F + t * u, 0.5F * t * t}};
  }

  std::array<Point, kNodes * kNodes> nodes_;
};

// From a drawing's coordinates to pixels: size, slant, turn and place.
class Placement {
 public:
  explicit Placement(CounterRandom& random) {
    const float height = random.uniform(kMinHalfHeight, kMaxHalfHeight);
    const float width = height * random.uniform(kMinAspect, kMaxAspect);
    const float slant = random.uniform(-kMaxShear, kMaxShear);
    const float turn = random.uniform(-kMaxTurn, kMaxTurn);
    // Taylor's polynomials; for turns this small they are off by less than a thousandth.
    const float square = turn * turn;
    const float sine = turn * (1 - square / 6);
    const float cosine = 1 - square / 2 + square * square / 24;
    x_axis_ = {width * cosine, width * sine};
    y_axis_ = {height * (slant * cosine - sine), height * (slant * sine + cosine)};
    centre_ = {(kSide - 1) * 0.5F + random.uniform(-kMaxShift, kMaxShift),
               (kSide - 1) * 0.5F + random.uniform(-kMaxShift, kMaxShift)};
  }

  [[nodiscard]] Point at(Point p) const { return centre_ + p.x * x_axis_ + p.y * y_axis_; }

 private:
  Point x_axis_;
  Point y_axis_;
  Point centre_;
};

// What a pen has touched: for each pixel the square of its distance to the nearest line.
class Trace {
 public:
  explicit Trace(float half_width) : reach_(half_width + 0.5F) {
    squares_.fill(std::numeric_limits<float>::max());
  }

  void line(Point a, Point b) {
    const Point along = b - a;
    const float length_square = along.x * along.x + along.y * along.y;
    const float scale = length_square > 0 ? 1 / length_square : 0.0F;
    const auto [x0, x1] = pixels_between(std::min(a.x, b.x), std::max(a.x, b.x));
    const auto [y0, y1] = pixels_between(std::min(a.y, b.y), std::max(a.y, b.y));
    for (int y = y0; y < y1; ++y) {
      float* row = squares_.data() + y * kSide;
      const float dy = static_cast<float>(y) - a.y;
      for (int x = x0; x < x1; ++x) {
        const float dx = static_cast<float>(x) - a.x;
        const float t = std::clamp((dx * along.x + dy * along.y) * scale, 0.0F, 1.0F);
        const float ex = dx - t * along.x;
        const float ey = dy - t * along.y;
        row[x] = std::min(row[x], ex * ex + ey * ey);
      }
    }
  }

  // How much of the pixel is covered, 0 to 1: an edge is one pixel wide.
  [[nodiscard]] float cover(std::size_t pixel) const {
    return std::clamp(reach_ - std::sqrt(squares_[pixel]), 0.0F, 1.0F);
  }

 private:
  // The pixels within reach of an interval, cut to the image.
  [[nodiscard]] std::pair<int, int> pixels_between(float low, float high) const {
    const float limit = kSide;
    return {static_cast<int>(std::clamp(low - reach_ + 1, 0.0F, limit)),
            static_cast<int>(std::clamp(high + reach_ + 1, 0.0F, limit))};
  }

  float reach_;  // pixels beyond are untouched
  std::array<float, kPixels> squares_;
};

// Catmull and Rom's curve between b and c, at t in [0, 1].
Point curve_at(Point a, Point b, Point c, Point d, float t) {
  const Point linear = c - a;
  const Point square = 2.0F * a - 5.0F * b + 4.0F * c - d;
  const Point cube = 3.0F * (b - c) + d - a;
  return b + (0.5F * t) * (linear + t * (square + t * cube));
}

// A stroke's point number i; beyond its ends a loop goes round and a curve stands still.
Point point_at(const Stroke& stroke, std::ptrdiff_t i) {
  const auto count = static_cast<std::ptrdiff_t>(stroke.count);
  const std::ptrdiff_t inside = stroke.path == Path::kLoop
                                    ? (i + count) % count
                                    : std::clamp<std::ptrdiff_t>(i, 0, count - 1);
  return stroke.points[static_cast<std::size_t>(inside)];
}

Point path_at(const Stroke& stroke, std::ptrdiff_t i, float t) {
  const Point b = point_at(stroke, i);
  const Point c = point_at(stroke, i + 1);
  if (stroke.path == Path::kCorners) return b + t * (c - b);
  return curve_at(point_at(stroke, i - 1), b, c, point_at(stroke, i + 2), t);
}

template <typename Map>
void draw_stroke(const Stroke& stroke, const Map& map, Trace& trace) {
  constexpr int kParts = 4;  // straight parts between two points: short enough to look bent
  const auto points = static_cast<std::ptrdiff_t>(stroke.count);
  const std::ptrdiff_t pieces = stroke.path == Path::kLoop ? points : points - 1;
  Point from = map(path_at(stroke, 0, 0));
  for (std::ptrdiff_t i = 0; i < pieces; ++i) {
    for (int part = 1; part <= kParts; ++part) {
      const Point to = map(path_at(stroke, i, static_cast<float>(part) / kParts));
      trace.line(from, to);
      from = to;
    }
  }
}

Trace draw_digit(int digit, CounterRandom& random) {
  const std::span<const Drawing> ways = drawings_of(digit);
  Drawing drawing = ways[random.below(ways.size())];
  const Elastic elastic(random);
  const Placement placement(random);
  Trace trace(random.uniform(kMinPen, kMaxPen));
  const auto map = [&](Point p) { return placement.at(elastic.moved(p)); };
  for (Stroke& stroke : std::span(drawing.strokes).first(drawing.count)) {
    for (Point& point : std::span(stroke.points).first(stroke.count)) {
      point.x += random.uniform(-kPointJitter, kPointJitter);
      point.y += random.uniform(-kPointJitter, kPointJitter);
    }
    draw_stroke(stroke, map, trace);
  }
  return trace;
}

// Short lines that belong to no digit.
Trace draw_marks(CounterRandom& random) {
  Trace trace(random.uniform(kMinPen, 1.0F));
  const std::uint32_t marks = random.below(kMaxMarks + 1);
  for (std::uint32_t i = 0; i < marks; ++i) {
    const Point from{random.uniform(0, kSide), random.uniform(0, kSide)};
    trace.line(from, from + Point{random.uniform(-5, 5), random.uniform(-5, 5)});
  }
  return trace;
}

// Nearly normal, mean 0 and deviation 1: the sum of four uniform numbers.
float noise(CounterRandom& random) {
  const std::uint64_t bits = random.bits();
  const auto sum = static_cast<std::int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                             (bits >> 32 & 0xFFFF) + (bits >> 48));
  constexpr float kRootOfThree = 1.7320508F;  // 1 over the deviation of the sum
  return static_cast<float>(sum - 2 * 0xFFFF) * (kRootOfThree / 65536.0F);
}

std::uint8_t quantised(float value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 1.0F) * 255.0F + 0.5F);
}

void draw_image(int digit, CounterRandom random, std::span<std::uint8_t> pixels) {
  const Trace digit_trace = draw_digit(digit, random);
  const Trace marks = draw_marks(random);
  const float ink = random.uniform(kMinInk, 1);
  const float mark_ink = ink * random.uniform(0.2F, kMarkInk);
  const float background = random.uniform(0, kMaxBackground);
  const float deviation = random.uniform(kMinNoise, kMaxNoise);
  std::array<float, kPixels> noises;
  for (float& value : noises) value = deviation * noise(random);
  for (std::size_t i = 0; i < kPixels; ++i) {  // several pixels at a time
    const float drawn = std::max(ink * digit_trace.cover(i), mark_ink * marks.cover(i));
    pixels[i] = quantised(std::max(drawn, background) + noises[i]);
  }
}

// Ten images in a row hold the ten classes, in an order of their own.
int class_of(std::uint64_t seed, std::uint64_t index) {
  std::array<int, kStrokeDigitClasses> order{};
  std::iota(order.begin(), order.end(), 0);
  CounterRandom random(seed, kClassDomain, index / kStrokeDigitClasses);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order[index % kStrokeDigitClasses];
}

}  // namespace

std::uint16_t draw_stroke_digit(std::uint64_t seed, std::uint64_t index,
                                std::span<std::uint8_t> pixels) {
  const int digit = class_of(seed, index);
  draw_image(digit, CounterRandom(seed, kImageDomain, index), pixels);
  return static_cast<std::uint16_t>(digit);
}

Dataset generate_stroke_digits(std::uint64_t seed, std::size_t first_index, std::size_t count) {
  Dataset data;
  data.classes = kStrokeDigitClasses;
  data.height = kSide;
  data.width = kSide;
  data.pixels.resize(count * kPixels);
  data.labels.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    data.labels[i] = draw_stroke_digit(seed, first_index + i,
                                       std::span(data.pixels).subspan(i * kPixels, kPixels));
  }
  return data;
}

}  // namespace tersewire::trainer
