#include "apps/report/report_figures.h"

#include <array>
#include <utility>

namespace tersewire::apps {
namespace {

struct FigureMaker {
  const char* id;
  Figure (*make)(const Designs&);
};

// In the order of the page.
constexpr std::array<FigureMaker, 11> kMakers{{{"designs", designs_table},
                                               {"accuracy-for-bits", accuracy_for_bits},
                                               {"accuracy-over-time", accuracy_over_time},
                                               {"step-time", step_time},
                                               {"loss", loss_over_steps},
                                               {"accuracy", accuracy_over_steps},
                                               {"bits-per-value", bits_over_steps},
                                               {"sensitivity", sensitivity},
                                               {"histograms", histograms},
                                               {"residuals", residuals},
                                               {"layers", layers}}};

}  // namespace

std::vector<Figure> make_figures(const Designs& designs) {
  std::vector<Figure> figures;
  for (const FigureMaker& maker : kMakers) {
    Figure figure = maker.make(designs);
    if (figure.groups.empty()) continue;
    round_numbers(figure);
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::vector<std::string> figure_ids() {
  std::vector<std::string> ids;
  for (const FigureMaker& maker : kMakers) ids.emplace_back(maker.id);
  return ids;
}

}  // namespace tersewire::apps
