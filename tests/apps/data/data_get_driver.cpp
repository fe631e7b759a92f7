// Fetches a made-up data set, for data_command_test.py: those that the program knows cannot be
// made up, because their SHA-256 is fixed.
//
//   data_get_driver DIRECTORY URL STALL_SECONDS NAME:BYTES:SHA256... [-- PATH:NAME:BYTES...]
//
// What follows "--" is taken out of the file, an archive. Prints "kept PATH" and "progress BYTES";
// ends with 1 and a sentence on stderr where it fails.
#include <csignal>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "apps/data/data_get.h"

namespace {

std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields;
  std::istringstream in(text);
  for (std::string field; std::getline(in, field, ':');) fields.push_back(field);
  return fields;
}

tersewire::apps::DataSet data_set(int argc, char** argv) {
  tersewire::apps::DataSet set{.name = "made-up", .url = argv[2], .files = {}, .members = {}};
  bool of_archive = false;
  for (int i = 4; i < argc; ++i) {
    const std::string text = argv[i];
    const std::vector<std::string> fields = fields_of(text);
    if (text == "--") {
      of_archive = true;
    } else if (of_archive) {
      set.members.push_back(
          {.path = fields.at(0), .name = fields.at(1), .bytes = std::stoull(fields.at(2))});
    } else {
      set.files.push_back(
          {.name = fields.at(0), .bytes = std::stoull(fields.at(1)), .sha256 = fields.at(2)});
    }
  }
  return set;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  std::signal(SIGXFSZ, SIG_IGN);  // as the program does
  try {
    tersewire::apps::get_data_set(
        data_set(argc, argv), argv[1],
        {.on_kept = [](const std::string& path) { std::printf("kept %s\n", path.c_str()); },
         .on_progress =
             [](std::uint64_t bytes, const std::string&) {
               std::printf("progress %llu\n", static_cast<unsigned long long>(bytes));
             }},
        std::stol(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
