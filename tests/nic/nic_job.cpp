// A job of tests/nic/nic_test.py, and of evidence/hardware: MPI ranks that add up floats, as a program
// does that knows nothing of cards. Rank 0 prints JSON.
//
// usage: nic_job VALUES|MODEL:SHARE ROUNDS [SCALE]
//
// One tensor of so many values, or a model's (`tersewire bench exchange --model`) with such a share
// of theirs, one after the other.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "apps/bench/model_tensors.h"

namespace {

std::vector<std::size_t> tensor_sizes(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return {std::stoull(text)};
  std::vector<std::size_t> sizes;
  for (const auto& tensor :
       tersewire::bench::model_tensors(text.substr(0, colon), std::stod(text.substr(colon + 1)))) {
    sizes.push_back(tensor.elems());
  }
  return sizes;
}

// Calls collective(begin, count) for each tensor, as they lie behind each other.
template <typename Collective>
void for_each_tensor(const std::vector<std::size_t>& sizes, const Collective& collective) {
  std::size_t begin = 0;
  for (const std::size_t size : sizes) {
    collective(begin, static_cast<int>(size));
    begin += size;
  }
}

// A value of a rank, as gradients are: most small, few large.
float value_of(int rank, std::size_t i, double scale) {
  const auto mixed =
      static_cast<std::uint32_t>(i * 2654435761U + static_cast<unsigned>(rank) * 40503U);
  const double u = static_cast<double>(mixed >> 8) / (1 << 24) - 0.5;
  return static_cast<float>(scale * 8 * u * u * u);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::vector<std::size_t> sizes = tensor_sizes(argv[1]);
  const auto values = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  const int rounds = std::atoi(argv[2]);
  const double scale = argc > 3 ? std::atof(argv[3]) : 0.01;

  std::vector<float> mine(values), sum(values);
  std::vector<int> counts(values), count_sum(values);
  for (std::size_t i = 0; i < values; ++i) {
    mine[i] = value_of(rank, i, scale);
    counts[i] = static_cast<int>(i) + rank;
  }
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = seconds_now();
    for_each_tensor(sizes, [&](std::size_t begin, int count) {
      MPI_Allreduce(&mine[begin], &sum[begin], count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    best = std::min(best, seconds_now() - start);
  }
  double error = 0;
  for (std::size_t i = 0; i < values; ++i) {
    double exact = 0;
    for (int r = 0; r < ranks; ++r) exact += value_of(r, i, scale);
    error = std::max(error, std::abs(exact - sum[i]));
  }
  // What a card has to leave alone: integers, what is no sum, and a broadcast of floats.
  MPI_Allreduce(counts.data(), count_sum.data(), static_cast<int>(values), MPI_INT, MPI_SUM,
                MPI_COMM_WORLD);
  long wrong = 0;
  for (std::size_t i = 0; i < values; ++i) {
    wrong += count_sum[i] != static_cast<int>(i) * ranks + ranks * (ranks - 1) / 2;
  }
  std::vector<float> maxima(values);
  MPI_Allreduce(mine.data(), maxima.data(), static_cast<int>(values), MPI_FLOAT, MPI_MAX,
                MPI_COMM_WORLD);
  for (std::size_t i = 0; i < values; ++i) {
    float exact = mine[i];
    for (int r = 0; r < ranks; ++r) exact = std::max(exact, value_of(r, i, scale));
    wrong += maxima[i] != exact;
  }
  std::vector<float> weights(values);
  for (std::size_t i = 0; i < values; ++i) weights[i] = value_of(99, i, scale);
  if (rank != 0) std::fill(weights.begin(), weights.end(), 0.0F);
  MPI_Bcast(weights.data(), static_cast<int>(values), MPI_FLOAT, 0, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < values; ++i) wrong += weights[i] != value_of(99, i, scale);

  // An aggregator's way: gradients up, which a card may compress, and weights down.
  double best_aggregator = 1e9;
  for (int round = 0; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = seconds_now();
    for_each_tensor(sizes, [&](std::size_t begin, int count) {
      MPI_Reduce(&mine[begin], &sum[begin], count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    });
    for_each_tensor(sizes, [&](std::size_t begin, int count) {
      MPI_Bcast(&sum[begin], count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    });
    MPI_Barrier(MPI_COMM_WORLD);
    best_aggregator = std::min(best_aggregator, seconds_now() - start);
  }

  double largest = 0;
  long all_wrong = 0;
  MPI_Reduce(&error, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf(
        "{\"values\": %zu, \"seconds\": %.6f, \"aggregator_seconds\": %.6f, \"error\": %.9g, "
        "\"wrong\": %ld}\n",
        values, best, best_aggregator, largest, all_wrong);
  }
  MPI_Finalize();
  return 0;
}
