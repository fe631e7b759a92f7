#include "tersewire/dry_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "errors.h"
#include "tersewire/codec.h"
#include "tersewire/communicator.h"
#include "tersewire/policy.h"

namespace tersewire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double square_sum(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

// What a row says of a codec, each a mean over its values.
constexpr std::array kFigures = {&DryRunRow::bits, &DryRunRow::error, &DryRunRow::residual,
                                 &DryRunRow::encode_seconds, &DryRunRow::decode_seconds};

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// One codec on one tensor: an encoder for each of its parts, as a job has them.
class Trial {
 public:
  Trial(const TensorInfo& tensor, std::size_t number, const Codec& codec, std::string text,
        std::uint64_t seed)
      : text_(std::move(text)) {
    for (std::size_t begin = 0; begin < tensor.elems(); begin += Job::kDefaultPartValues) {
      encoders_.push_back(codec.make_encoder(
          std::min(tensor.elems() - begin, Job::kDefaultPartValues),
          {.seed = seed, .tensor = static_cast<std::uint32_t>(number), .kind = tensor.kind}));
    }
  }

  void look(std::uint64_t step, std::span<const float> gradient) {
    double encode_seconds = 0;
    double decode_seconds = 0;
    double bytes = 0;
    double error = 0;
    double whole = 0;
    double residual = 0;
    std::size_t begin = 0;
    for (const auto& encoder : encoders_) {
      const auto values = gradient.subspan(begin, encoder->elems());
      begin += encoder->elems();
      std::vector<float> owed(values.begin(), values.end());
      // Of differences: what was sent so far, negated, which receivers add to.
      const std::span<const float> kept = encoder->residual();
      const std::vector<float> before(kept.begin(), kept.end());
      const bool follows = encoder->sends_differences();
      for (std::size_t i = 0; i < before.size() && !follows; ++i) owed[i] += before[i];
      Bytes payload;
      const Clock::time_point encoding = Clock::now();
      const Encoded encoded = encoder->encode(values, step, payload);
      encode_seconds += seconds_since(encoding);
      if (encoded.not_finite) return;
      std::vector<float> decoded(values.size());
      const Clock::time_point decoding = Clock::now();
      decode(encoded.codec, payload, decoded);
      decode_seconds += seconds_since(decoding);
      bytes += static_cast<double>(payload.size());
      whole += square_sum(owed);
      for (std::size_t i = 0; i < owed.size(); ++i) {
        owed[i] -= follows ? decoded[i] - before[i] : decoded[i];
      }
      error += square_sum(owed);
      residual += follows ? square_sum(owed) : square_sum(encoder->residual());
    }
    const auto values = static_cast<double>(gradient.size());
    ++looks_;
    bits_ += 8 * bytes / values;
    error_ += error;
    whole_ += whole;
    residual_ = std::sqrt(ratio(residual, square_sum(gradient)));
    encode_seconds_ = std::min(encode_seconds_, encode_seconds / values);
    decode_seconds_ = std::min(decode_seconds_, decode_seconds / values);
  }

  void tell(DryRunRow& row) const {
    row.used = text_;
    row.looks = looks_;
    if (looks_ == 0) return;
    row.bits = bits_ / static_cast<double>(looks_);
    row.error = std::sqrt(ratio(error_, whole_));
    row.residual = residual_;
    row.encode_seconds = encode_seconds_;
    row.decode_seconds = decode_seconds_;
  }

 private:
  std::string text_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::uint64_t looks_ = 0;
  double bits_ = 0;   // as the next two a sum over the looks
  double error_ = 0;  // squares
  double whole_ = 0;  // squares
  double residual_ = 0;
  double encode_seconds_ = std::numeric_limits<double>::infinity();
  double decode_seconds_ = std::numeric_limits<double>::infinity();
};

void refuse_codec_that_needs_gradient(const Codec& codec) {
  if (!codec.needs_gradient()) return;
  fail(ErrorCode::kInvalidArgument,
       "codec {} derives its bits from the gradient of the encoded values, which a dry run has "
       "none of; use bits-from=entropy, or bits=N",
       codec.text());
}

}  // namespace

std::vector<std::string> codec_list(std::string_view text) {
  std::vector<std::string> codecs;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view piece = text.substr(begin, end - begin);
    const bool is_parameter = piece.substr(0, piece.find(':')).find('=') != std::string_view::npos;
    if (is_parameter && !codecs.empty()) {
      codecs.back().append(",").append(piece);
    } else {
      codecs.emplace_back(piece);
    }
    begin = end + 1;
  }
  return codecs;
}

struct DryRun::State {
  std::vector<TensorInfo> tensors;
  std::vector<std::string> codecs;
  std::vector<std::vector<Trial>> trials;  // by tensor, then by codec
  std::vector<double> costs;               // seconds of a tensor's last look; below 0: none yet
  std::size_t next;                        // tensor: from the last to the first, as gradients come
  std::uint64_t last_step = 0;             // in which a tensor was looked at
  Clock::time_point began = Clock::now();
  double seconds = 0;

  [[nodiscard]] bool is_due(std::size_t tensor, std::uint64_t step) const {
    if (tensor != next) return false;
    if (costs[tensor] < 0) return step != last_step;
    return seconds + costs[tensor] <= kMostShare * seconds_since(began);
  }
};

DryRun::DryRun(std::vector<TensorInfo> tensors, std::vector<std::string> codecs,
               std::string_view policy, std::uint64_t seed)
    : state_(std::make_unique<State>()) {
  if (tensors.empty() || codecs.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "a dry run needs at least one tensor and one codec, not {} and {}", tensors.size(),
         codecs.size());
  }
  state_->trials.resize(tensors.size());
  for (const std::string& codec : codecs) {
    const auto chosen = choose_codecs(policy, codec, tensors);
    const std::string in_full = make_codec(codec)->text();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      refuse_codec_that_needs_gradient(*chosen[i]);
      const std::string used = chosen[i]->text();
      state_->trials[i].emplace_back(tensors[i], i, *chosen[i], used == in_full ? codec : used,
                                     seed);
    }
  }
  state_->costs.assign(tensors.size(), -1);
  state_->next = tensors.size() - 1;
  state_->tensors = std::move(tensors);
  state_->codecs = std::move(codecs);
}

DryRun::~DryRun() = default;

bool DryRun::is_due(std::size_t tensor, std::uint64_t step) const {
  return state_->is_due(tensor, step);
}

void DryRun::look(std::size_t tensor, std::uint64_t step, std::span<const float> gradient) {
  State& state = *state_;
  if (tensor >= state.tensors.size() || gradient.size() != state.tensors[tensor].elems()) {
    fail(ErrorCode::kInvalidArgument, "tensor {} with {} values is not part of the dry run", tensor,
         gradient.size());
  }
  if (!state.is_due(tensor, step)) return;
  const Clock::time_point began = Clock::now();
  for (Trial& trial : state.trials[tensor]) trial.look(step, gradient);
  state.costs[tensor] = seconds_since(began);
  state.seconds += state.costs[tensor];
  state.last_step = step;
  state.next = (tensor == 0 ? state.tensors.size() : tensor) - 1;
}

const std::vector<TensorInfo>& DryRun::tensors() const { return state_->tensors; }

std::vector<DryRunRow> DryRun::rows() const {
  std::vector<DryRunRow> rows;
  for (std::size_t tensor = 0; tensor < state_->tensors.size(); ++tensor) {
    if (state_->tensors[tensor].elems() == 0) continue;
    for (std::size_t codec = 0; codec < state_->codecs.size(); ++codec) {
      rows.push_back({.tensor = tensor, .codec = state_->codecs[codec]});
      state_->trials[tensor][codec].tell(rows.back());
    }
  }
  return rows;
}

std::vector<DryRunRow> DryRun::totals() const {
  std::vector<DryRunRow> totals;
  const std::vector<DryRunRow> all = rows();
  for (std::size_t codec = 0; codec < state_->codecs.size(); ++codec) {
    DryRunRow total{.codec = state_->codecs[codec], .looks = all.empty() ? 0 : all[codec].looks};
    double values = 0;
    for (std::size_t i = codec; i < all.size(); i += state_->codecs.size()) {
      const DryRunRow& row = all[i];
      total.looks = std::min(total.looks, row.looks);
      if (row.looks == 0) continue;
      const auto weight = static_cast<double>(state_->tensors[row.tensor].elems());
      values += weight;
      for (const auto figure : kFigures) total.*figure += weight * (row.*figure);
    }
    for (const auto figure : kFigures) total.*figure = ratio(total.*figure, values);
    totals.push_back(total);
  }
  return totals;
}

double DryRun::share() const { return ratio(state_->seconds, seconds_since(state_->began)); }

DryRunFindings DryRun::findings() const {
  return {.tensors = tensors(), .rows = rows(), .totals = totals(), .share = share()};
}

}  // namespace tersewire
