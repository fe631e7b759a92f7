#include "tersewire/communicator.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "colocated.h"
#include "ends.h"
#include "errors.h"
#include "exchange_table.h"
#include "local_steps.h"
#include "local_updates.h"
#include "node.h"
#include "place_job.h"
#include "progress.h"
#include "state_check.h"
#include "tersewire/counted.h"

namespace tersewire {
namespace {

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

void check_part_values(const Job& job) {
  if (job.part_values == Job::kWholeTensors) return;
  if (job.part_values > 0 && job.part_values % 4 == 0) return;
  fail(ErrorCode::kInvalidArgument,
       "tensors cannot be cut into parts of {} values; use a multiple of 4, or whole tensors",
       job.part_values);
}

void check_backup_workers(const Job& job) {
  if (job.backup_workers == 0) return;
  const auto [exchange, options] = choose_exchange(job);
  if (!exchange.traits.shards || options.scaler_sharing) {
    fail(ErrorCode::kInvalidArgument,
         "exchange {} has no backup workers; use 0 of them instead of {}, or parameter-server or "
         "gradient-server without scaler sharing",
         job.exchange, job.backup_workers);
  }
  if (job.backup_workers < 0 || job.backup_workers >= job.workers) {
    fail(ErrorCode::kInvalidArgument,
         "{} of {} cannot be backups: at least one gradient has to be waited for",
         job.backup_workers, counted(job.workers, "worker"));
  }
}

// Whether workers can agree on what travels raw.
void check_raw_from_all(const Job& job) {
  if (!job.raw_from_all) return;
  if (job.backup_workers > 0) {
    fail(
        ErrorCode::kInvalidArgument,
        "raw from all means that workers agree on every step, and with {} some are not waited for; "
        "use 0 backup workers, or omit raw from all",
        counted(job.backup_workers, "backup worker"));
  }
  const auto [exchange, options] = choose_exchange(job);
  if (options.average_asynchronous) {
    fail(ErrorCode::kInvalidArgument,
         "raw from all means that workers agree on every step, and with exchange {} they do not "
         "wait for each other; use mode=synchronous, or omit raw from all",
         job.exchange);
  }
  if (!options.scaler_sharing) return;
  // With scalers workers agree on what is not finite, and on nothing where there are none.
  for (const auto& codec : choose_push_codecs(job)) {
    const CodecTraits& traits = codec->traits();
    if (traits.shares_scalers || traits.error == CodecTraits::Error::kNone) continue;
    fail(ErrorCode::kInvalidArgument,
         "with scaler sharing, raw-from-all needs codecs with scalers or fp32, and {} has none; "
         "push every tensor with fp32, {}, or use scaler-sharing=off",
         codec_name(codec->id()), codecs_with(&CodecTraits::shares_scalers));
  }
}

void check_state_steps(const Job& job) {
  if (job.state_steps == 0) return;
  const ExchangeOptions options = choose_exchange(job).options;
  check_has_states(job, options);
  const std::uint64_t steps_a_round = job.steps_a_round();
  if (job.state_steps % steps_a_round != 0) {
    fail(ErrorCode::kInvalidArgument,
         "states are to be saved every {} steps, and {} exchanged every {}; save them at a "
         "multiple of that",
         job.state_steps, job.local_updates > 0 ? "local updates" : "gradients", steps_a_round);
  }
  // Between averages workers do not wait for each other, and would be at different states.
  if (job.state_steps % (options.average_every * steps_a_round) != 0) {
    fail(ErrorCode::kInvalidArgument,
         "states are to be saved every {} steps, and weights averaged every {}; save them at a "
         "multiple of that",
         job.state_steps, options.average_every * steps_a_round);
  }
}

// Local updates of which not everything is exchanged at once, or taken at once.
void check_turns(const Job& job) {
  if (job.fragments < 1) {
    fail(ErrorCode::kInvalidArgument, "a model must have at least 1 fragment, not {}",
         job.fragments);
  }
  if (job.delay < 0) {
    fail(ErrorCode::kInvalidArgument, "a delay must be at least 0 steps, not {}", job.delay);
  }
  if (job.fragments == 1 && job.delay == 0) return;
  if (job.local_updates == 0) {
    fail(ErrorCode::kInvalidArgument,
         "fragments and a delay need local updates, and this job makes none; use local "
         "updates, or omit them");
  }
  if (job.local_updates % job.fragments != 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} fragments cannot take turns of equal length in {}; use a number of updates that the "
         "fragments divide",
         job.fragments, counted(job.local_updates, "local update"));
  }
  if (job.delay >= job.local_updates / job.fragments) {
    fail(ErrorCode::kInvalidArgument,
         "a delay of {} must be below a turn of {} ({} / {}); use a shorter delay or longer turns",
         counted(job.delay, "step"), counted(job.local_updates / job.fragments, "step"),
         counted(job.local_updates, "local update"), counted(job.fragments, "fragment"));
  }
  if (job.fragments > 1 && job.backup_workers > 0) {
    fail(
        ErrorCode::kInvalidArgument,
        "with {} a worker that is overtaken skips whole rounds, and {} fragments take turns within "
        "a round; use 1 fragment, or 0 backup workers",
        counted(job.backup_workers, "backup worker"), job.fragments);
  }
  if (job.fragments > 1 && choose_exchange(job).options.scaler_sharing) {
    fail(ErrorCode::kInvalidArgument,
         "scaler sharing agrees on all tensors at once, and {} fragments take turns; use 1 "
         "fragment, or scaler-sharing=off",
         job.fragments);
  }
}

// A fragment without a part would have nothing to take its turn with.
void check_fragments(const Job& job) {
  const std::size_t most = most_owners(job);
  if (static_cast<std::size_t>(job.fragments) <= most) return;
  fail(ErrorCode::kInvalidArgument,
       "{} fragments cannot share a model that has no more than {}; use at most as many",
       job.fragments, counted(most, "part"));
}

// When workers exchange.
void check_clock(const Job& job) {
  if (job.local_steps < 1) {
    fail(ErrorCode::kInvalidArgument,
         "a job exchanges gradients every 1 step or more, not every {}", job.local_steps);
  }
  if (job.local_updates < 0) {
    fail(ErrorCode::kInvalidArgument,
         "workers cannot make {} local updates; use 1 or more, or 0 to exchange gradients",
         job.local_updates);
  }
  check_turns(job);
  if (job.local_updates == 0) return;
  if (job.local_steps > 1) {
    fail(ErrorCode::kInvalidArgument,
         "between two exchanges workers add up gradients ({} local steps) or change their models "
         "({}); use one of the two",
         job.local_steps, counted(job.local_updates, "local update"));
  }
  if (exchange_traits(job.exchange).averages_weights) {
    fail(ErrorCode::kInvalidArgument,
         "with exchange {} workers already make updates of their own, and average their weights; "
         "use its every={} instead of local updates, or another exchange",
         job.exchange, job.local_updates);
  }
}

// Whether servers can go on without the slowest workers, and what is asked for is one thing.
void check_staleness(const Job& job) {
  if (job.staleness < 0 && job.staleness != Job::kUnbounded) {
    fail(ErrorCode::kInvalidArgument,
         "workers cannot be {} steps ahead of the slowest; use 1 or more, 0 for lock-step, or no "
         "bound",
         job.staleness);
  }
  if (job.in_lock_step()) return;
  const std::string what = job.staleness == Job::kUnbounded
                               ? std::string("an unbounded staleness")
                               : fmt::format("a staleness of {}", job.staleness);
  const auto [exchange, options] = choose_exchange(job);
  if (!exchange.traits.shards || options.scaler_sharing) {
    fail(ErrorCode::kInvalidArgument,
         "exchange {} has no servers that let workers go ahead, as {} needs; use parameter-server, "
         "or gradient-server without scaler sharing, or omit staleness",
         job.exchange, what);
  }
  if (job.local_updates > 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} cannot be combined with {}, after which workers wait for each other; use one of the "
         "two",
         what, counted(job.local_updates, "local update"));
  }
  if (job.raw_from_all) {
    fail(ErrorCode::kInvalidArgument,
         "raw from all means that workers agree on every step, and with {} they do not wait for "
         "each other; omit staleness, or raw from all",
         what);
  }
}

// How often the workers of a ladder's rungs meet.
void check_rounds(const Job& job) {
  const CodecLadder& ladder = *job.ladder;
  const bool is_clock = job.local_updates > 0;
  const auto divides = [&](int steps) { return steps >= 1 && job.local_updates % steps == 0; };
  if (!is_clock && (!ladder.steps.empty() || ladder.last_step != nullptr)) {
    fail(ErrorCode::kInvalidArgument,
         "a ladder has steps and a last_step only in a job with local updates; omit them");
  }
  if (is_clock && (ladder.steps.size() != ladder.codecs.size() || ladder.last_step == nullptr ||
                   !std::ranges::all_of(ladder.steps, divides))) {
    fail(ErrorCode::kInvalidArgument,
         "with local updates a ladder needs a last_step, and steps for each of its codecs; give "
         "each codec a divisor of {}",
         job.local_updates);
  }
}

// Every node must be at the same step where a codec's turn comes.
void check_ladder(const Job& job) {
  if (!job.ladder) return;
  if (job.ladder->codecs.empty()) {
    fail(ErrorCode::kInvalidArgument, "a ladder has no codec; give it one or more");
  }
  if (!job.ladder->pull_codecs.empty() &&
      job.ladder->pull_codecs.size() != job.ladder->codecs.size()) {
    fail(ErrorCode::kInvalidArgument, "a ladder has {} and {}; give it as many, or no pull codecs",
         counted(job.ladder->codecs.size(), "codec"),
         counted(job.ladder->pull_codecs.size(), "pull codec"));
  }
  if (job.backup_workers > 0 || !job.in_lock_step() || job.local_steps > 1 || job.fragments > 1 ||
      job.delay > 0 || choose_exchange(job).options.scaler_sharing ||
      exchange_traits(job.exchange).averages_weights) {
    fail(ErrorCode::kInvalidArgument,
         "codecs take turns only in jobs whose workers wait for each other and exchange "
         "everything; omit backup workers, staleness, local steps, fragments, delay and "
         "scaler-sharing, use another exchange than weight-average, or choose one codec");
  }
  check_rounds(job);
}

// What follows a worker's gradients has to hear of each of them.
void check_differences(const Job& job, const std::vector<std::shared_ptr<const Codec>>& pushed) {
  if (job.backup_workers == 0 && job.in_lock_step() && !choose_exchange(job).exchange.tree) return;
  for (const auto& codec : pushed) {
    if (!codec->sends_differences()) continue;
    fail(ErrorCode::kInvalidArgument,
         "codec {} sends differences, and {} does not receive every gradient; omit ef=21, or use "
         "all-gather, parameter-server or gradient-server in lock-step, without backup workers",
         codec->text(), choose_exchange(job).exchange.tree ? "an aggregator" : "a server");
  }
}

void check_workers(const Job& job) {
  if (job.workers >= 1) return;
  fail(ErrorCode::kInvalidArgument, "a job needs at least 1 worker, not {}", job.workers);
}

// Every encoder of the exchange has to be where a worker is, and to wait for it.
void check_undoable(const Job& job) {
  const ExchangeTraits& traits = exchange_traits(job.exchange);
  if (!job.undoable ||
      (traits.workers_own_model && !traits.averages_weights &&
       (is_colocated(job) || count_servers(job) == 0) && job.in_lock_step() &&
       job.backup_workers == 0 && job.local_steps == 1 && job.local_updates == 0)) {
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "steps of exchange {} cannot be undone in this job; use gradient-server with colocated "
       "servers, all-gather or ring, in lock-step and in every step, or a job that is not undoable",
       job.exchange);
}

void check_job(const Job& job) {
  check_tensors(job);
  check_workers(job);
  check_clock(job);
  check_ladder(job);
  check_part_values(job);
  count_servers(job);
  check_fragments(job);
  check_limits(job.wait_limits());
  check_backup_workers(job);
  check_staleness(job);
  check_raw_from_all(job);
  check_undoable(job);
  check_state_steps(job);
  const auto push_codecs = choose_push_codecs(job);
  check_push_codecs(choose_exchange(job), push_codecs);
  check_differences(job, push_codecs);
  choose_pull_codecs(job);
}

void check_update(const Job& job, int rank, const Update& update) {
  const bool owner = needs_update(job, rank);
  if (owner && !update) {
    fail(ErrorCode::kInvalidArgument,
         "rank {} owns the model in exchange {}; give it an update function", rank, job.exchange);
  }
  if (!owner && update) {
    fail(ErrorCode::kInvalidArgument,
         "rank {} does not own the model in exchange {}; give it no update function", rank,
         job.exchange);
  }
}

// As place_job(), for a network that has the job's nodes, and hears how long messages can be.
std::shared_ptr<const Placement> place(const Job& job, Transport& transport) {
  auto placement = place_job(job);
  const int servers = server_nodes(job);
  const int nodes = job.workers + servers;
  if (transport.size() != nodes) {
    fail(ErrorCode::kInvalidArgument, "{} and {} need a network of {}, and this one has {}",
         counted(job.workers, "worker"), counted(servers, "server"), counted(nodes, "node"),
         transport.size());
  }
  transport.expect_at_most(placement->longest_message);
  return placement;
}

std::unique_ptr<Worker> make_worker(const std::shared_ptr<const Placement>& placement,
                                    Transport& transport, const Update& update, ThreadPool* pool,
                                    const NodeState* resume) {
  auto worker =
      choose_exchange(placement->job).exchange.make_worker(placement, transport, update, pool);
  if (resume != nullptr) worker->resume(*resume);
  return worker;
}

std::unique_ptr<Server> make_server(const std::shared_ptr<const Placement>& placement,
                                    Transport& transport, const Update& update, ThreadPool* pool,
                                    const NodeState* resume) {
  auto server =
      choose_exchange(placement->job).exchange.make_server(placement, transport, update, pool);
  if (resume != nullptr) server->resume(*resume);
  return server;
}

// The update is the server's where servers own the model.
std::unique_ptr<Communicator> make_colocated(const std::shared_ptr<const Placement>& placement,
                                             Transport& transport, const Update& update,
                                             ThreadPool* pool, const NodeState* resume) {
  const Exchange& exchange = choose_exchange(placement->job).exchange;
  const Update at_worker = exchange.traits.workers_own_model ? update : Update();
  const Update at_server = exchange.traits.workers_own_model ? Update() : update;
  return make_colocated_worker(
      transport, placement,
      {.make_worker =
           [=](Transport& half) {
             return with_progress(half, placement->job.workers == 1, [=](Transport& end) {
               return make_worker(placement, end, at_worker, pool, resume);
             });
           },
       .make_server =
           [=](Transport& half) { return make_server(placement, half, at_server, pool, resume); }});
}

}  // namespace

int server_nodes(const Job& job) {
  check_job(job);
  return is_colocated(job) ? 0 : count_servers(job);
}

bool servers_encode(const Job& job) {
  check_workers(job);
  return count_servers(job) > 0;
}

bool needs_update(const Job& job, int rank) {
  const Exchange& exchange = choose_exchange(job).exchange;
  if (rank < job.workers) return exchange.traits.workers_own_model || is_colocated(job);
  if (exchange.tree) return rank == job.workers + count_servers(job) - 1;
  return !exchange.traits.workers_own_model;
}

std::unique_ptr<Communicator> make_communicator(const Job& job, Transport& transport,
                                                const Update& update, ThreadPool* pool,
                                                const NodeState* resume) {
  return ending_the_job_on_failure(transport, fmt::format("worker {}", transport.rank()), [&] {
    const auto placement = place(job, transport);
    if (transport.rank() >= job.workers) {
      fail(ErrorCode::kInvalidArgument, "rank {} is a server; call run_server() there",
           transport.rank());
    }
    check_update(job, transport.rank(), update);
    if (resume != nullptr) check_state(*placement, transport.rank(), *resume);
    std::unique_ptr<Communicator> worker;
    if (is_colocated(job)) {
      worker = make_colocated(placement, transport, update, pool, resume);
    } else {
      worker = with_progress(transport, transport.size() == 1, [&](Transport& end) {
        return make_worker(placement, end, update, pool, resume);
      });
    }
    if (job.local_updates > 0) {
      return with_local_updates(std::move(worker), placement, transport, resume);
    }
    return job.local_steps == 1 ? std::move(worker)
                                : with_local_steps(std::move(worker), placement, transport, resume);
  });
}

Counters run_server(const Job& job, Transport& transport, const Update& update, ThreadPool* pool,
                    const NodeState* resume, const SaveState& save) {
  const auto server =
      ending_the_job_on_failure(transport, fmt::format("server {}", transport.rank()), [&] {
        const auto placement = place(job, transport);
        if (transport.rank() < job.workers) {
          fail(ErrorCode::kInvalidArgument, "rank {} is a worker; call make_communicator() there",
               transport.rank());
        }
        check_update(job, transport.rank(), update);
        if (resume != nullptr) check_state(*placement, transport.rank(), *resume);
        return make_server(placement, transport, update, pool, resume);
      });
  return serve(*server, transport, save);
}

std::vector<Part> job_parts(const Job& job) {
  check_job(job);
  return cut_parts(job).parts;
}

std::vector<bool> followed_parts(const Job& job) { return place_job(job)->follows; }

std::vector<int> part_servers(const Job& job) {
  std::vector<int> owners = place_job(job)->owners;
  // On the node of the worker with the same number.
  if (is_colocated(job)) {
    for (int& owner : owners) owner -= job.workers;
  }
  return owners;
}

}  // namespace tersewire
