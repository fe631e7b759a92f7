#include "tersewire/communicator.h"

#include <algorithm>
#include <set>

#include "errors.h"
#include "node.h"
#include "parameter_server.h"
#include "placement.h"
#include "tersewire/policy.h"

namespace tersewire {
namespace {

constexpr std::string_view kParameterServer = "parameter-server";
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

void check_job(const Job& job) {
  if (job.exchange != kParameterServer) {
    fail(ErrorCode::kInvalidArgument, "there is no exchange '{}'; use {}", job.exchange,
         kParameterServer);
  }
  check_tensors(job);
  if (job.workers < 1) {
    fail(ErrorCode::kInvalidArgument, "a job needs at least 1 worker, not {}", job.workers);
  }
  const auto tensors = static_cast<int>(std::min<std::size_t>(job.tensors.size(), 1 << 30));
  if (job.servers < 1 || job.servers > tensors) {
    fail(ErrorCode::kInvalidArgument, "{} servers cannot share {} tensors; use 1 to {} servers",
         job.servers, tensors, tensors);
  }
  if (job.deadline < std::chrono::milliseconds(1) || job.deadline > kLongestDeadline) {
    fail(ErrorCode::kInvalidArgument, "a deadline of {} ms is not between 1 ms and 30 days",
         job.deadline.count());
  }
  if (job.backup_workers < 0 || job.backup_workers >= job.workers) {
    fail(ErrorCode::kInvalidArgument,
         "{} of {} workers cannot be backups: at least one gradient has to be waited for",
         job.backup_workers, job.workers);
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
  placement->owners = place_tensors(job);
  return placement;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const Job& job, Transport& transport,
                                                ThreadPool* pool) {
  return ending_the_job_on_failure(transport, fmt::format("worker {}", transport.rank()), [&] {
    auto placement = place(job, transport);
    if (transport.rank() >= job.workers) {
      fail(ErrorCode::kInvalidArgument, "rank {} is a server; call run_server() there",
           transport.rank());
    }
    return make_parameter_server_worker(std::move(placement), transport, pool);
  });
}

Counters run_server(const Job& job, Transport& transport, const Update& update, ThreadPool* pool) {
  return ending_the_job_on_failure(transport, fmt::format("server {}", transport.rank()), [&] {
    auto placement = place(job, transport);
    if (transport.rank() < job.workers) {
      fail(ErrorCode::kInvalidArgument, "rank {} is a worker; call make_communicator() there",
           transport.rank());
    }
    return run_parameter_server(std::move(placement), transport, update, pool);
  });
}

std::vector<int> tensor_servers(const Job& job) {
  check_job(job);
  return place_tensors(job);
}

}  // namespace tersewire
