// How long a step of a job would take: calculated from its tensors, its codecs' speed and size, and
// its network. Nothing is measured, and nothing is sent.
//
// Sources: INCEPTIONN, section VII (the alpha-beta-gamma model of a ring and of an aggregator), and
// TernGrad, Appendix B. What this adds is what the library does: buckets that travel while others
// are computed, several buckets on their way at once, every exchange, and clocks of several steps.
// docs/predict.md says what is left out, docs/record.md how far it is from what was measured.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tersewire/communicator.h"

namespace tersewire {

// A node's link, each way on its own.
struct LinkSpeed {
  // As tc and lab/netlab count it: 1448 bytes of a message take 1514 of the link.
  double bits_per_second = 0;
  double latency_seconds = 0;  // from one node to another: half a round trip
  // Whether messages that are on their way at once share a link, as over MPI, so that all of them
  // arrive late; or follow each other, as over the other transports.
  bool is_shared = false;
};

// What a codec makes of a value, and what one thread takes for it.
struct CodecCost {
  double bits = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
};

// What Job::exchange may name, in the order of docs/exchanges.md.
std::vector<std::string_view> exchange_names();

// What was measured of a codec, for those who have measured nothing (docs/predict.md says where).
struct MeasuredCodec {
  std::string_view codec;  // its text
  CodecCost cost;
  // The most points of test accuracy that it ended below fp32 in four short trainings.
  double points_lost = 0;
};

std::span<const MeasuredCodec> measured_codecs();

// That of this text, or where it has other parameters than were measured, of the same codec's
// defaults: its text then differs. Throws kInvalidArgument for a codec that does not exist.
const MeasuredCodec& measured_codec(std::string_view codec);

// Under what a job would run.
struct StepConditions {
  LinkSpeed link;
  // A step's on one worker: a third forward, the rest backward, spread evenly over the tensors of
  // several dimensions.
  double compute_seconds = 0;
  // Of Job::push_codec and Job::pull_codec; without a value what was measured.
  std::optional<CodecCost> push;
  std::optional<CodecCost> pull;
  // Each worker of the job stands for a machine of so many GPUs, which first add up their gradients
  // uncompressed, in log2 of their number transfers of the whole model, one after the other, at
  // this rate (TernGrad, Appendix B).
  int gpus_per_node = 1;
  double intra_bits_per_second = 0;
};

// A step, on average over Job::steps_a_round() or the steps between two averages of weights. The
// four parts add up to it.
struct StepPrediction {
  double step_seconds = 0;
  double compute_seconds = 0;
  double codec_seconds = 0;  // what encoding and decoding add to the step
  // What the busiest link, and transfers within a machine, take beyond what computation hides at
  // best.
  double wire_seconds = 0;
  // For latency, and for what depends on something that is not there yet.
  double waiting_seconds = 0;
  // On the links between machines, with the headers of Ethernet, IP and TCP, a step.
  double sent_bytes = 0;      // by a worker
  double received_bytes = 0;  // by a worker
  double busiest_bytes = 0;   // the most that one node sends, or receives
};

// Throws kInvalidArgument for a job that makes no sense, and for conditions that are not finite,
// are negative, or have no rate. Any thread. Cost: a few operations for each bucket and hop, and
// with colocated servers for each bucket and worker.
StepPrediction predict_step(const Job& job, const StepConditions& conditions);

// Strong scaling shares a fixed mini-batch among the workers, weak scaling gives each as much.
enum class Scaling { kWeak, kStrong };

// TernGrad's own model, equations 15 and 17: gradients of so many bytes go over log2 of the GPUs of
// a machine, then log2 of the machines, whole transfers, and nothing is hidden.
//   compute_seconds    of a mini-batch on one GPU, T(1, 1, K, |g|)
//   intra              C_gwd and C_cwd, bits per second; 0: within a machine nothing takes time
// Throws kInvalidArgument where a number of GPUs or machines is below 1, or a rate is not positive.
double terngrad_step_seconds(Scaling scaling, int gpus_per_node, int nodes, double gradient_bytes,
                             double compute_seconds, double intra_bits_per_second,
                             const LinkSpeed& link);

}  // namespace tersewire
