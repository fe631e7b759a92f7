#include "apps/train/dry_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tersewire::apps {
namespace {

using Json = nlohmann::json;

constexpr double kNanoseconds = 1e9;

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::size_t width_of(const std::vector<DryRunRow>& totals) {
  std::size_t width = 5;
  for (const DryRunRow& row : totals) width = std::max(width, row.codec.size());
  return width;
}

std::string codecs_table(const DryFindings& found) {
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

// Bits a value, and what was lost, of every codec side by side.
std::string tensors_table(const DryFindings& found) {
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

std::string verdict_of(const DryFindings& found, const Job& job, double compute_seconds,
                       const NamedLink& link) {
  PredictionPlan plan;
  plan.tensors = found.tensors;
  plan.exchanges = {job.exchange};
  plan.servers = job.servers;
  plan.local_steps = job.local_steps;
  plan.policy = job.policy;
  plan.compute_seconds = compute_seconds;
  for (const DryRunRow& row : found.totals) {
    plan.codecs.push_back(row.codec);
    const CodecCost cost{.bits = row.bits,
                         .encode_seconds = row.encode_seconds,
                         .decode_seconds = row.decode_seconds};
    plan.push_costs[row.codec] = plan.pull_costs[row.codec] = cost;
  }
  return verdict(plan, predict_designs(plan, job.workers, link));
}

Json row_json(const DryRunRow& row) {
  return {{"codec", row.codec},
          {"looks", row.looks},
          {"bits_per_value", row.bits},
          {"error", row.error},
          {"residual", row.residual},
          {"encode_seconds_per_value", row.encode_seconds},
          {"decode_seconds_per_value", row.decode_seconds}};
}

}  // namespace

Json dry_json(const DryFindings& found, const NamedLink& link) {
  Json json{{"rate_bits_per_second", link.speed.bits_per_second},
            {"latency_seconds", link.speed.latency_seconds},
            {"share_of_time", found.share},
            {"codecs", Json::array()},
            {"tensors", Json::array()}};
  for (const DryRunRow& row : found.totals) json["codecs"].push_back(row_json(row));
  for (const DryRunRow& row : found.rows) {
    Json tensor{{"tensor", found.tensors[row.tensor].name},
                {"values", found.tensors[row.tensor].elems()}};
    tensor.update(row_json(row));
    json["tensors"].push_back(std::move(tensor));
  }
  return json;
}

std::string dry_text(const DryFindings& found, const Job& job, double compute_seconds,
                     const NamedLink& link) {
  std::string text =
      fmt::format("\nDry run, {} of the time:\n{}\nBits a value, and what was lost:\n{}\n",
                  percent(found.share), codecs_table(found), tensors_table(found));
  const auto least = std::ranges::min_element(found.rows, {}, &DryRunRow::looks);
  if (least->looks == 0) {
    return text + fmt::format("Tensor {} was not looked at: take {} steps or more.\n",
                              found.tensors[least->tensor].name, found.tensors.size());
  }
  return text + fmt::format("With {} at {}: {}\n", job.exchange, link.text,
                            verdict_of(found, job, compute_seconds, link));
}

}  // namespace tersewire::apps
