// Arbitrary text where an application gives text: codecs, policies and transports.
//
// Input: lines. The first is a codec, a policy or a transport, the second a policy's fallback, each
// other the name of a tensor, whose kind and shape come from the name's letters.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/codec.h"
#include "tersewire/policy.h"
#include "tersewire/tensor.h"
#include "tersewire/transports.h"

namespace tersewire::fuzz {
namespace {

void check_codec(const Codec& codec) {
  const std::string text = codec.text();
  require(make_codec(text)->text() == text, "a codec's text makes the same codec");
  require(text.starts_with(codec_name(codec.id())), "a codec's text begins with its name");
}

void check_make_codec(std::string_view text) {
  std::shared_ptr<const Codec> codec;
  if (succeeds([&] { codec = make_codec(text); })) check_codec(*codec);
}

TensorInfo tensor_of(std::string_view name) {
  TensorInfo tensor{.name = std::string(name), .shape = {}, .kind = TensorKind::kOther};
  for (const char letter : name.substr(0, 4)) {
    tensor.shape.push_back(static_cast<unsigned char>(letter));
  }
  const auto kinds = static_cast<std::size_t>(TensorKind::kEmbedding) + 1;
  tensor.kind = static_cast<TensorKind>(name.size() % kinds);
  require(tensor_kind(to_string(tensor.kind)) == tensor.kind, "a kind's text makes the same kind");
  return tensor;
}

void check_choose_codecs(const std::vector<std::string_view>& lines) {
  std::vector<TensorInfo> tensors;
  for (std::size_t i = 2; i < lines.size(); ++i) tensors.push_back(tensor_of(lines[i]));
  const std::string_view fallback = lines.size() > 1 ? lines[1] : "3lc";
  std::vector<std::shared_ptr<const Codec>> chosen;
  if (!succeeds([&] { chosen = choose_codecs(lines[0], fallback, tensors); })) return;
  require(chosen.size() == tensors.size(), "every tensor gets a codec");
  for (const auto& codec : chosen) check_codec(*codec);
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire::fuzz;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> lines;
  for (;;) {
    const std::size_t end = rest.find('\n');
    lines.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  check_make_codec(lines[0]);
  check_choose_codecs(lines);
  succeeds([&] { tersewire::tensor_kind(lines[0]); });
  succeeds([&] { tersewire::choose_transport(lines[0]); });
  return 0;
}
