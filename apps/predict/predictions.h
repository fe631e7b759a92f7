// What designs would take, each an exchange and a codec, of one job under one network.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/predict.h"

namespace tersewire::apps {

// A link as the command line has it.
struct NamedLink {
  std::string text;
  LinkSpeed speed;
};

// RATE or RATE,LATENCY: 100mbit, or 100mbit,20ms. Throws WrongUsage.
NamedLink link_argument(const std::string& text);

// In the place of an exchange: TernGrad's Appendix B, for comparison. Nothing of ours runs so.
inline constexpr std::string_view kTernGradModel = "terngrad-model";

struct PredictionPlan {
  Job job;                             // except for what follows
  std::vector<std::string> exchanges;  // none: all of ours, where servers can be, colocated too
  std::vector<std::string> codecs;     // none: all that were measured
  std::optional<std::string> pull_codec;
  Scaling scaling = Scaling::kWeak;
  double compute_seconds = 0;
  int gpus_per_node = 1;
  double intra_bits_per_second = 0;
  std::map<std::string, CodecCost> push_costs;  // of a probe, by codec
  std::map<std::string, CodecCost> pull_costs;

  // Who names codecs has chosen which to trust.
  [[nodiscard]] bool codecs_are_named() const { return !codecs.empty(); }
};

struct Prediction {
  std::string exchange;
  std::string codec;
  std::string pull_codec;
  std::string placement;  // of servers: "colocated", a number, or nothing
  int workers = 0;
  NamedLink link;
  StepPrediction step;
  double speedup = 0;  // over the fastest design with fp32

  // "parameter-server, colocated/3lc"
  [[nodiscard]] std::string design() const;
  // What is before the slash.
  [[nodiscard]] std::string placed_exchange() const;
  // The codecs that sends beside another: "3lc", "inceptionn, pull fp32".
  [[nodiscard]] std::string codecs() const;
};

// Every design that fits, the exchanges' order, then the codecs'. Throws WrongUsage with the
// sentence of the last one where none does.
std::vector<Prediction> predict_designs(const PredictionPlan& plan, int workers,
                                        const NamedLink& link);

// Of what predict_designs() made, the largest speedup: of `all`, or of codecs that trained nearly
// as fp32 does, within kMostPointsLost.
inline constexpr double kMostPointsLost = 0.5;
double most_gained(const std::vector<Prediction>& predictions, bool all);

// What to take: of those that are about as fast as the fastest, the one that compresses least.
const Prediction& best_of(const std::vector<Prediction>& predictions, bool all);

// Two sentences: which design, how much, and above which rate compression does not pay. One where
// no codec may be taken, or none that is named compresses.
std::string verdict(const PredictionPlan& plan, const std::vector<Prediction>& predictions);

}  // namespace tersewire::apps
