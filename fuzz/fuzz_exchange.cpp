// One node of a job whose peers send whatever they like: well-formed messages, with contents, in an
// order and of steps of the fuzzer's choice.
//
// Input: one byte that chooses exchange and node, one that chooses the codec and, with bit 7, raw
// from all, then messages: bytes of sender, kind, step and number of frames, and for each frame
// bytes of tensor, codec, flags (bit 0: not finite, bit 1: a byte of part follows) and payload
// length, and the payload.
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/tersewire.h"

namespace tersewire::fuzz {
namespace {

constexpr std::size_t kMostMessages = 64;
constexpr std::uint64_t kSteps = 3;
constexpr int kWorkers = 4;

struct Node {
  const char* exchange;
  int rank;
  std::optional<int> servers = {};
  int backup_workers = 0;
  int local_steps = 1;
  int staleness = 0;
};

constexpr std::array kNodes{Node{"parameter-server", 0},
                            Node{"parameter-server", 4},
                            Node{"gradient-server:scaler-sharing=on", 1},
                            Node{"gradient-server:scaler-sharing=on", 4},
                            Node{"aggregator-tree:fan-in=2", 0},
                            Node{"aggregator-tree:fan-in=2", 4},
                            Node{"aggregator-tree:fan-in=2", 6},
                            Node{"all-gather", 0},
                            Node{"ring", 1},
                            Node{"hierarchical-ring:group=2", 2},
                            Node{"hierarchical-ring:group=2,top=tree", 0},
                            Node{"hierarchical-ring:group=2,top=tree", 4},
                            Node{"weight-average:every=2", 0},
                            Node{"weight-average:mode=asynchronous", 3},
                            Node{"parameter-server", 0, Job::kColocated},
                            Node{"gradient-server:scaler-sharing=on", 1, Job::kColocated},
                            Node{"parameter-server", 1, {}, 1},
                            Node{"parameter-server", 4, {}, 1},
                            Node{"gradient-server", 2, Job::kColocated, 1},
                            Node{"parameter-server", 2, {}, 0, 2},
                            Node{"ring", 0, {}, 0, 2},
                            Node{"parameter-server", 0, {}, 0, 1, 2},
                            Node{"parameter-server", 4, {}, 0, 1, 2},
                            Node{"gradient-server", 1, {}, 0, 1, Job::kUnbounded},
                            Node{"parameter-server", 4, {}, 0, 1, Job::kUnbounded},
                            Node{"parameter-server", 2, Job::kColocated, 0, 1, 1},
                            Node{"parameter-server", 4, {}, 1, 1, 2}};

constexpr std::array kCodecs{"fp32", "3lc", "terngrad", "int8", "topk"};

Job job_of(const Node& node, std::uint8_t choices) {
  constexpr std::uint8_t kRawFromAll = 0x80;
  Job job;
  job.tensors = {{"weight", {7, 5}, TensorKind::kDense}, {"bias", {3}, TensorKind::kBias}};
  job.part_values = 20;
  job.workers = kWorkers;
  job.exchange = node.exchange;
  job.servers = node.servers;
  job.backup_workers = node.backup_workers;
  job.local_steps = node.local_steps;
  job.staleness = node.staleness;
  job.push_codec = job.pull_codec = kCodecs[choices % kRawFromAll % kCodecs.size()];
  job.policy = "";
  job.bucket_bytes = 64;
  job.raw_from_all = (choices & kRawFromAll) != 0;
  job.checksum_steps = 2;
  job.deadline = job.progress_limit = std::chrono::milliseconds(1);
  return job;
}

// Nothing where the input has ended.
SharedBytes next_message(Input& input, std::uint32_t sender) {
  if (input.rest().empty()) return nullptr;
  const auto kind = static_cast<MessageKind>(input.take<std::uint8_t>());
  MessageWriter writer({.kind = kind, .sender = sender, .step = input.take<std::uint8_t>()});
  const auto frames = input.take<std::uint8_t>() % 8;
  for (int i = 0; i < frames; ++i) {
    const std::uint32_t tensor = input.take<std::uint8_t>();
    const auto codec = static_cast<CodecId>(input.take<std::uint8_t>());
    const auto flags = input.take<std::uint8_t>();
    const std::uint32_t part = (flags & 2) != 0 ? input.take<std::uint8_t>() : 0;
    std::vector<std::byte> payload(input.take<std::uint8_t>());
    for (std::byte& byte : payload) byte = static_cast<std::byte>(input.take<std::uint8_t>());
    writer.add({.tensor = tensor,
                .part = part,
                .codec = codec,
                .not_finite = (flags & 1) != 0,
                .description = std::nullopt,
                .payload = payload});
  }
  return std::make_shared<const Bytes>(writer.take());
}

void run_worker(const Job& job, Transport& end, const Update& update) {
  const auto worker = make_communicator(job, end, update);
  std::vector<std::vector<float>> parameters;
  for (const TensorInfo& tensor : job.tensors) parameters.emplace_back(tensor.elems(), 0.5F);
  const std::vector<std::span<float>> spans(parameters.begin(), parameters.end());
  while (worker->begin_step() <= kSteps) {
    for (std::size_t i = 0; i < parameters.size(); ++i) worker->pull(i, parameters[i]);
    for (std::size_t i = parameters.size(); i-- > 0;) {
      worker->push(i, std::vector<float>(parameters[i].size(), 0.25F));
    }
  }
  worker->finish(spans);
}

void run_node(const Job& job, Transport& end) {
  const Update copy = [](const Part&, std::span<const float> mean, std::span<float> delta) {
    std::ranges::copy(mean, delta.begin());
  };
  const Update update = needs_update(job, end.rank()) ? copy : Update();
  if (end.rank() < job.workers) return run_worker(job, end, update);
  run_server(job, end, update);
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  Input input(data, size);
  const Node& node = kNodes[input.take<std::uint8_t>() % kNodes.size()];
  const Job job = job_of(node, input.take<std::uint8_t>());
  int nodes = 0;
  // A codec, or raw from all, that does not fit the exchange.
  if (!succeeds([&] { nodes = job.workers + server_nodes(job); })) return 0;
  const auto ends = make_in_process_network(nodes);
  for (std::size_t sent = 0; sent < kMostMessages; ++sent) {
    const int sender = input.take<std::uint8_t>() % nodes;
    if (const SharedBytes message = next_message(input, static_cast<std::uint32_t>(sender))) {
      ends[static_cast<std::size_t>(sender)]->send(node.rank, message);
    }
  }
  succeeds([&] { run_node(job, *ends[static_cast<std::size_t>(node.rank)]); });
  return 0;
}
