#include "apps/report/report_page.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace tersewire::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPlace = "@REPORT_DATA@";

Json figure_json(const Figure& figure) {
  Json groups = Json::array();
  for (const Group& group : figure.groups) {
    groups.push_back({{"key", group.key}, {"rows", group.rows}});  // a NaN becomes null
  }
  return {{"id", figure.id},     {"title", figure.title},     {"hint", figure.hint},
          {"keys", figure.keys}, {"columns", figure.columns}, {"groups", std::move(groups)}};
}

Json headline_json(const Headline& headline) {
  Json verdicts = Json::array();
  for (const RateVerdict& verdict : headline.verdicts) {
    verdicts.push_back({{"rate", verdict.rate},
                        {"times", verdict.times},
                        {"design", verdict.design},
                        {"gain", verdict.gain},
                        {"detail", verdict.detail}});
  }
  return {{"title", headline.title}, {"detail", headline.detail}, {"verdicts", verdicts}};
}

Json data_json(const PageText& text, const std::vector<Figure>& figures) {
  Json data;
  data["version"] = TERSEWIRE_VERSION;
  data["headline"] = headline_json(text.headline);
  data["job"] = Json::array();
  for (const JobFact& fact : text.job) data["job"].push_back({fact.name, fact.value});
  data["notes"] = text.notes;
  data["designs"] = text.designs;
  data["baseline"] = text.baseline ? Json(*text.baseline) : Json();
  if (!text.footnote.empty()) data["footnote"] = text.footnote;
  data["figures"] = Json::array();
  for (const Figure& figure : figures) data["figures"].push_back(figure_json(figure));
  return data;
}

// In a <script> element nothing but '<' can end it; JSON may write any character as \uXXXX, which
// ASCII alone also keeps from line ends that JavaScript knows and JSON does not.
std::string script_safe(const Json& data) {
  const std::string text = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string report_html(const PageText& text, const std::vector<Figure>& figures) {
  const std::string_view page = built_in_report_page();
  const std::size_t at = page.find(kPlace);
  std::string html(page.substr(0, at));
  html += script_safe(data_json(text, figures));
  html += page.substr(at + kPlace.size());
  return html;
}

std::string report_html(const Designs& designs, const Headline& headline,
                        const std::vector<Figure>& figures) {
  PageText text;
  text.headline = headline;
  text.job = job_facts(designs);
  text.notes = designs.notes;
  for (const DesignRuns& design : designs.list) text.designs.push_back(design.name);
  if (designs.baseline) text.baseline = designs.list[*designs.baseline].name;
  return report_html(text, figures);
}

}  // namespace tersewire::apps
