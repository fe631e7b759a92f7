#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "errors.h"
#include "policy_for.h"

namespace tersewire {
namespace {

struct ReadyMade {
  std::string_view name;
  std::string_view rules;
};

constexpr std::array<ReadyMade, 5> kReadyMade{{
    {"small", "size<256:fp32"},
    {"light", "size<256:int8:ef=on"},
    {"3lc-paper", "kind=norm:fp32"},
    {"terngrad-paper", "last:fp32"},
    {"adacomp-paper", "kind=conv:adacomp:bin=50,lead=1; *:adacomp:bin=500,lead=1"},
}};

using Condition = std::function<bool(const TensorInfo&)>;

struct Rule {
  std::string text;
  Condition matches;
  std::string codec;
};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Goes back to the last star only, so that no pattern takes longer than glob times name.
bool glob_matches(std::string_view glob, std::string_view name) {
  std::size_t g = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_ends = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_ends = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_ends;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

std::string_view layer_of(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  return name.substr(0, name.rfind('.'));
}

std::optional<std::function<bool(std::uint64_t, std::uint64_t)>> comparison(std::string_view text) {
  if (text == "<") return std::less<>();
  if (text == "<=") return std::less_equal<>();
  if (text == ">") return std::greater<>();
  if (text == ">=") return std::greater_equal<>();
  if (text == "=") return std::equal_to<>();
  return std::nullopt;
}

// size<1000 and the like: `of` says what of a tensor is compared.
std::optional<Condition> number_condition(
    std::string_view text, std::string_view key,
    const std::function<std::uint64_t(const TensorInfo&)>& of) {
  if (!text.starts_with(key)) return std::nullopt;
  const std::string_view rest = text.substr(key.size());
  const auto digits = rest.find_first_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  const auto compare = comparison(trimmed(rest.substr(0, digits)));
  std::uint64_t limit = 0;
  const char* end = rest.data() + rest.size();
  const auto [parsed, error] = std::from_chars(rest.data() + digits, end, limit);
  if (!compare || error != std::errc() || parsed != end) return std::nullopt;
  return [compare = *compare, limit, of](const TensorInfo& t) { return compare(of(t), limit); };
}

Condition parse_condition(std::string_view text, std::span<const TensorInfo> tensors) {
  if (text == "*") return [](const TensorInfo&) { return true; };
  if (text == "first" || text == "last") {
    if (tensors.empty()) return [](const TensorInfo&) { return false; };
    const std::string layer(layer_of(text == "first" ? tensors.front() : tensors.back()));
    return [layer](const TensorInfo& t) { return layer_of(t) == layer; };
  }
  if (text.starts_with("kind=")) {
    return [kind = tensor_kind(text.substr(5))](const TensorInfo& t) { return t.kind == kind; };
  }
  if (text.starts_with("name=")) {
    return [glob = std::string(text.substr(5))](const TensorInfo& t) {
      return glob_matches(glob, t.name);
    };
  }
  if (const auto size = number_condition(text, "size", [](const auto& t) { return t.elems(); })) {
    return *size;
  }
  if (const auto rank =
          number_condition(text, "rank", [](const auto& t) { return t.shape.size(); })) {
    return *rank;
  }
  fail(ErrorCode::kInvalidArgument,
       "policy condition '{}' cannot be read; use *, size<N, rank=N, kind=K, name=GLOB, first or "
       "last",
       text);
}

std::vector<Rule> parse_rules(std::string_view text, std::span<const TensorInfo> tensors) {
  std::vector<Rule> rules;
  while (!trimmed(text).empty()) {
    const std::size_t semicolon = text.find(';');
    const std::string_view rule = trimmed(text.substr(0, semicolon));
    const std::size_t colon = rule.find(':');
    if (colon == std::string_view::npos) {
      fail(ErrorCode::kInvalidArgument,
           "policy rule '{}' has no codec; write CONDITION:CODEC, as in size<256:fp32", rule);
    }
    rules.push_back({.text = std::string(rule),
                     .matches = parse_condition(trimmed(rule.substr(0, colon)), tensors),
                     .codec = std::string(trimmed(rule.substr(colon + 1)))});
    if (semicolon == std::string_view::npos) break;
    text.remove_prefix(semicolon + 1);
  }
  return rules;
}

void check_every_rule_is_met(const std::vector<Rule>& rules, std::span<const TensorInfo> tensors) {
  for (const Rule& rule : rules) {
    if (std::ranges::any_of(tensors, rule.matches)) continue;
    std::vector<std::string> names;
    std::set<std::string_view> kinds;
    for (const TensorInfo& tensor : tensors) {
      names.push_back(tensor.name);
      kinds.insert(to_string(tensor.kind));
    }
    fail(ErrorCode::kInvalidArgument,
         "policy rule '{}' matches none of the tensors, which are of kind {} ({}); correct or remove "
         "it",
         rule.text, fmt::join(kinds, ", "), fmt::join(names, ", "));
  }
}

// In fp32 small tensors would be a third of what 3lc in blocks sends.
std::string_view automatic(std::string_view fallback) {
  return make_codec(fallback)->text().starts_with("3lc:mode=blocks") ? "light" : "small";
}

// What policies choose for.
std::vector<TensorInfo> without_exact(std::span<const TensorInfo> tensors) {
  std::vector<TensorInfo> seen;
  std::ranges::remove_copy_if(tensors, std::back_inserter(seen), &TensorInfo::exact);
  return seen;
}

std::string_view ready_made(std::string_view policy) {
  const auto found = std::ranges::find(kReadyMade, policy, &ReadyMade::name);
  return found != kReadyMade.end() ? found->rules : std::string_view();
}

}  // namespace

std::vector<std::shared_ptr<const Codec>> choose_codecs(std::string_view policy,
                                                        std::string_view fallback,
                                                        std::span<const TensorInfo> tensors,
                                                        int local_updates) {
  return choose_codecs_for(carried_after(local_updates, StateChange::kGradients), policy, fallback,
                           tensors);
}

std::vector<std::shared_ptr<const Codec>> choose_codecs_for(StateChange carried,
                                                            std::string_view policy,
                                                            std::string_view fallback,
                                                            std::span<const TensorInfo> tensors) {
  const std::string_view known = ready_made(policy == "auto" ? automatic(fallback) : policy);
  const std::vector<TensorInfo> seen = without_exact(tensors);
  const std::vector<Rule> rules = parse_rules(known.empty() ? policy : known, seen);
  if (known.empty()) check_every_rule_is_met(rules, seen);

  std::map<std::string, std::shared_ptr<const Codec>> made;
  const auto codec = [&](const std::string& text) {
    auto& entry = made[text];
    if (!entry) entry = make_codec_for(text, carried);
    return entry;
  };
  // A codec that no tensor gets must be sound all the same.
  codec(std::string(fallback));
  for (const Rule& rule : rules) codec(rule.codec);

  std::vector<std::shared_ptr<const Codec>> chosen;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.exact) {
      chosen.push_back(codec("fp32"));
      continue;
    }
    const auto rule = std::ranges::find_if(rules, [&](const Rule& r) { return r.matches(tensor); });
    chosen.push_back(codec(rule != rules.end() ? rule->codec : std::string(fallback)));
  }
  return chosen;
}

double adaptive_rate_gain(std::span<const TensorInfo> tensors,
                          std::span<const std::shared_ptr<const Codec>> codecs) {
  if (tensors.size() != codecs.size()) {
    fail(ErrorCode::kInvalidArgument, "{} codecs were given for {} tensors; pass one for each",
         codecs.size(), tensors.size());
  }
  std::map<std::string, std::size_t> values;  // by codec
  const Codec* most = nullptr;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    values[codecs[i]->text()] += tensors[i].elems();
    if (most == nullptr || values[codecs[i]->text()] > values[most->text()]) most = codecs[i].get();
  }
  return most == nullptr ? 1 : most->adaptive_rate_gain();
}

}  // namespace tersewire
