#include "apps/report/report_designs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <limits>
#include <set>
#include <system_error>
#include <tuple>

#include "apps/cli/failures.h"
#include "apps/run/run_files.h"
#include "apps/run/traffic_ratios.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Config = std::map<std::string, Json>;

// What `train` models a step for.
constexpr std::array<double, 3> kUsualRates{1e7, 1e8, 1e9};

// What makes no other design of a run.
constexpr std::array<const char*, 9> kNoDesign{"seed",
                                               "steps",
                                               "checkpoint_steps",
                                               "observe_steps",
                                               "deadline_seconds",
                                               "progress_limit_seconds",
                                               "threads",
                                               "recipe",
                                               "transport"};
// What makes another job of it.
constexpr std::array<const char*, 5> kJob{"model", "data", "augment", "workers", "batch"};
constexpr const char* kData = "data";
constexpr std::array<const char*, 2> kCodecs{"push_codec", "pull_codec"};
// What mostly follows from codec and exchange.
constexpr std::array<const char*, 2> kMinor{"policy", "servers"};

constexpr std::size_t kMostSentences = 5;

std::string rate_name(double bits_per_second) {
  struct Unit {
    const char* name;
    double size;
  };
  for (const Unit& unit : {Unit{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}}) {
    if (bits_per_second >= unit.size) {
      return fmt::format("{:.6g} {}", bits_per_second / unit.size, unit.name);
    }
  }
  return fmt::format("{:.6g} bit/s", bits_per_second);
}

// A design of a comparison, as `compare` named it. Nothing in it where no comparison did.
struct Origin {
  fs::path comparison;
  std::string name;

  friend auto operator<=>(const Origin&, const Origin&) = default;
};

struct FoundRun {
  Origin origin;
  RunRecord run;
};

std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The configuration but for what repeats and lengths differ in.
Config design_config(const RunRecord& run) {
  Config config = run.config();
  for (const char* key : kNoDesign) config.erase(key);
  const auto data = config.find(kData);
  if (data != config.end()) data->second = setting_text(run, kData);
  return config;
}

std::string codecs_text(const RunRecord& run) {
  const std::string push = run.config_text("push_codec");
  const std::string pull = run.config_text("pull_codec");
  if (push.empty()) return run.directory().filename().string();
  return pull.empty() || pull == push ? push : push + " / " + pull;
}

// Of each key the value that most designs have, of several such the first.
Config usual_config(const std::vector<Config>& designs) {
  Config usual;
  std::map<std::string, std::size_t> most;
  for (const Config& design : designs) {
    for (const auto& [key, value] : design) {
      const auto same = static_cast<std::size_t>(
          std::ranges::count_if(designs, [&key = key, &value = value](const Config& other) {
            const auto found = other.find(key);
            return found != other.end() && found->second == value;
          }));
      if (same <= most[key]) continue;
      most[key] = same;
      usual[key] = value;
    }
  }
  return usual;
}

template <std::size_t kSize>
bool is_among(const std::array<const char*, kSize>& keys, const std::string& key) {
  return std::ranges::count(keys, key) > 0;
}

// The codec, and what else is unusual.
std::string design_name(const RunRecord& run, const Config& usual, bool with_minor) {
  std::string name = codecs_text(run);
  for (const auto& [key, value] : design_config(run)) {
    if (is_among(kCodecs, key) || (is_among(kMinor, key) && !with_minor)) continue;
    const auto found = usual.find(key);
    if (found == usual.end() || found->second != value) {
      name += fmt::format(", {}={}", key, plain(value));
    }
  }
  return name;
}

std::size_t unusual_keys(const RunRecord& run, const Config& usual) {
  std::size_t count = 0;
  for (const auto& [key, value] : design_config(run)) {
    const auto found = usual.find(key);
    count += found == usual.end() || found->second != value ? 1 : 0;
  }
  return count;
}

class Reader {
 public:
  void read(const std::string& name) {
    const fs::path directory = fs::path(name);
    std::error_code error;
    if (!fs::is_directory(directory, error)) {
      if (error == std::errc::permission_denied) fail_file(name, "read", error.value());
      throw Error(ErrorCode::kNotFound,
                  name +
                      " is not a directory; name one that 'tersewire train --out' or 'tersewire "
                      "compare' made");
    }
    check_may_enter(directory);
    if (is_run(directory)) {
      add({}, directory);
    } else if (fs::exists(directory / kResultsFile, error) ||
               fs::is_directory(directory / kCellsFolder, error)) {
      read_comparison(directory);
    } else {
      throw Error(ErrorCode::kNotFound,
                  name +
                      " holds neither a run nor a comparison; name a directory that 'tersewire "
                      "train --out' or 'tersewire compare' made");
    }
  }

  Designs designs() &&;

 private:
  void add(const Origin& origin, const fs::path& directory) {
    std::error_code error;
    const fs::path canonical = fs::weakly_canonical(directory, error);
    // Named twice it would count twice.
    if (!seen_.insert(canonical).second) return;
    found_.push_back({origin, RunRecord(directory, designs_.notes)});
  }

  // Of a comparison what cannot be read is left out, so that the rest is seen.
  void try_add(const Origin& origin, const fs::path& directory) {
    try {
      add(origin, directory);
    } catch (const Error& error) {
      designs_.notes.push_back(fmt::format("Left out: {}.", error.what()));
    }
  }

  void read_comparison(const fs::path& directory);
  void read_results(const fs::path& directory, const Json& results);
  void read_lab(const Origin& origin, const Json& design);
  void read_cell(const Origin& origin, const Json& cell);
  void scan_cells(const fs::path& directory);
  void read_rates(const Json& results);
  void group();
  void name_designs();
  [[nodiscard]] bool is_taken(const std::string& name) const;
  [[nodiscard]] std::string free_name(const std::string& name) const;
  [[nodiscard]] std::string name_with_directory(const Origin& origin) const;
  void choose_times();
  void read_courses();
  void choose_baseline();
  void check_job();
  void tell_diverged();
  void tell_unfinished();

  std::set<fs::path> seen_;
  std::vector<FoundRun> found_;
  std::string baseline_;
  std::map<Origin, std::map<double, double>> lab_;  // by bits a second
  Config usual_;
  std::size_t missing_cells_ = 0;
  Designs designs_;
};

void Reader::read_comparison(const fs::path& directory) {
  const Json results = json_object_if_any(directory / kResultsFile);
  const std::size_t before = found_.size();
  if (results.is_object()) read_results(directory, results);
  if (found_.size() == before) scan_cells(directory);
  if (found_.size() == before) {
    throw Error(ErrorCode::kNotFound, directory.string() +
                                          " is a comparison without a run that can be read; run "
                                          "'tersewire compare' first");
  }
}

void Reader::read_results(const fs::path& directory, const Json& results) {
  if (baseline_.empty()) baseline_ = text_of(results, "baseline");
  read_rates(results);
  const auto designs = results.find("designs");
  if (designs == results.end() || !designs->is_array()) return;
  for (const Json& design : *designs) {
    const std::string name = text_of(design, "name");
    if (name.empty() || !design.contains("cells") || !design["cells"].is_array()) continue;
    const Origin origin{directory, name};
    for (const Json& cell : design["cells"]) read_cell(origin, cell);
    read_lab(origin, design);
  }
}

void Reader::read_lab(const Origin& origin, const Json& design) {
  const auto rates = design.find("rates");
  if (rates == design.end() || !rates->is_array()) return;
  for (const Json& rate : *rates) {
    const double seconds = number_of(rate, "step_seconds");
    if (text_of(rate, "kind") != "measured" || !(seconds > 0)) continue;
    lab_[origin][number_of(rate, "bits_per_second")] = seconds;
  }
}

void Reader::read_cell(const Origin& origin, const Json& cell) {
  const fs::path path = text_of(cell, "dir");
  // A comparison's runs lie below it.
  if (path.empty() || path.is_absolute() || std::ranges::count(path, fs::path("..")) > 0) return;
  if (is_run(origin.comparison / path)) {
    try_add(origin, origin.comparison / path);
  } else {
    ++missing_cells_;
  }
}

// Without a record of the whole: what lies there.
void Reader::scan_cells(const fs::path& directory) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory / kCellsFolder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->is_directory(error) && is_run(entry->path())) runs.push_back(entry->path());
  }
  std::ranges::sort(runs);
  for (const fs::path& run : runs) try_add({}, run);
}

void Reader::read_rates(const Json& results) {
  const auto rates = results.find("rates");
  if (rates == results.end() || !rates->is_array()) return;
  for (const Json& json : *rates) {
    const double bits = number_of(json, "bits_per_second");
    const bool known = std::ranges::count(designs_.rates, bits, &LinkRate::bits_per_second) > 0;
    if (bits > 0 && !known) designs_.rates.push_back({rate_name(bits), bits});
  }
}

void Reader::group() {
  std::vector<Config> configs;  // of the designs
  std::vector<Origin> origins;
  for (FoundRun& found : found_) {
    const Config config = design_config(found.run);
    std::size_t i = 0;
    for (; i < configs.size(); ++i) {
      if (origins[i].name != found.origin.name) continue;
      // What one comparison gave a name is one design whatever its runs say.
      const bool is_named_alike = !found.origin.name.empty() && origins[i] == found.origin;
      if (is_named_alike || configs[i] == config) break;
    }
    if (i == configs.size()) {
      configs.push_back(config);
      origins.push_back(found.origin);
      std::string name = found.origin.name;
      if (!name.empty() && is_taken(name)) name = name_with_directory(found.origin);
      designs_.list.emplace_back().name = name;
    }
    designs_.list[i].measured.merge(lab_[found.origin]);
    designs_.list[i].runs.push_back(std::move(found.run));
  }
  usual_ = usual_config(configs);
  name_designs();
}

bool Reader::is_taken(const std::string& name) const {
  return std::ranges::count(designs_.list, name, &DesignRuns::name) > 0;
}

std::string Reader::free_name(const std::string& name) const {
  std::string free = name;
  for (int number = 2; is_taken(free); ++number) free = fmt::format("{} ({})", name, number);
  return free;
}

std::string Reader::name_with_directory(const Origin& origin) const {
  std::error_code error;
  const fs::path comparison = fs::weakly_canonical(origin.comparison / ".", error);
  return free_name(fmt::format("{} ({})", origin.name, comparison.filename().string()));
}

void Reader::name_designs() {
  for (DesignRuns& design : designs_.list) {
    if (!design.name.empty()) continue;
    std::string name = design_name(design.runs.front(), usual_, false);
    if (is_taken(name)) name = design_name(design.runs.front(), usual_, true);
    design.name = free_name(name);
  }
}

// Times of two kinds do not compare.
void Reader::choose_times() {
  for (LinkRate& rate : designs_.rates) {
    rate.measured = std::ranges::all_of(designs_.list, [&](const DesignRuns& design) {
      return design.measured.contains(rate.bits_per_second) ||
             std::ranges::none_of(design.runs, &RunRecord::finished);
    });
  }
}

// NaNs have no order.
double or_zero(double number) { return std::isfinite(number) ? number : 0; }

void Reader::read_courses() {
  for (DesignRuns& design : designs_.list) {
    const auto longest = std::ranges::max_element(design.runs, {}, [](const RunRecord& run) {
      return std::tuple(run.finished(), or_zero(run.config_number("steps")),
                        -or_zero(run.config_number("seed")));
    });
    design.shown = static_cast<std::size_t>(longest - design.runs.begin());
    design.steps = longest->steps(designs_.notes);
    design.observed = longest->observed(kFollowedTensors, designs_.notes);
  }
}

void Reader::choose_baseline() {
  for (std::size_t i = 0; i < designs_.list.size() && !designs_.baseline; ++i) {
    if (designs_.list[i].name == baseline_) designs_.baseline = i;
  }
  // Otherwise the most usual one of fp32.
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = 0; i < designs_.list.size() && baseline_.empty(); ++i) {
    const RunRecord& run = designs_.list[i].shown_run();
    if (codecs_text(run) != "fp32" || run.config_number("local_steps") > 1 ||
        run.config_number("local_updates") > 0) {
      continue;
    }
    const std::size_t unusual = unusual_keys(run, usual_);
    if (unusual >= least) continue;
    least = unusual;
    designs_.baseline = i;
  }
  if (!designs_.baseline) return;
  // First in every legend and table.
  const auto place = designs_.list.begin() + static_cast<std::ptrdiff_t>(*designs_.baseline);
  std::rotate(designs_.list.begin(), place, place + 1);
  designs_.baseline = 0;
}

void Reader::check_job() {
  for (const char* key : kJob) {
    std::set<std::string> values;
    for (const DesignRuns& design : designs_.list) {
      for (const RunRecord& run : design.runs) {
        if (run.config().contains(key)) values.insert(setting_text(run, key));
      }
    }
    if (values.size() < 2) continue;
    designs_.same_job = false;
    designs_.notes.push_back(
        fmt::format("The runs differ in {} ({}), so their accuracies and times do not compare; "
                    "report on runs of one job to learn which design is best.",
                    key, fmt::join(values, ", ")));
  }
}

void Reader::tell_diverged() {
  for (const DesignRuns& design : designs_.list) {
    const auto diverged = std::ranges::count_if(design.runs, &RunRecord::diverged);
    if (diverged == 0) continue;
    std::vector<std::string> steps;
    for (const RunRecord& run : design.runs) {
      const double step = run.summary("diverged_step");
      if (run.diverged() && std::isfinite(step)) steps.push_back(fmt::format("{:.0f}", step));
    }
    const std::string since =
        steps.empty() ? "" : fmt::format(" (at step {})", fmt::join(steps, ", "));
    designs_.notes.push_back(
        fmt::format("{}: {} of {} runs diverged{}, their loss was no finite number or tenfold over "
                    "its best at the end; they are left out of every mean. Use a lower learning "
                    "rate, a longer warm-up or a milder codec.",
                    design.name, diverged, design.runs.size(), since));
  }
}

void Reader::tell_unfinished() {
  std::vector<std::string> sentences;
  for (const DesignRuns& design : designs_.list) {
    for (const RunRecord& run : design.runs) {
      if (run.finished()) continue;
      double last = run.summary("steps");
      if (&run == &design.shown_run() && !design.steps.empty()) last = design.steps.back().step;
      const double planned = run.config_number("steps");
      const std::string of = planned > 0 ? fmt::format(" of {:.0f}", planned) : "";
      const std::string after = last > 0 ? fmt::format(" after step {:.0f}{}", last, of) : "";
      sentences.push_back(fmt::format("The run in {} was {}{}; this shows what there is of it.",
                                      run.directory().string(),
                                      run.interrupted() ? "interrupted" : "cut off", after));
    }
  }
  if (sentences.size() > kMostSentences) {
    const std::string count = fmt::format(
        "{} runs were cut off or interrupted; of these only the "
        "course is shown.",
        sentences.size());
    sentences = {count};
  }
  if (missing_cells_ > 0) {
    sentences.push_back(fmt::format("{} of the comparison's runs {} not there yet.", missing_cells_,
                                    missing_cells_ == 1 ? "is" : "are"));
  }
  designs_.notes.insert(designs_.notes.begin(), sentences.begin(), sentences.end());
}

Designs Reader::designs() && {
  if (designs_.rates.empty()) {
    for (const double bits : kUsualRates) designs_.rates.push_back({rate_name(bits), bits});
  }
  std::ranges::sort(designs_.rates, {}, &LinkRate::bits_per_second);
  group();
  choose_times();
  read_courses();
  choose_baseline();
  check_job();
  tell_diverged();
  tell_unfinished();
  return std::move(designs_);
}

}  // namespace

Designs read_designs(const std::vector<std::string>& directories) {
  Reader reader;
  for (const std::string& directory : directories) reader.read(directory);
  return std::move(reader).designs();
}

double modelled_step_seconds(const RunRecord& run, const LinkRate& rate) {
  return modelled_step_seconds(run.summary("compute_seconds"), run.summary("codec_seconds"),
                               run.summary("busiest_node_bytes"), rate.bits_per_second);
}

std::string setting_text(const RunRecord& run, const std::string& key) {
  const auto found = run.config().find(key);
  if (found == run.config().end()) return "";
  if (key != kData) return plain(found->second);
  fs::path path = plain(found->second);
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

std::optional<CodecSetting> codec_setting(const RunRecord& run, const std::string& key) {
  std::string text;
  try {
    text = make_codec(codecs_text(run))->text();
  } catch (const Error&) {
    return std::nullopt;  // two codecs, or none that this version knows
  }
  // A lead that nobody said goes by s.
  if (const auto lead = text.find("lead=");
      lead != std::string::npos && codecs_text(run).find("lead=") == std::string::npos) {
    text.erase(lead, text.find(',', lead) + 1 - lead);
  }
  const std::size_t parameters = text.find(':');
  std::size_t at = text.find(key + "=", parameters);
  if (at == std::string::npos || (text[at - 1] != ':' && text[at - 1] != ',')) return std::nullopt;
  CodecSetting setting;
  const char* digits = text.data() + at + key.size() + 1;
  const auto [end, error] = std::from_chars(digits, text.data() + text.size(), setting.value);
  if (error != std::errc() || !std::isfinite(setting.value)) return std::nullopt;
  text.erase(at, static_cast<std::size_t>(end - (text.data() + at)));
  Json rest = design_config(run);
  for (const char* codec : kCodecs) rest[codec] = text;
  setting.rest = rest.dump(-1, ' ', false, Json::error_handler_t::replace);
  return setting;
}

}  // namespace tersewire::apps
