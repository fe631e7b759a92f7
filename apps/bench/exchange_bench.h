// How long a step of distributed training takes, and what it sends: real tensors, codecs, messages
// and transports, with waiting in the place of computation and recorded or made-up gradients.
//
// Computation stands for an accelerator that runs on its own. The forward pass takes a third of its
// time, the backward pass two, both spread evenly over the weights (tensors of several dimensions).
// A layer's forward slice begins when the accelerator is free and pull() has brought the layer's
// tensors; the backward pass runs to a fixed schedule, and push() of a tensor follows as soon as
// its gradient is there. Nothing else holds workers together than what the exchange itself does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/transport.h"

namespace tersewire::bench {

// What is measured: one design a codec, over the same network one after the other.
struct ExchangeBenchConfig {
  ExchangeBenchConfig() {
    job.workers = 10;
    job.seed = 1;
  }

  Job job;  // without the tensors, which are the model's, and the codecs, which are a design's
  std::string model = "resnet110";               // see model_tensors.h
  double scale = 1;                              // of its tensors
  std::vector<std::string> codecs = {"3lc"};     // each for both directions, unless:
  std::optional<std::string> pull_codec;         // what servers send, under all but the baseline
  std::optional<std::string> baseline = "fp32";  // the codec that speedups are over; runs first
  std::string transport = "in-process";          // as join_network() takes it
  double compute_seconds = 0;                    // a step
  double slowest = 1;                            // times as much for each of the last worker's
  // Not measured: codecs with a residual send little at first.
  std::uint64_t warm_up_steps = 2;
  std::uint64_t steps = 10;
};

// One design. Bytes and seconds are those of a step, means over the workers unless it says other.
struct ExchangeBenchRow {
  std::string codec;
  std::string pull_codec;
  // From one begin_step() to the next, of worker 0: the median over measured steps, or rounds of
  // local steps.
  double step_seconds_median = 0;
  double push_bytes = 0;     // sent, as the worker's end of the transport counts them
  double pull_bytes = 0;     // received
  double codec_seconds = 0;  // processor time of encoding and decoding
  // What the node that carries most sends or receives, the larger of the two. Of all steps, the
  // unmeasured ones included.
  double busiest_bytes = 0;
  // A step without computation; nothing where all are.
  std::optional<double> exchange_seconds = std::nullopt;
  // What was hidden behind computation: T + (step at T = 0) - step, as a share of the smaller of
  // the two, from 0 to 1. Nothing where T is 0, or where a step without computation takes no time.
  std::optional<double> hidden = std::nullopt;
  std::optional<double> speedup = std::nullopt;  // over the baseline, in step time
  // What the speedup would be if a step took no longer than its computation.
  std::optional<double> ceiling = std::nullopt;
  // Of all nodes together in all steps, the unmeasured ones included.
  std::uint64_t total_sent_bytes = 0;
  // The largest resident set that a process had while the design ran; where the system does not let
  // it be measured anew, since the process started. In-process all nodes are in one.
  std::uint64_t peak_memory_bytes = 0;
};

// This process's ends of the network: those of all nodes for transport in-process, its own one for
// one between processes. Throws like join_network().
std::vector<std::unique_ptr<Transport>> join_exchange_bench(const ExchangeBenchConfig& config);

// Throws kInvalidArgument for what bench_exchange() would refuse on a network of `nodes` nodes.
void check_exchange_bench(const ExchangeBenchConfig& config, int nodes);

// Runs this process's nodes, each in a thread, and returns the designs in their order, the baseline
// first; every process returns the same. Gradients are replayed from `recorded`, or made up where
// there are none. Throws Error for a configuration that makes no sense, where processes were
// started with different ones, and where a node fails; the job is then over on every node.
// Memory: what each worker of a real job would have of parameters, residuals and messages, and
// GradientSource's once a process.
std::vector<ExchangeBenchRow> bench_exchange(const ExchangeBenchConfig& config,
                                             std::span<const float> recorded,
                                             const std::vector<std::unique_ptr<Transport>>& ends);

}  // namespace tersewire::bench
