// Predicts how long a step of a job takes, from its tensors, its codecs' speed and size, and its
// network. Nothing is measured, and nothing is sent.
//
// Sources: INCEPTIONN, section VII (the alpha-beta-gamma model of a ring and of an aggregator), and
// TernGrad, Appendix B. Added here is what the library does: buckets that are sent while others are
// computed, several buckets on their way at once, every exchange, and clocks of several steps.
// docs/predict.md says what is left out, evidence/predictions how far it is from measurements.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tersewire/communicator.h"

namespace tersewire {

// A node's link, each direction separately.
struct LinkSpeed {
  // As tc and lab/netlab count it: 1448 bytes of a message take 1514 of the link.
  double bits_per_second = 0;
  double latency_seconds = 0;  // from one node to another: half a round trip
  // Whether messages on their way at once share a link, as over MPI, so that all of them arrive
  // late; or follow each other, as over the other transports.
  bool is_shared = false;
};

// A codec's cost per value: its size, and one thread's time.
struct CodecCost {
  double bits = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
};

// Measurements of a codec, for users without their own (docs/predict.md says where).
struct MeasuredCodec {
  std::string_view codec;  // its text
  CodecCost cost;
  // The most points of test accuracy by which it ended below fp32 in four short trainings.
  double points_lost = 0;
};

std::span<const MeasuredCodec> measured_codecs();

// The entry for this text or, if its parameters were not measured, for the same codec's defaults:
// the entry's text then differs. Throws kInvalidArgument for an unknown codec.
const MeasuredCodec& measured_codec(std::string_view codec);

// The conditions that a job would run under.
struct StepConditions {
  LinkSpeed link;
  // Of a step on one worker: a third forward, the rest backward, spread evenly over the tensors of
  // several dimensions.
  double compute_seconds = 0;
  // Of Job::push_codec and Job::pull_codec; without a value, the measured cost.
  std::optional<CodecCost> push;
  std::optional<CodecCost> pull;
  // Each worker of the job stands for a machine with this many GPUs, which first add up their
  // gradients uncompressed, in log2(GPUs) transfers of the whole model, one after the other, at
  // this rate (TernGrad, Appendix B).
  int gpus_per_node = 1;
  double intra_bits_per_second = 0;
};

// A step, averaged over Job::steps_a_round() or the steps between two averages of weights. The four
// parts add up to it.
struct StepPrediction {
  double step_seconds = 0;
  double compute_seconds = 0;
  double codec_seconds = 0;  // added to the step by encoding and decoding
  // Time of the busiest link, and of transfers within a machine, beyond what computation hides at
  // best.
  double wire_seconds = 0;
  // For latency, and for work that depends on data that has not arrived yet.
  double waiting_seconds = 0;
  // On the links between machines, including the headers of Ethernet, IP and TCP, per step.
  double sent_bytes = 0;      // by a worker
  double received_bytes = 0;  // by a worker
  double busiest_bytes = 0;   // the most that one node sends, or receives
};

// Throws kInvalidArgument for an invalid job, and for conditions that are not finite, are negative,
// or have no rate. Any thread. Cost: a few operations for each bucket and hop, and with colocated
// servers for each bucket and worker.
StepPrediction predict_step(const Job& job, const StepConditions& conditions);

// Strong scaling divides a fixed mini-batch among the workers, weak scaling gives each the same.
enum class Scaling { kWeak, kStrong };

// TernGrad's own model, equations 15 and 17: gradients of gradient_bytes take log2 of the GPUs of a
// machine, then log2 of the machines, whole transfers, and nothing is hidden.
//   compute_seconds    of a mini-batch on one GPU, T(1, 1, K, |g|)
//   intra              C_gwd and C_cwd, bits per second; 0: within a machine nothing takes time
// Throws kInvalidArgument if the number of GPUs or machines is below 1, or a rate is not positive.
double terngrad_step_seconds(Scaling scaling, int gpus_per_node, int nodes, double gradient_bytes,
                             double compute_seconds, double intra_bits_per_second,
                             const LinkSpeed& link);

}  // namespace tersewire
