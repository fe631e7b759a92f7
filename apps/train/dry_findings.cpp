#include "apps/train/dry_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

std::string verdict_of(const DryRunFindings& found, const Job& job, double compute_seconds,
                       const NamedLink& link) {
  PredictionPlan plan;
  plan.job = job;
  plan.job.tensors = found.tensors;
  plan.exchanges = {job.exchange};
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

}  // namespace

std::string dry_text(const DryRunFindings& found, const Job& job, double compute_seconds,
                     const NamedLink& link) {
  const std::string text = "\n" + dry_run_table(found) + "\n";
  const auto least = std::ranges::min_element(found.rows, {}, &DryRunRow::looks);
  if (least->looks == 0) {
    return text + fmt::format("Tensor {} was not looked at: take {} steps or more.\n",
                              found.tensors[least->tensor].name, found.tensors.size());
  }
  std::string verdict;
  try {
    verdict = verdict_of(found, job, compute_seconds, link);
  } catch (const WrongUsage& misfit) {
    verdict = fmt::format("No verdict: {}.", misfit.what());
  }
  return text + fmt::format("With {} at {}: {}\n", job.exchange, link.text, verdict);
}

}  // namespace tersewire::apps
