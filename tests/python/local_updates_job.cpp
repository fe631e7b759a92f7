// A job of local updates whose workers change their parameters as a file says, so that others can
// make the same changes and compare: local_updates_job JOB.json CHANGES MODELS.
//
//   JOB.json  workers, exchange, codec, policy, outer, local_updates, fragments, delay, steps,
//             and tensors: [{name, shape, kind}]
//   CHANGES   float32: a first model, and by step and worker what is added to each value
//   MODELS    float32, written: by worker its model after the last step, then its model when all
//             have finished
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tersewire/tersewire.h"
#include "trainer/loop/descent.h"
#include "trainer/models/network.h"

namespace tersewire::trainer {
namespace {

using Values = std::vector<float>;

// What Descent works in.
class GivenModel final : public Network {
 public:
  GivenModel(const std::vector<TensorInfo>& tensors, Values values) : values_(std::move(values)) {
    float* begin = values_.data();
    for (const TensorInfo& tensor : tensors) {
      parameters_.push_back({.name = tensor.name,
                             .kind = std::string(to_string(tensor.kind)),
                             .shape = tensor.shape,
                             .values = begin,
                             .elems = tensor.elems()});
      begin += tensor.elems();
    }
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const override { return parameters_; }
  [[nodiscard]] const std::vector<Parameter>& statistics() const override { return none_; }
  [[nodiscard]] const SampleKind& takes() const override { std::abort(); }
  Outcome step(const Batch&, const Hooks&, std::uint64_t) override { std::abort(); }
  Outcome test(const Batch&) override { std::abort(); }

  [[nodiscard]] std::vector<std::span<float>> tensors() const {
    std::vector<std::span<float>> spans;
    for (const Parameter& parameter : parameters_) {
      spans.emplace_back(parameter.values, parameter.elems);
    }
    return spans;
  }
  [[nodiscard]] const Values& values() const { return values_; }

 private:
  Values values_;
  std::vector<Parameter> parameters_;
  std::vector<Parameter> none_;
};

TrainConfig config_in(const nlohmann::json& json) {
  TrainConfig config;
  Job& job = config.job;
  for (const nlohmann::json& tensor : json.at("tensors")) {
    job.tensors.push_back(
        {tensor.at("name"), tensor.at("shape"), tensor_kind(tensor.at("kind").get<std::string>())});
  }
  job.workers = json.at("workers");
  job.exchange = json.at("exchange");
  if (exchange_traits(job.exchange).shards) job.servers = Job::kColocated;
  job.push_codec = job.pull_codec = json.at("codec");
  job.policy = json.at("policy");
  job.seed = 0;
  job.local_updates = json.at("local_updates");
  job.fragments = json.at("fragments");
  job.delay = json.at("delay");
  config.outer = json.at("outer");
  config.steps = json.at("steps");
  return config;
}

// What a worker has after the last step, and then when all have finished.
Values run_worker(const TrainConfig& config, Transport& end, std::span<const float> first,
                  std::span<const float> changes) {
  const Job& job = config.job;
  const GivenModel own(job.tensors, Values(first.begin(), first.end()));
  const GivenModel shared(job.tensors, own.values());
  Descent descent(owners_config(config), shared, job_parts(job));
  const Update update = [&](const Part& part, std::span<const float> mean, std::span<float> delta) {
    descent.propose_step(part.number, mean, delta);
    const auto values = shared.tensors()[part.tensor].subspan(part.begin, part.elems);
    std::ranges::transform(values, delta, values.begin(), std::plus<>());
  };
  const auto communicator = make_communicator(job, end, update);
  const auto tensors = own.tensors();
  const auto pull = [&] {
    for (std::size_t i = 0; i < tensors.size(); ++i) communicator->pull(i, tensors[i]);
  };
  for (auto step = communicator->begin_step(); step <= config.steps;
       step = communicator->begin_step()) {
    pull();
    const auto workers = static_cast<std::uint64_t>(job.workers);
    auto change =
        changes
            .subspan(((step - 1) * workers + static_cast<std::uint64_t>(end.rank())) * first.size(),
                     first.size())
            .begin();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (float& value : tensors[i]) value += *change++;
      communicator->push(i, tensors[i]);
    }
  }
  pull();
  Values models = own.values();
  communicator->finish(tensors);
  models.insert(models.end(), own.values().begin(), own.values().end());
  return models;
}

int run(const char* job_path, const char* changes_path, const char* models_path) {
  const TrainConfig config = config_in(nlohmann::json::parse(std::ifstream(job_path)));
  std::size_t elems = 0;
  for (const TensorInfo& tensor : config.job.tensors) elems += tensor.elems();
  const auto workers = static_cast<std::size_t>(config.job.workers);
  Values given((1 + config.steps * workers) * elems);
  std::ifstream(changes_path, std::ios::binary)
      .read(reinterpret_cast<char*>(given.data()),
            static_cast<std::streamsize>(given.size() * sizeof(float)));
  const auto ends = make_in_process_network(config.job.workers);
  std::vector<Values> models(workers);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < workers; ++i) {
      threads.emplace_back([&, i] {
        models[i] = run_worker(config, *ends[i], std::span(given).first(elems),
                               std::span(given).subspan(elems));
      });
    }
  }
  std::ofstream out(models_path, std::ios::binary);
  for (const Values& values : models)
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
  return out.good() ? 0 : 1;
}

}  // namespace
}  // namespace tersewire::trainer

int main(int argc, char** argv) {
  return argc == 4 ? tersewire::trainer::run(argv[1], argv[2], argv[3]) : 2;
}
