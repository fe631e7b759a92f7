#include "placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace tersewire {
namespace {

// Random numbers come in blocks of 4 (spec/wire-format.md): a part begins with one.
constexpr std::size_t kUnit = 4;
// A server may hold a 64th more than its share before a part is cut for it.
constexpr std::size_t kSlack = 64;
// The shortest part that is cut off for balance: to fill a share up, which takes few of them.
constexpr std::size_t kLeastCut = 8;

// A run of a tensor that is still to be given to a server.
struct Run {
  bool may_cut;  // for balance
  std::size_t elems;
  std::size_t tensor;
  std::size_t begin;
};

// What fills shares up comes last; of the rest the longest first, then the job's order.
struct ComesLater {
  bool operator()(const Run& a, const Run& b) const {
    return std::tuple(b.may_cut, a.elems, b.tensor, b.begin) <
           std::tuple(a.may_cut, b.elems, a.tensor, a.begin);
  }
};

using Runs = std::priority_queue<Run, std::vector<Run>, ComesLater>;

// A share of the model, which a server has or one of its fragments, by what it holds; the least
// first, of equals the lowest number.
using Load = std::pair<std::uint64_t, std::size_t>;

struct PlacedRun {
  Part part;
  std::size_t share;
};

std::vector<Run> runs_of(const Job& job) {
  std::vector<Run> runs;
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    const std::size_t elems = job.tensors[tensor].elems();
    const bool may_cut = job.part_values != Job::kWholeTensors && elems >= 2 * kLeastPartElems;
    std::size_t begin = 0;
    do {
      const std::size_t length = std::min(job.part_values, elems - begin);
      runs.push_back({.may_cut = may_cut, .elems = length, .tensor = tensor, .begin = begin});
      begin += length;
    } while (begin < elems);
  }
  return runs;
}

// How much of a run a server takes that has room for so many values: all of it where what it takes,
// or what it leaves, would be next to nothing.
std::size_t taken_of(std::size_t elems, std::size_t room) {
  const std::size_t taken = std::max(room / kUnit * kUnit, kLeastCut);
  return taken + kLeastCut > elems ? elems : taken;
}

std::vector<PlacedRun> spread(const Job& job, std::size_t shares) {
  std::uint64_t total = 0;
  Runs runs;
  for (const Run& run : runs_of(job)) {
    total += run.elems;
    runs.push(run);
  }
  const std::uint64_t even = (total + shares - 1) / shares;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (std::size_t share = 0; share < shares; ++share) loads.emplace(0, share);
  std::vector<PlacedRun> placed;
  while (!runs.empty()) {
    const Run run = runs.top();
    runs.pop();
    const auto [held, share] = loads.top();
    loads.pop();
    const bool fits = !run.may_cut || held + run.elems <= even + even / kSlack;
    const std::size_t taken = fits ? run.elems : taken_of(run.elems, even > held ? even - held : 0);
    placed.push_back(
        {.part = {.number = 0, .tensor = run.tensor, .begin = run.begin, .elems = taken},
         .share = share});
    loads.emplace(held + taken, share);
    if (taken == run.elems) continue;
    runs.push({.may_cut = true,
               .elems = run.elems - taken,
               .tensor = run.tensor,
               .begin = run.begin + taken});
  }
  return placed;
}

}  // namespace

std::size_t most_owners(const Job& job) {
  std::size_t owners = 0;
  for (const TensorInfo& tensor : job.tensors) {
    const bool whole = job.part_values == Job::kWholeTensors;
    owners += whole ? 1 : std::max<std::size_t>(tensor.elems() / kLeastPartElems, 1);
  }
  return owners;
}

PartTable cut_tensors(const Job& job, std::size_t servers) {
  const auto fragments = static_cast<std::size_t>(job.fragments);
  std::vector<PlacedRun> placed = spread(job, std::max<std::size_t>(servers, 1) * fragments);
  std::ranges::sort(
      placed, {}, [](const PlacedRun& run) { return std::pair(run.part.tensor, run.part.begin); });
  PartTable table;
  for (PlacedRun& run : placed) {
    run.part.number = table.parts.size();
    table.parts.push_back(run.part);
    if (servers > 0) table.servers.push_back(run.share % servers);
    table.fragments.push_back(run.share / std::max<std::size_t>(servers, 1));
  }
  return table;
}

std::optional<std::size_t> Placement::find(const Frame& frame) const {
  if (frame.tensor >= job.tensors.size() || frame.part >= parts_of(frame.tensor)) return {};
  return first_part[frame.tensor] + frame.part;
}

// With scaler sharing sums come as levels: the scalers of what was pushed, and of each value at
// most 17 bits.
std::size_t Placement::most_pulled_bytes(std::size_t part) const {
  const std::size_t elems = parts[part].elems;
  const std::size_t bytes = pull_codecs[part]->max_encoded_bytes(elems);
  if (!options.scaler_sharing) return bytes;
  constexpr std::size_t kHead = 64;
  return std::max(bytes, most_pushed_bytes(part) + 3 * elems + kHead);
}

std::size_t Placement::most_pulled_of_bucket(std::size_t bucket) const {
  std::size_t bytes = kMessageOverheadBytes;
  for (const std::size_t part : buckets[bucket]) {
    bytes += kMaxFrameOverheadBytes + most_pulled_bytes(part);
  }
  return bytes;
}

// All parts at once, each with who contributed to it. A ring's pieces are others than these, and as
// many more heads: so twice. Servers that do not wait send several versions at once.
std::size_t Placement::most_message_bytes() const {
  const std::size_t overhead =
      2 * kMaxFrameOverheadBytes + static_cast<std::size_t>(job.workers + 7) / 8;
  std::size_t bytes = kMessageOverheadBytes;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    bytes += overhead + std::max(most_pushed_bytes(part), most_pulled_bytes(part));
  }
  return (job.in_lock_step() ? 2 : 2 + kMostVersionsBehind) * bytes;
}

std::string Placement::name(std::size_t part) const {
  const std::size_t tensor = parts.at(part).tensor;
  const std::string& name = job.tensors[tensor].name;
  if (parts_of(tensor) == 1) return fmt::format("tensor '{}'", name);
  return fmt::format("part {} of tensor '{}'", place_in_tensor(part), name);
}

std::vector<std::vector<std::size_t>> make_buckets(std::size_t bucket_bytes,
                                                   const std::vector<Part>& parts,
                                                   const std::vector<std::uint64_t>& keys) {
  struct Open {
    std::size_t bucket;
    std::size_t bytes;
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::map<std::uint64_t, Open> open;
  for (std::size_t part = parts.size(); part-- > 0;) {
    auto [place, fresh] = open.try_emplace(keys[part]);
    if (fresh || place->second.bytes >= bucket_bytes) {
      place->second = {.bucket = buckets.size(), .bytes = 0};
      buckets.emplace_back();
    }
    buckets[place->second.bucket].push_back(part);
    place->second.bytes += parts[part].elems * sizeof(float);
  }
  return buckets;
}

EncoderContext encoder_context(const Placement& placement, std::size_t part, int rank) {
  const Part& cut = placement.parts[part];
  return {.seed = placement.job.seed,
          .sender = static_cast<std::uint32_t>(rank),
          .tensor = static_cast<std::uint32_t>(cut.tensor),
          .first_elem = cut.begin,
          .kind = placement.job.tensors[cut.tensor].kind};
}

std::unique_ptr<Encoder> encoder_for(const Placement& placement,
                                     const std::vector<std::shared_ptr<const Codec>>& codecs,
                                     std::size_t part, int rank) {
  return codecs[part]->make_encoder(placement.parts[part].elems,
                                    encoder_context(placement, part, rank));
}

}  // namespace tersewire
