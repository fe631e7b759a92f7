// tersewire report: what runs came to, as a page to look at.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "apps/files/new_file.h"
#include "apps/files/read_file.h"
#include "apps/report/report_designs.h"
#include "apps/report/report_figures.h"
#include "apps/report/report_headline.h"
#include "apps/report/report_page.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportExamples = R"(Examples:
  tersewire report runs/lenet-20260101-120000    writes lenet-20260101-120000.html
  tersewire report --out lenet.html runs/fp32 runs/3lc
  tersewire report --tolerance 1 comparison/     a directory of 'tersewire compare'
Writes one HTML file that needs no network, and beside it a directory with every figure's data as CSV.)";

struct ReportArguments {
  std::vector<std::string> directories;
  std::string out;
  double tolerance = 0.5;
};

void write_text(const std::string& path, const std::string& text) {
  write_new_file(path, std::as_bytes(std::span(text)));
}

// That of the directory, if there is but one.
std::string usual_page(const std::vector<std::string>& directories) {
  if (directories.size() > 1) return "report.html";
  std::error_code error;
  return fs::canonical(directories.front(), error).filename().string() + ".html";
}

// Beside the page: its name without the suffix, and "-data".
fs::path data_directory(const fs::path& out) {
  return out.parent_path() / (out.stem().string() + "-data");
}

// Those of an earlier report that has other figures go.
void write_tables(const fs::path& directory, const std::vector<Figure>& figures) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_file(directory.string(), "written", error.value());
  for (const std::string& id : figure_ids()) fs::remove(directory / (id + ".csv"), error);
  for (const Figure& figure : figures) {
    write_text((directory / (figure.id + ".csv")).string(), csv(figure));
  }
}

void run_report(const ReportArguments& arguments) {
  if (!(arguments.tolerance >= 0 && arguments.tolerance <= 100)) {
    throw WrongUsage("--tolerance is in percentage points; give one from 0 to 100");
  }
  if (arguments.out == kStandardStream) {
    throw WrongUsage("a page comes with a directory of CSV files; name a file with --out");
  }
  const Designs designs = read_designs(arguments.directories);
  const std::vector<Figure> figures = make_figures(designs);
  const Headline headline = make_headline(designs, arguments.tolerance);
  const std::string out = arguments.out.empty() ? usual_page(arguments.directories) : arguments.out;
  write_text(out, report_html(designs, headline, figures));
  const fs::path tables = data_directory(out);
  write_tables(tables, figures);
  print(fmt::format("{}\nwrote {} and {}/*.csv\n", headline.title, out, tables.string()));
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Make a page of charts of the results of runs");
  command->footer(kReportExamples);
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("DIR", arguments->directories,
                   "Directories that 'train --out' or 'compare' made")
      ->required();
  command->add_option("--out", arguments->out,
                      "The page's file [DIR.html here, or report.html for several]");
  command
      ->add_option("--tolerance", arguments->tolerance,
                   "How many percentage points of test accuracy below the baseline a design may be "
                   "to count as best")
      ->capture_default_str();
  command->callback([arguments] { run_report(*arguments); });
}

}  // namespace tersewire::apps
