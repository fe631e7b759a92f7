// The exchanges that there are: what each needs, which codecs fit it, and who makes its nodes.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "codec_traits.h"
#include "encoder_options.h"
#include "placement.h"
#include "server.h"
#include "tersewire/communicator.h"
#include "worker.h"

namespace tersewire {

struct Exchange {
  std::string_view name;
  ExchangeTraits traits = {};
  StateChange carries;
  StateChange pulls = StateChange::kGradients;  // what servers send back
  bool tree = false;                            // whether servers are aggregators, below a root
  std::vector<CodecParameter> parameters = {};
  // Takes those from the exchange's text.
  void (*take_options)(SettingText& text, const Job& job, ExchangeOptions& options) = nullptr;
  // The servers that a job has, as ranks; none: always 0. Throws where it cannot have as many as it
  // says.
  int (*count_servers)(const Job& job, const ExchangeOptions& options) = nullptr;
  std::unique_ptr<Worker> (*make_worker)(std::shared_ptr<const Placement>, Transport&,
                                         const Update&, ThreadPool*);
  std::unique_ptr<Server> (*make_server)(std::shared_ptr<const Placement>, Transport&,
                                         const Update&, ThreadPool*) = nullptr;
};

// An exchange as a job's text says it.
struct ChosenExchange {
  const Exchange& exchange;
  ExchangeOptions options;
};

// Throws kInvalidArgument for an exchange that does not exist, and for a parameter that it has not.
ChosenExchange choose_exchange(const Job& job);

// The servers as ranks: those of colocated ones are beyond the network's. Throws kInvalidArgument.
int count_servers(const Job& job);

bool is_colocated(const Job& job);

// The codecs of a job by tensor. They throw like choose_codecs_for().
std::vector<std::shared_ptr<const Codec>> choose_push_codecs(const Job& job);
std::vector<std::shared_ptr<const Codec>> choose_pull_codecs(const Job& job);

// Throws kInvalidArgument where one of these codecs does not fit what the exchange carries.
void check_push_codecs(const ChosenExchange& chosen,
                       const std::vector<std::shared_ptr<const Codec>>& codecs);

}  // namespace tersewire
