// tersewire predict: what a step would take under each design, before anything is run.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/bench/model_tensors.h"
#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/cli/quantities.h"
#include "apps/files/read_file.h"
#include "apps/predict/dry_policy.h"
#include "apps/predict/model_file.h"
#include "apps/predict/prediction_page.h"
#include "apps/predict/predictions.h"
#include "apps/predict/probe_file.h"
#include "tersewire/counted.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostWorkers = 65536;

constexpr const char* kPredictExamples = R"(Examples:
  tersewire predict --model resnet110 --workers 10 --link 100mbit,1ms --compute-ms 760
  tersewire predict --model shapes.json --workers 4,16,64 --link 1gbit --link 10gbit --compute-ms 120 --json
  tersewire predict --model resnet50 --workers 8 --probe probe.json --compute-ms 300 --page page.html
  tersewire predict --model alexnet --workers 8 --gpus-per-node 4 --intra 100gbit --link 1gbit \
      --compute-ms 90 --exchange terngrad-model --codec fp32 --codec terngrad
Calculated, not measured: see docs/predict.md for the assumptions, evidence/predictions for comparisons
with measurements. Speed only: for the effect of codecs on accuracy see docs/choosing.md.)";

struct PredictFlags {
  PredictionPlan plan;
  std::string model;
  double scale = 1;
  std::vector<int> workers;
  std::vector<std::string> links;
  double compute_ms = 0;
  std::string intra;
  std::string scaling = "weak";
  std::string probe;
  std::string from;           // a dry run's findings
  double most_residual = 10;  // that a codec may keep back of it
  std::string transport = "tcp";
  std::string page;
  bool json = false;
};

Json rows_json(const std::vector<Prediction>& predictions) {
  Json list = Json::array();
  for (const Prediction& each : predictions) {
    list.push_back({{"design", each.design()},
                    {"exchange", each.exchange},
                    {"servers", each.placement},
                    {"codec", each.codec},
                    {"pull_codec", each.pull_codec},
                    {"workers", each.workers},
                    {"link", each.link.text},
                    {"step_seconds", each.step.step_seconds},
                    {"speedup", each.speedup},
                    {"compute_seconds", each.step.compute_seconds},
                    {"codec_seconds", each.step.codec_seconds},
                    {"wire_seconds", each.step.wire_seconds},
                    {"waiting_seconds", each.step.waiting_seconds},
                    {"sent_bytes", each.step.sent_bytes},
                    {"received_bytes", each.step.received_bytes},
                    {"busiest_bytes", each.step.busiest_bytes}});
  }
  return list;
}

// Of every codec its fastest exchange alone, unless exchanges were named; the fastest first.
std::vector<Prediction> shown_rows(const PredictionPlan& plan, std::vector<Prediction> rows) {
  std::ranges::stable_sort(rows, {}, [](const Prediction& row) { return row.step.step_seconds; });
  if (!plan.exchanges.empty()) return rows;
  std::vector<Prediction> best;
  for (Prediction& row : rows) {
    if (std::ranges::find(best, row.codec, &Prediction::codec) == best.end()) {
      best.push_back(std::move(row));
    }
  }
  return best;
}

std::string points_text(const std::string& codec) {
  return fmt::format("{:.1f}", measured_codec(codec).points_lost);
}

std::string table_text(const std::vector<Prediction>& rows) {
  const auto width = [&](auto text, std::size_t least) {
    for (const Prediction& row : rows) least = std::max(least, text(row).size());
    return least;
  };
  const std::size_t codecs = width([](const Prediction& row) { return row.codecs(); }, 5);
  const std::size_t exchanges =
      width([](const Prediction& row) { return row.placed_exchange(); }, 8);
  std::string text =
      fmt::format("{:<{}}  {:<{}}  {:>11} {:>8} {:>11} {:>11} {:>11} {:>11} {:>12} {:>11}\n",
                  "codec", codecs, "exchange", exchanges, "step", "speedup", "computation", "codec",
                  "wire", "waiting", "sent, bytes", "points lost");
  for (const Prediction& row : rows) {
    const StepPrediction& step = row.step;
    text += fmt::format(
        "{:<{}}  {:<{}}  {:>11} {:>7.2f}x {:>11} {:>11} {:>11} {:>11} {:>12.0f} {:>11}\n",
        row.codecs(), codecs, row.placed_exchange(), exchanges, seconds_text(step.step_seconds),
        row.speedup, seconds_text(step.compute_seconds), seconds_text(step.codec_seconds),
        seconds_text(step.wire_seconds), seconds_text(step.waiting_seconds), step.sent_bytes,
        points_text(row.codec));
  }
  return text;
}

void take_probe(PredictFlags& flags, std::vector<NamedLink>& links) {
  ProbeFile probe = read_probe(flags.probe);
  if (links.empty()) {
    links.push_back({.text = fmt::format("{:.6g}mbit,{:.3g}ms", probe.link.bits_per_second / 1e6,
                                         probe.link.latency_seconds * 1e3),
                     .speed = probe.link});
  }
  flags.plan.push_costs = std::move(probe.push);
  flags.plan.pull_costs = std::move(probe.pull);
}

void note_what_was_not_measured(const PredictionPlan& plan) {
  for (const std::string& codec : plan.codecs) {
    const std::string_view measured = measured_codec(codec).codec;
    if (measured == codec || plan.push_costs.contains(codec)) continue;
    note(fmt::format("{} was not measured; its size and speed are those of {}\n", codec, measured));
  }
}

// --from prints a policy of what was measured, and predicts nothing.
void check_alone(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--from" || name == "--most-residual") continue;
    throw WrongUsage(fmt::format("--from takes only --most-residual beside it; omit {}", name));
  }
}

void run_predict(PredictFlags flags, const CLI::App& command) {
  if (!flags.from.empty()) {
    check_alone(command);
    return print(policy_from_dry_run(flags.from, flags.most_residual) + "\n");
  }
  for (const char* needed : {"--model", "--workers", "--compute-ms"}) {
    if (command.get_option(needed)->count() > 0) continue;
    throw WrongUsage(fmt::format("{} is required; see 'tersewire predict --help'", needed));
  }
  if (flags.page == kStandardStream) {
    throw WrongUsage("the table already goes to standard output; name a file with --page");
  }
  PredictionPlan& plan = flags.plan;
  plan.job.tensors = model_argument(flags.model, flags.scale);
  plan.compute_seconds = flags.compute_ms / 1e3;
  plan.scaling = flags.scaling == "strong" ? Scaling::kStrong : Scaling::kWeak;
  if (!flags.intra.empty()) plan.intra_bits_per_second = rate_argument(flags.intra);
  if (plan.gpus_per_node > 1 && flags.intra.empty()) {
    throw WrongUsage("--gpus-per-node needs --intra, the rate between a machine's GPUs");
  }
  for (const std::string& codec : plan.codecs) codec_argument(codec);
  if (plan.pull_codec) codec_argument(*plan.pull_codec);
  std::vector<NamedLink> links;
  for (const std::string& link : flags.links) links.push_back(link_argument(link));
  if (!flags.probe.empty()) take_probe(flags, links);
  if (links.empty()) throw WrongUsage("give --link, as in 100mbit,20ms, or --probe FILE");
  for (NamedLink& link : links) link.speed.is_shared = flags.transport == "mpi";
  note_what_was_not_measured(plan);
  std::vector<Prediction> all;
  std::string text;
  for (const int workers : flags.workers) {
    for (const NamedLink& link : links) {
      const auto rows = as_usage([&] { return predict_designs(plan, workers, link); });
      all.insert(all.end(), rows.begin(), rows.end());
      if (flags.json) continue;
      text += fmt::format("{}{}, {}\n{}{}\n", text.empty() ? "" : "\n", counted(workers, "worker"),
                          link.text, table_text(shown_rows(plan, rows)), verdict(plan, rows));
    }
  }
  if (!flags.page.empty()) {
    write_prediction_page(flags.page, flags.model, plan, flags.workers.front(), links.front());
    text += fmt::format("wrote {}\n", flags.page);
  }
  print(flags.json ? json_text(rows_json(all)) + "\n" : text);
}

}  // namespace

void add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Predict the step time of each design");
  command->footer(kPredictExamples);
  auto flags = std::make_shared<PredictFlags>();
  PredictionPlan& plan = flags->plan;
  command->add_option(
      "--model", flags->model,
      fmt::format("{}, or a JSON file of shapes", fmt::join(bench::model_names(), ", ")));
  command
      ->add_option("--scale", flags->scale,
                   "Scale the number of values of every tensor by this, above 0 and up to 1")
      ->capture_default_str();
  command->add_option("--workers", flags->workers, "Workers; several are predicted in turn")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostWorkers));
  command->add_option("--link", flags->links,
                      "A node's link, rate each way and one-way latency: 100mbit, or 100mbit,20ms; "
                      "may be repeated");
  command->add_option("--compute-ms", flags->compute_ms, "Milliseconds of computation per step")
      ->check(CLI::Range(0.0, 1e8));
  command->add_option("--gpus-per-node", plan.gpus_per_node, "Workers that share a machine")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--intra", flags->intra, "The rate between a machine's GPUs, as in 100gbit");
  command
      ->add_option("--scaling", flags->scaling,
                   "weak: each worker computes for --compute-ms; strong: all share it")
      ->capture_default_str()
      ->check(CLI::IsMember({"weak", "strong"}));
  command->add_option("--exchange", plan.exchanges,
                      "Exchanges (docs/exchanges.md), or terngrad-model, that of its paper [all, "
                      "with one server and with colocated ones]");
  command->add_option("--codec", plan.codecs, "Codecs [all that were measured]");
  command->add_option("--pull-codec", plan.pull_codec,
                      "Codec for what servers send, with each --codec except fp32 [the same]");
  add_servers_option(*command, plan.job.servers, kMostWorkers,
                     trainer::setting_named("servers").help);
  const SettingOptions setting(*command);
  setting(trainer::setting_named("local-steps"), plan.job.local_steps);
  command
      ->add_option("--local-updates", plan.job.local_updates,
                   "Steps that each worker takes on its own between two exchanges; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, trainer::kMostUpdates));
  setting(trainer::setting_named("policy"), plan.job.policy);
  command
      ->add_option(
          "--transport", flags->transport,
          "tcp or in-process, where messages follow each other, or mpi, where they share a "
          "link and all arrive late")
      ->capture_default_str()
      ->check(CLI::IsMember({"tcp", "in-process", "mpi"}));
  command->add_option("--probe", flags->probe,
                      "What 'tersewire probe --json' printed: link and speeds of codecs");
  command->add_option("--from", flags->from,
                      "The dry.json of a run with --dry: prints only a policy, for each tensor the "
                      "smallest codec whose residual stays below --most-residual");
  command
      ->add_option("--most-residual", flags->most_residual,
                   "With --from: largest residual of a codec, in multiples of a gradient")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option(
      "--page", flags->page,
      "Write a page of charts: speedup over the number of workers and over the rate");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, command] { run_predict(*flags, *command); });
}

}  // namespace tersewire::apps
