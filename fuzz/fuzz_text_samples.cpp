// Arbitrary bytes as a text to learn.
#include <optional>

#include "fuzz_support.h"
#include "trainer/data/text_samples.h"

namespace {

using namespace tersewire::fuzz;
using namespace tersewire::trainer;

// Every sample continues the text where the one before ended.
void check_samples(const Samples& samples, std::span<const std::uint8_t> text) {
  BatchMaker batches(samples, 1, 0);
  for (std::uint32_t i = 0; i < samples.size(); ++i) {
    const Batch& batch = batches.make({&i, 1}, i);
    require(batch.label_count == kTextSampleLength, "every character has a label");
    for (std::size_t j = 0; j < kTextSampleLength; ++j) {
      const std::size_t at = i * kTextSampleLength + j;
      require(batch.tokens[j] >= 0 && batch.tokens[j] < samples.kind().classes &&
                  batch.labels[j] >= 0 && batch.labels[j] < samples.kind().classes,
              "numbers are below the number of characters");
      require((batch.tokens[j] < batch.labels[j]) == (text[at] < text[at + 1]) &&
                  (batch.tokens[j] == batch.labels[j]) == (text[at] == text[at + 1]),
              "characters are numbered in the order of their bytes, and labels follow");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::optional<DataSplits> splits;
  if (!succeeds([&] { splits = split_text({data, size}, "data"); })) return 0;
  const std::size_t test = size / 10;
  check_samples(*splits->train, {data, size - test});
  check_samples(*splits->test, {data + (size - test), test});
  return 0;
}
