#include "apps/run/numbers/json_object.h"

#include <cstdint>
#include <limits>
#include <system_error>

#include "apps/files/read_file.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uintmax_t kMaxObjectBytes = std::uintmax_t{1} << 24;

}  // namespace

Json json_object_if_any(const fs::path& file) {
  std::error_code error;
  // A pipe might never end.
  if (!fs::is_regular_file(file, error)) return {};
  if (fs::file_size(file, error) > kMaxObjectBytes) {
    throw Error(ErrorCode::kDataLoss,
                file.string() + " is too large to be a run's; name another directory");
  }
  return parse_json_object(string_of(read_file(file.string())));
}

double number_of(const Json& object, const std::string& key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

std::string text_of(const Json& object, const std::string& key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace tersewire::apps
