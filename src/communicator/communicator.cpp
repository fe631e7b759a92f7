#include "tersewire/communicator.h"

#include <algorithm>
#include <array>
#include <set>

#include "all_gather.h"
#include "errors.h"
#include "node.h"
#include "parameter_server.h"
#include "placement.h"
#include "ring.h"
#include "tersewire/policy.h"

namespace tersewire {
namespace {

struct Exchange {
  std::string_view name;
  bool servers;
  bool workers_own_model;
  // Whether partial sums are encoded again and again: what goes by its largest value, or sends few
  // of its values, loses more at each hop.
  bool encodes_sums;
  decltype(&make_parameter_server_worker) make_worker;
};

constexpr std::array kExchanges{Exchange{.name = "parameter-server",
                                         .servers = true,
                                         .workers_own_model = false,
                                         .encodes_sums = false,
                                         .make_worker = make_parameter_server_worker},
                                Exchange{.name = "gradient-server",
                                         .servers = true,
                                         .workers_own_model = true,
                                         .encodes_sums = false,
                                         .make_worker = make_parameter_server_worker},
                                Exchange{.name = "all-gather",
                                         .servers = false,
                                         .workers_own_model = true,
                                         .encodes_sums = false,
                                         .make_worker = make_all_gather_worker},
                                Exchange{.name = "ring",
                                         .servers = false,
                                         .workers_own_model = true,
                                         .encodes_sums = true,
                                         .make_worker = make_ring_worker}};

constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::days(30);

void check_tensors(const Job& job) {
  if (job.tensors.empty()) {
    fail(ErrorCode::kInvalidArgument, "the job has no tensors; name those that it exchanges");
  }
  std::set<std::string> names;
  for (const TensorInfo& tensor : job.tensors) {
    if (!names.insert(tensor.name).second) {
      fail(ErrorCode::kInvalidArgument, "two tensors are named '{}'; give each its own name",
           tensor.name);
    }
    static_cast<void>(tensor.elems());  // throws where there are too many
  }
}

const Exchange& exchange_of(const Job& job) {
  for (const Exchange& exchange : kExchanges) {
    if (exchange.name == job.exchange) return exchange;
  }
  std::vector<std::string_view> names;
  for (const Exchange& exchange : kExchanges) names.push_back(exchange.name);
  fail(ErrorCode::kInvalidArgument, "there is no exchange '{}'; use {}", job.exchange,
       fmt::join(names, ", "));
}

void check_servers(const Job& job) {
  if (!exchange_of(job).servers) {
    if (job.servers == 0) return;
    fail(ErrorCode::kInvalidArgument, "exchange {} has no servers; use 0 servers instead of {}",
         job.exchange, job.servers);
  }
  const auto tensors = static_cast<int>(std::min<std::size_t>(job.tensors.size(), 1 << 30));
  if (job.servers < 1 || job.servers > tensors) {
    fail(ErrorCode::kInvalidArgument, "{} servers cannot share {} tensors; use 1 to {} servers",
         job.servers, tensors, tensors);
  }
}

void check_update(const Job& job, bool owner, const Update& update) {
  if (owner && !update) {
    fail(ErrorCode::kInvalidArgument,
         "this node owns the model of a {} job; give it an update function", job.exchange);
  }
  if (!owner && update) {
    fail(ErrorCode::kInvalidArgument,
         "this node does not own the model of a {} job; give it no update function", job.exchange);
  }
}

void check_job(const Job& job) {
  check_tensors(job);
  if (job.workers < 1) {
    fail(ErrorCode::kInvalidArgument, "a job needs at least 1 worker, not {}", job.workers);
  }
  check_servers(job);
  if (job.deadline < std::chrono::milliseconds(1) || job.deadline > kLongestDeadline) {
    fail(ErrorCode::kInvalidArgument, "a deadline of {} ms is not between 1 ms and 30 days",
         job.deadline.count());
  }
  if (job.backup_workers > 0 && !exchange_of(job).servers) {
    fail(ErrorCode::kInvalidArgument,
         "exchange {} waits for every worker; use 0 backup workers instead of {}", job.exchange,
         job.backup_workers);
  }
  if (job.backup_workers < 0 || job.backup_workers >= job.workers) {
    fail(ErrorCode::kInvalidArgument,
         "{} of {} workers cannot be backups: at least one gradient has to be waited for",
         job.backup_workers, job.workers);
  }
}

// An error that is bounded for each value, or unbiased.
bool fits_sums(CodecId codec) {
  constexpr std::array kFit{CodecId::kFp32, CodecId::kFp16,       CodecId::kBf16,
                            CodecId::kInt8, CodecId::kInceptionn, CodecId::kQsgd};
  return std::ranges::find(kFit, codec) != kFit.end();
}

void check_codecs(const Placement& placement) {
  if (!exchange_of(placement.job).encodes_sums) return;
  for (const auto& codec : placement.push_codecs) {
    if (fits_sums(codec->id())) continue;
    fail(ErrorCode::kInvalidArgument,
         "codec {} does not fit a ring, where its error would grow with every hop; use fp32, fp16, "
         "bf16, int8, inceptionn or qsgd, or another exchange",
         codec_name(codec->id()));
  }
}

std::shared_ptr<const Placement> place(const Job& job, const Transport& transport) {
  check_job(job);
  if (transport.size() != job.workers + job.servers) {
    fail(ErrorCode::kInvalidArgument,
         "{} workers and {} servers need a network of {} nodes, and this one has {}", job.workers,
         job.servers, job.workers + job.servers, transport.size());
  }
  auto placement = std::make_shared<Placement>();
  placement->job = job;
  placement->push_codecs = choose_codecs(job.policy, job.push_codec, job.tensors);
  placement->pull_codecs = choose_codecs(job.policy, job.pull_codec, job.tensors);
  placement->owners = tensor_servers(job);
  check_codecs(*placement);
  return placement;
}

}  // namespace

bool workers_own_model(const Job& job) { return exchange_of(job).workers_own_model; }

std::unique_ptr<Communicator> make_communicator(const Job& job, Transport& transport,
                                                const Update& update, ThreadPool* pool) {
  return ending_the_job_on_failure(transport, fmt::format("worker {}", transport.rank()), [&] {
    auto placement = place(job, transport);
    if (transport.rank() >= job.workers) {
      fail(ErrorCode::kInvalidArgument, "rank {} is a server; call run_server() there",
           transport.rank());
    }
    check_update(job, workers_own_model(job), update);
    return exchange_of(job).make_worker(std::move(placement), transport, update, pool);
  });
}

Counters run_server(const Job& job, Transport& transport, const Update& update, ThreadPool* pool) {
  return ending_the_job_on_failure(transport, fmt::format("server {}", transport.rank()), [&] {
    auto placement = place(job, transport);
    if (transport.rank() < job.workers) {
      fail(ErrorCode::kInvalidArgument, "rank {} is a worker; call make_communicator() there",
           transport.rank());
    }
    check_update(job, !workers_own_model(job), update);
    const Update pass_on = [](std::size_t, std::span<const float> mean, std::span<float> delta) {
      std::ranges::copy(mean, delta.begin());
    };
    return run_parameter_server(std::move(placement), transport, update ? update : pass_on, pool);
  });
}

std::vector<int> tensor_servers(const Job& job) {
  check_job(job);
  return job.servers == 0 ? std::vector<int>() : place_tensors(job);
}

}  // namespace tersewire
