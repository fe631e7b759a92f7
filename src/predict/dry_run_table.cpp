#include <fmt/format.h>

#include <algorithm>

#include "tersewire/dry_run.h"

namespace tersewire {
namespace {

constexpr double kNanoseconds = 1e9;

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::size_t width_of(const std::vector<DryRunRow>& totals) {
  std::size_t width = 5;
  for (const DryRunRow& row : totals) width = std::max(width, row.codec.size());
  return width;
}

std::string codecs_table(const DryRunFindings& found) {
  const std::size_t width = width_of(found.totals);
  std::string text = fmt::format("{:<{}} {:>7} {:>9} {:>8} {:>9} {:>11} {:>11}\n", "codec", width,
                                 "bits", "smaller", "lost", "residual", "encode, ns", "decode, ns");
  for (const DryRunRow& row : found.totals) {
    text += fmt::format("{:<{}} {:>7.3g} {:>8.3g}x {:>8} {:>9.3g} {:>11.3g} {:>11.3g}\n", row.codec,
                        width, row.bits, row.bits > 0 ? 32 / row.bits : 0, percent(row.error),
                        row.residual, kNanoseconds * row.encode_seconds,
                        kNanoseconds * row.decode_seconds);
  }
  return text;
}

// Bits per value, and what was lost, of every codec side by side.
std::string tensors_table(const DryRunFindings& found) {
  std::size_t width = 6;
  for (const TensorInfo& tensor : found.tensors) width = std::max(width, tensor.name.size());
  const std::size_t column = std::max<std::size_t>(width_of(found.totals), 15);
  std::string text = fmt::format("{:<{}} {:>10} {:>5}", "tensor", width, "values", "looks");
  for (const DryRunRow& row : found.totals) text += fmt::format("  {:>{}}", row.codec, column);
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    const DryRunRow& row = found.rows[i];
    if (i % found.totals.size() == 0) {
      const TensorInfo& tensor = found.tensors[row.tensor];
      text += fmt::format("\n{:<{}} {:>10} {:>5}", tensor.name, width, tensor.elems(), row.looks);
    }
    text +=
        fmt::format("  {:>{}}", fmt::format("{:.3g}, {:>6}", row.bits, percent(row.error)), column);
  }
  return text + "\n";
}

}  // namespace

std::string dry_run_table(const DryRunFindings& findings) {
  return fmt::format("Dry run, {} of the time:\n{}\nBits per value, and what was lost:\n{}",
                     percent(findings.share), codecs_table(findings), tensors_table(findings));
}

}  // namespace tersewire
