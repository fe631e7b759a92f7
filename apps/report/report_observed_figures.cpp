#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "apps/report/report_figures.h"

namespace tersewire::apps {
namespace {

constexpr double kBitsPerFloat = 32;

// Observed steps whose histograms are shown, at most.
constexpr std::size_t kMaxHistograms = 5;

// The largest tensors of a design's last observed step.
std::set<std::string> followed_tensors(const DesignRuns& design) {
  std::set<std::string> names;
  if (design.observed.empty()) return names;
  const std::vector<TensorRecord>& tensors = design.observed.back().tensors;
  for (const std::size_t i : largest_of(tensors, kFollowedTensors)) names.insert(tensors[i].name);
  return names;
}

std::vector<std::vector<double>> histogram_rows(const TensorRecord& tensor) {
  std::vector<std::vector<double>> rows;
  const double width = 2 * tensor.limit / static_cast<double>(tensor.gradient.size());
  for (std::size_t i = 0; i < tensor.gradient.size(); ++i) {
    rows.push_back({-tensor.limit + (static_cast<double>(i) + 0.5) * width, tensor.gradient[i],
                    tensor.decoded[i]});
  }
  return rows;
}

}  // namespace

// TernGrad, figure 2.
Figure histograms(const Designs& designs) {
  Figure figure{.id = "histograms",
                .title = "Gradients before and after the codec",
                .hint =
                    "Distribution of a tensor's values before encoding at worker 0, and after "
                    "decoding (which includes part of the residual). Logarithmic counts.",
                .keys = {"design", "tensor", "step"},
                .columns = {"value", "gradient_count", "decoded_count"},
                .groups = {}};
  for (const DesignRuns& design : designs.list) {
    const std::set<std::string> names = followed_tensors(design);
    for (const std::size_t i : spread(design.observed.size(), kMaxHistograms)) {
      const ObservedStep& step = design.observed[i];
      for (const TensorRecord& tensor : step.tensors) {
        if (!names.contains(tensor.name) || tensor.gradient.empty()) continue;
        figure.groups.push_back(
            {{design.name, tensor.name, fmt::format("{}", step.step)}, histogram_rows(tensor)});
      }
    }
  }
  return figure;
}

// AdaComp, figure 5.
Figure residuals(const Designs& designs) {
  Figure figure{.id = "residuals",
                .title = "What is held back",
                .hint =
                    "Magnitudes of the residual, the part of the gradients that is not sent yet. "
                    "A line that keeps rising says that a codec does not keep up.",
                .keys = {"tensor", "design"},
                .columns = {"step", "residual_p95", "residual_rms", "residual_max"},
                .groups = {}};
  for (const DesignRuns& design : designs.list) {
    std::map<std::string, std::vector<std::vector<double>>> lines;
    const std::set<std::string> names = followed_tensors(design);
    for (const std::size_t i : spread(design.observed.size(), kMaxPoints)) {
      const ObservedStep& step = design.observed[i];
      for (const TensorRecord& tensor : step.tensors) {
        if (!names.contains(tensor.name)) continue;
        lines[tensor.name].push_back(
            {step.step, tensor.residual_p95, tensor.residual_rms, tensor.residual_max});
      }
    }
    for (auto& [name, rows] : lines) {
      // A codec without a residual has no line.
      const bool kept = std::ranges::any_of(rows, [](const auto& row) { return row[3] > 0; });
      if (kept) add_group(figure, {name, design.name}, std::move(rows));
    }
  }
  return figure;
}

Figure layers(const Designs& designs) {
  Figure figure{.id = "layers",
                .title = "Layer by layer",
                .hint =
                    "At the last observed step. The error is relative: the root mean square of "
                    "what decoding misses over that of what was encoded; what it misses stays "
                    "in the residual and is sent later.",
                .keys = {"design", "tensor", "kind", "codec"},
                .columns = {"values", "bits_per_value", "ratio", "relative_error", "gradient_rms"},
                .groups = {}};
  for (const DesignRuns& design : designs.list) {
    if (design.observed.empty()) continue;
    for (const TensorRecord& tensor : design.observed.back().tensors) {
      figure.groups.push_back(
          {{design.name, tensor.name, tensor.kind, tensor.codec},
           {{tensor.values, tensor.bits_per_value, kBitsPerFloat / tensor.bits_per_value,
             tensor.relative_error, tensor.rms}}});
    }
  }
  return figure;
}

}  // namespace tersewire::apps
