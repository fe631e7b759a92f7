// tersewire compare: what each design saves and costs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "apps/cli/commands.h"
#include "apps/cli/defaults.h"
#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/compare/compare_cells.h"
#include "apps/compare/compare_lab.h"
#include "apps/compare/compare_plan.h"
#include "apps/compare/compare_report.h"
#include "apps/files/new_file.h"
#include "apps/files/read_file.h"
#include "apps/run/directory_lock.h"
#include "apps/run/run_directory.h"
#include "apps/run/run_files.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCompareExamples = R"(Examples:
  tersewire compare                                 LeNet on the embedded images, four designs
  tersewire compare --designs 'fp32; stoch3:clip=off; topk; local-steps=2; 3lc' --out first
  tersewire compare --recipe 3lc-resnet20 --steps 25%,50%,75%,100% --repeat 3 --jobs 2 --out table1
  tersewire compare --recipe terngrad-lenet --set batch=8 --set workers=8 --rates 100mbit,1gbit \
      --designs 'exchange=gradient-server fp32; exchange=gradient-server int8; policy= terngrad'
  tersewire compare --designs 'fp32; exchange=ring codec=inceptionn:bound=2^-10 policy='
  tersewire compare --set paper=true --designs 'fp32; stoch3:clip=off; mqe1bit; topk; 3lc:s=1.75'
  sudo tersewire compare --out table1 ... --lab lab/netlab   the same again: now measures its steps

A design is [OPTION=VALUE ...] [CODEC], with train's options and a codec for both directions (fp32
by default); with --set paper=true codecs are as published. fp32, or else the first design, is the
others' baseline. Every run is a directory of 'tersewire train' below OUT/cells. After an
interruption the same command continues: it keeps complete runs. What it prints is in
OUT/results.json too (docs/comparing.md).)";

struct CompareFlags {
  CompareOptions options;
  std::size_t jobs = 1;
  std::string out;
  std::string lab;
  bool json = false;
};

void write_json(const fs::path& path, const nlohmann::json& content) {
  const std::string text = json_text(content) + "\n";
  write_new_file(path.string(), std::as_bytes(std::span(text)));
}

// What two plans differ in, for people.
std::string difference(const nlohmann::json& before, const nlohmann::json& now) {
  for (const char* part : {"recipe", "steps", "seeds"}) {
    if (before.at(part) != now.at(part)) return part;
  }
  if (before.at("designs").size() != now.at("designs").size()) return "designs";
  for (std::size_t i = 0; i < now.at("designs").size(); ++i) {
    const nlohmann::json& a = before.at("designs")[i];
    const nlohmann::json& b = now.at("designs")[i];
    if (a.at("name") != b.at("name")) return "designs";
    for (const auto& [key, value] : b.at("config").items()) {
      if (!a.at("config").contains(key) || a.at("config").at(key) != value) return key;
    }
  }
  return "settings";
}

// Throws WrongUsage unless the directory holds this very comparison.
void check_same(const fs::path& out, const nlohmann::json& plan) {
  std::error_code error;
  const fs::path file = out / kPlanFile;
  const auto text =
      fs::is_regular_file(file, error) ? read_file_if_exists(file.string()) : std::nullopt;
  if (!text) {
    throw WrongUsage(
        fmt::format("{} exists but holds no comparison; choose another --out", out.string()));
  }
  const auto before = parse_json(*text);
  if (before == plan) return;
  std::string part = "format";
  try {
    part = difference(before, plan);
  } catch (const nlohmann::json::exception&) {
    // Another version's, or no comparison's.
  }
  throw WrongUsage(fmt::format(
      "{} holds another comparison (they differ in {}); choose another --out, or use the "
      "command that it was made with",
      out.string(), part));
}

// The comparison's directory, locked; one that is there goes on.
fs::path directory_of(const CompareFlags& flags, const nlohmann::json& plan) {
  if (flags.out.empty()) return fresh_directory("compare");
  const fs::path out = flags.out;
  std::error_code error;
  const bool is_new =
      !fs::exists(out, error) || (fs::is_directory(out, error) && fs::is_empty(out, error));
  if (!is_new) {
    check_same(out, plan);
  } else if (!fs::create_directories(out, error) && error) {
    fail_file(out.string(), "written", error.value());
  }
  return out;
}

void prepare(const fs::path& out, const nlohmann::json& plan) {
  lock_directory(out);
  write_json(out / kPlanFile, plan);
  for (const char* folder : {kCellsFolder, "logs", "lab"}) {
    std::error_code error;
    if (!fs::create_directory(out / folder, error) && error) {
      fail_file((out / folder).string(), "written", error.value());
    }
  }
}

void check_lab(const std::string& netlab) {
  std::error_code error;
  if (netlab.empty() ||
      (fs::is_regular_file(netlab, error) && ::access(netlab.c_str(), X_OK) == 0)) {
    return;
  }
  throw WrongUsage(
      fmt::format("{} is not a program that can be started; name lab/netlab with --lab", netlab));
}

void fail_where_incomplete(const std::vector<CellOutcome>& outcomes, const fs::path& out) {
  std::size_t done = 0;
  std::size_t failed = 0;
  for (const CellOutcome& outcome : outcomes) {
    if (outcome.result) ++done;
    if (!outcome.failure.empty()) ++failed;
  }
  if (interrupted) {
    throw Error(ErrorCode::kCancelled, fmt::format("interrupted when {} of {} runs were done; the "
                                                   "same command, with --out {}, continues",
                                                   done, outcomes.size(), out.string()));
  }
  if (failed > 0) {
    throw Error(ErrorCode::kAborted,
                fmt::format("{} of {} runs failed ({} holds their output); the same command, with "
                            "--out {}, tries them again",
                            failed, outcomes.size(), (out / "logs").string(), out.string()));
  }
}

void run_compare(const CompareFlags& flags) {
  check_launcher("in-process", false);
  check_lab(flags.lab);
  const ComparePlan plan = make_compare_plan(flags.options);
  const nlohmann::json plan_json = compare_plan_json(plan);
  const fs::path out = directory_of(flags, plan_json);
  prepare(out, plan_json);
  end_on_signals();
  const std::vector<CellOutcome> outcomes = run_cells(plan, out, flags.jobs);
  const CompareReport report(plan, outcomes, measure_in_lab(plan, outcomes, out, flags.lab));
  write_json(out / kResultsFile, report.json());
  if (!interrupted) {
    print(flags.json ? json_text(report.json()) + "\n"
                     : fmt::format("{}\nThe comparison is in {}\n", report.text(), out.string()));
  }
  fail_where_incomplete(outcomes, out);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "compare", "Train the same network with several designs, and show what each saves and costs");
  command->footer(kCompareExamples);
  auto flags = std::make_shared<CompareFlags>();
  CompareOptions& options = flags->options;
  command->add_option("--recipe", options.recipe,
                      "What is trained, as for 'tersewire train' [train's defaults]");
  command->add_option("--designs", options.designs, "Designs to compare, separated by semicolons")
      ->capture_default_str();
  command
      ->add_option("--steps", options.steps,
                   "Numbers of steps, or percentages of the recipe's; each is a separate run with "
                   "a complete learning-rate schedule, its warm-up in proportion")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--rates", options.rates, "Link rates for the step times: 10mbit, 2.5gbit")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--repeat", options.repeat, "Runs per design, each with the next seed")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1000}));
  command->add_option("--set", options.settings,
                      "KEY=VALUE: an option of train for all designs, as data=PATH or workers=8");
  command->add_option("--jobs", flags->jobs, "Runs at the same time")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMaxThreads));
  command->add_option(
      "--out", flags->out,
      "Directory of the comparison, new or to continue (default: a new one in runs/)");
  command->add_option("--lab", flags->lab,
                      "Path of lab/netlab: measure step times there instead of modelling them");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags] {
    forget_defaults();
    run_compare(*flags);
  });
}

}  // namespace tersewire::apps
