#include "apps/train/elastic_train.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/train/notice.h"
#include "apps/train/train_check.h"
#include "apps/train/train_nodes.h"
#include "tersewire/transports.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/loop/memory_estimate.h"
#include "trainer/members/hand_over.h"
#include "trainer/members/held_states.h"

namespace tersewire::apps {
namespace {

constexpr std::chrono::milliseconds kLookForInterrupt(100);

// Workers, and servers where there are some, come and go, and all take the same steps.
void check_elastic(const trainer::TrainConfig& config) {
  const Job& job = config.job;
  if (!exchange_traits(job.exchange).elastic || !job.in_lock_step() || job.backup_workers > 0) {
    throw WrongUsage(
        "--elastic is for jobs whose workers all take the same steps; use exchange all-gather, "
        "ring, gradient-server or parameter-server, without backup workers or staleness");
  }
  const bool has_servers = trainer::server_nodes(config) > 0;
  if (has_servers && job.state_steps == 0) {
    throw WrongUsage(
        "with --elastic, a job with separate servers ends with its last checkpoint when the last "
        "server is gone; give --checkpoint-steps 100, or --servers colocated");
  }
  if (!exchange_traits(job.exchange).workers_own_model && job.state_steps == 0) {
    throw WrongUsage(
        "with --elastic and parameter-server, every server sends its state uncompressed to another "
        "node each time a state is kept; say how often, as in --checkpoint-steps 100");
  }
  if (!has_servers && choose_transport(config.transport).grpc->serves) {
    throw WrongUsage(
        "role=server is for jobs with separate servers, and this job has none; omit it, or use "
        "parameter-server or gradient-server with --servers N");
  }
  if (job.push_codec == trainer::kAutoCodec) {
    throw WrongUsage(
        "--codec auto measures a job whose nodes stay, but with --elastic they come and go; give "
        "a codec");
  }
}

// What nodes of one job have in common.
std::uint64_t fingerprint_of(const trainer::TrainConfig& config, const trainer::DataSplits& data) {
  std::string text = fmt::format("{} {:016x}", TERSEWIRE_VERSION, data.train->checksum());
  trainer::visit_settings(config, [&](const trainer::Setting& setting, const auto& member) {
    if (setting.scope == trainer::SettingScope::kNode) return;
    const std::string value = trainer::setting_value(member);
    text += fmt::format(" {}={}:{}", setting.key, value.size(), value);
  });
  return XXH64(text.data(), text.size(), 0);
}

GrpcMember::Settings member_settings(const TrainFlags& flags, std::uint64_t fingerprint) {
  const auto place = choose_transport(flags.config.transport).grpc;
  const GrpcSecurity& security = place->security;
  return {.hub = place->hub,
          .name = place->name.empty() ? certified_name(security) : place->name,
          .fingerprint = fingerprint,
          .security = security,
          .limits = flags.config.job.wait_limits(),
          .direct = place->direct,
          .servers = trainer::server_nodes(flags.config),
          .serves = place->serves};
}

void check_place(const TrainFlags& flags) {
  const auto place = choose_transport(flags.config.transport).grpc;
  if (!place || place->rank || (place->name.empty() && place->security.certificates.empty())) {
    throw WrongUsage(
        fmt::format("--elastic needs a hub and a name for this node; give --transport "
                    "grpc:hub=HOST:PORT,name=NAME{}",
                    flags.elastic_given ? "" : ", or --elastic=false to go on without"));
  }
  if (flags.out.empty()) {
    throw WrongUsage(
        "with --elastic any node may become the one that writes the run's directory; name it with "
        "--out");
  }
}

// Whether something went wrong because of other nodes: the job may go on without them.
bool is_of_others(const Error& error) {
  return error.code() == ErrorCode::kAborted || error.code() == ErrorCode::kUnavailable ||
         error.code() == ErrorCode::kDeadlineExceeded;
}

// Of one who is still there when it should have gone.
NoticeWatch::Standing standing_with(std::uint64_t newest) {
  if (newest == 0) return {.sentence = "this node did not leave in time, and had no state yet"};
  return {.sentence = fmt::format("this node did not leave in time: its residual after step {} is "
                                  "lost, and the job continues without it",
                                  newest)};
}

class ElasticRun {
 public:
  ElasticRun(const TrainFlags& flags, const trainer::DataSplits& data, bool saves,
             NoticeWatch& notice)
      : flags_(flags),
        data_(data),
        saves_(saves),
        held_(flags.config.job.delay > 0 ? 3 : 2),
        member_(member_settings(flags, fingerprint_of(flags.config, data))),
        signals_([this](const std::stop_token& stop) { watch_signals(stop); }) {
    notice.ask([newest = newest_] { return standing_with(*newest); });
  }

  void run();

 private:
  void watch_signals(const std::stop_token& stop);
  void take_part(const MemberList& list, int rank);
  void train(const TrainFlags& flags, const MemberList& list, Network& network, bool tells);
  void keep(std::uint32_t generation, trainer::NodeCheckpoint checkpoint);
  [[nodiscard]] std::shared_ptr<const trainer::NodeCheckpoint> held(const Boundary& at) const;
  void end_with(const MemberList& list) const;

  const TrainFlags& flags_;
  const trainer::DataSplits& data_;
  const bool saves_;
  mutable std::mutex mutex_;
  trainer::HeldStates held_;  // under the mutex
  const std::shared_ptr<std::atomic<std::uint64_t>> newest_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);  // step of them
  bool saved_ = false;                                  // for a job that ends before its last step
  GrpcMember member_;
  std::jthread signals_;
};

void ElasticRun::watch_signals(const std::stop_token& stop) {
  while (!stop.stop_requested() && !interrupted) std::this_thread::sleep_for(kLookForInterrupt);
  if (!interrupted) return;
  note("this node leaves after its next state\n");
  member_.leave();
}

void ElasticRun::run() {
  for (std::uint32_t generation = 0;;) {
    const MemberList list = member_.await(generation);
    if (list.phase == JobPhase::kDone) return;
    if (list.phase == JobPhase::kEnded) return end_with(list);
    const auto rank = list.rank_of(member_.incarnation());
    if (!rank) return;  // it was to leave, and had nothing
    generation = list.generation;
    try {
      take_part(list, *rank);
    } catch (const Error& error) {
      if (!is_of_others(error)) {
        member_.give_up(error.what());
        throw;
      }
      // What others have said they know.
      member_.end(generation, error.code() == ErrorCode::kAborted ? "" : error.what());
      continue;
    } catch (const std::exception& error) {
      member_.give_up(error.what());
      throw;
    }
    const MemberList then = member_.await_end(generation);
    if (then.phase == JobPhase::kDone) return;
    const bool was_to_hand_over = *rank >= static_cast<int>(list.nodes());
    if (was_to_hand_over && then.generation == generation && then.established) {
      return note(fmt::format("left after step {}: the others have this node's residual\n",
                              list.base.step));
    }
    member_.end(generation, "");
  }
}

void ElasticRun::end_with(const MemberList& list) const {
  const std::string sentence =
      list.last ? fmt::format("{}; {}", list.reason, how_to_go_on(flags_, flags_.out))
                : list.reason;
  // Who was told to go has saved what it had, which is all that was asked of it.
  if (!(saved_ && interrupted && !flags_.notice.empty())) {
    throw Error(ErrorCode::kAborted, sentence);
  }
  note(sentence + "\n");
}

// One generation, as a run that goes on from a checkpoint of another number of nodes.
void ElasticRun::take_part(const MemberList& list, int rank) {
  const int nodes = static_cast<int>(list.nodes());
  auto end = std::make_unique<trainer::NodesNetwork>(member_.join(list), nodes);
  TrainFlags flags = flags_;
  flags.config.job.workers = static_cast<int>(list.workers);
  if (list.servers > 0) flags.config.job.servers = static_cast<int>(list.servers);
  if (list.base.generation > 0) {
    auto checkpoint =
        trainer::HandOver(list, rank)
            .run(*end, held(list.base), flags.config.job.servers, flags.config.job.wait_limits());
    if (checkpoint) {
      flags.resumed.emplace().checkpoint = std::move(*checkpoint);
    }
  }
  if (rank >= nodes) return;
  Network network;
  network.push_back(std::move(end));
  train(flags, list, network, rank == 0 && !list.last);
  saved_ = list.last;
  member_.finish();
}

void ElasticRun::train(const TrainFlags& flags, const MemberList& list, Network& network,
                       bool tells) {
  trainer::TrainHooks hooks;
  hooks.on_checkpoint = [this, generation = list.generation, last = list.last,
                         directory = CheckpointDirectory(flags.out),
                         job = checkpoint_job(flags)](trainer::NodeCheckpoint checkpoint) {
    if (saves_ || last) directory.save(job, checkpoint);
    keep(generation, std::move(checkpoint));
  };
  if (list.last) hooks.last_step = list.base.step;  // what there is is saved, and no step is taken
  if (tells) {
    Listeners listeners = listeners_of(flags);
    const std::uint64_t step = flags.resumed ? flags.resumed->checkpoint.step() : 0;
    RunDirectory directory =
        list.generation == 1 ? directory_of(flags) : RunDirectory::taken_over(flags.out, step);
    return train_and_tell(flags, data_, network, std::move(listeners), directory, std::move(hooks));
  }
  trainer::train(flags.config, data_, hooks, std::move(network), resumed_from(flags));
}

void ElasticRun::keep(std::uint32_t generation, trainer::NodeCheckpoint checkpoint) {
  *newest_ = checkpoint.step;
  std::vector<KeptState> states;
  {
    const std::lock_guard lock(mutex_);
    held_.keep(generation, std::move(checkpoint), flags_.config.job.push_codec);
    states = held_.told();
  }
  member_.holds(std::move(states));
}

std::shared_ptr<const trainer::NodeCheckpoint> ElasticRun::held(const Boundary& at) const {
  const std::lock_guard lock(mutex_);
  return held_.find(at);
}

}  // namespace

void train_elastically(TrainFlags& flags, NoticeWatch& notice) {
  trainer::TrainConfig& config = flags.config;
  if (!flags.resume.empty()) flags.out = flags.resume;
  as_usage([&] {
    check_place(flags);
    check_elastic(config);
  });
  const bool saves = config.job.state_steps > 0;
  if (!saves) config.job.state_steps = config.job.steps_a_round();
  config.job.servers_save_together =
      trainer::server_nodes(config) > 1;  // trainer/members/server_copy.h
  const trainer::DataSplits data = load_data(config, true);
  settle(flags, data);
  trainer::check_memory(config);
  as_usage([&] { return std::make_unique<ElasticRun>(flags, data, saves, notice); })->run();
}

}  // namespace tersewire::apps
