// Row, View, ChainSum, FirstAtLeast: a row's distribution and sums over it in order, by a block of threads.
//
// Equation:  sampling_cpu.cc's: penalised logit, (logit - largest) / temperature, e^ of it.
// Shapes:    a row has `vocab` ids.
// Numerics:  ChainSum(w)'s bits are those of s = 0; for w: s = fl(s + w), all w >= 0. While s stays in one
//            binade [2^e, 2^(e+1)] it is an integer S times u = 2^(e-52), and fl(s + w) adds to S the
//            integer nearest to w / u, a tie going where S + it is even. So a number's effect on S depends
//            on S only by its parity: it is a pair of increments, for even and for odd S; pairs compose,
//            composition is associative, and 256 numbers make one pair, in any grouping, exactly. A chunk
//            that leaves the binade (about twenty do, whatever the vocabulary) is summed one by one.
// Threads:   a block of kThreads; every function is called by all of them.
#ifndef LETHE_KERNELS_SAMPLING_SAMPLING_CUDA_CUH_
#define LETHE_KERNELS_SAMPLING_SAMPLING_CUDA_CUH_

#include <cfloat>
#include <cstdint>

#include "kernels/math/math_cuda.cuh"
#include "kernels/sampling/sampling_cuda.h"

namespace lethe::sampling {

inline constexpr int kThreads = 512;
inline constexpr int kChunk = 256;  // numbers that become one pair
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kPerLane = kChunk / 32;
inline constexpr int kTile = 4096;  // numbers evaluated together
static_assert(kTile / kChunk == kWarps);
inline constexpr int kPadded =
    kTile + kTile / kPerLane;  // a lane's numbers in other banks than its
                               // neighbours'
inline constexpr int kChunksMax = static_cast<int>(kSampledVocabMax) / kChunk;

// Shared memory of a block.
struct Shared {
  double weights[kPadded];
  double prefixes[kChunksMax];  // the sum behind each chunk
  uint64_t sort_keys[kSortTile];
  uint32_t sort_ids[kSortTile];
  uint32_t histogram[256];
  double total;
  int found;
  int gathered;
  uint64_t smallest_key;
  struct {
    long long even;
    long long odd;
    bool fits;
  } pairs[kTile / kChunk];
};

__device__ __forceinline__ int PaddedPlace(int i) { return i + i / kPerLane; }

struct Row {
  const float* logits;
  const int32_t* counts;  // null: none
  SamplingRow parameters;
  int vocab;
  double largest;  // penalised logit

  __device__ double Penalized(int id) const {
    const auto wide = static_cast<double>(logits[id]);
    if (counts == nullptr || counts[id] <= 0) return wide;
    const double penalty = parameters.repetition_penalty;
    constexpr double kBound = DBL_MAX / 4.0;
    return fmin(fmax(wide > 0.0 ? wide / penalty : wide * penalty, -kBound), kBound);
  }
  __device__ double Scaled(int id) const {
    const double below = Penalized(id) - largest;
    const double temperature = parameters.temperature;
    return temperature > 0.0 && temperature != 1.0 ? below / temperature : below;
  }
  __device__ double Weight(int id) const { return cuda::Exp(Scaled(id)); }
};

// Candidates in the order of their sums; one whose weight is below min_weight counts as 0, which no sum and
// no draw can tell from its absence.
struct View {
  const uint32_t* order;  // null: by id
  int count;
  double min_weight;

  __device__ int Id(int i) const { return order != nullptr ? static_cast<int>(order[i]) : i; }
  __device__ double Weight(const Row& row, int i) const {
    const double weight = row.Weight(Id(i));
    return weight < min_weight ? 0.0 : weight;
  }
};

// What a run of numbers adds to an even and to an odd S.
struct Increments {
  long long even;
  long long odd;
};

// `first`, then `second`.
__device__ __forceinline__ Increments Compose(Increments first, Increments second) {
  Increments both;
  both.even = first.even + ((first.even & 1) != 0 ? second.odd : second.even);
  both.odd = first.odd + ((first.odd & 1) != 0 ? second.even : second.odd);
  return both;
}

// Of one number, w / u = whole + fraction.
__device__ __forceinline__ Increments IncrementsOf(double scaled) {
  const auto whole = static_cast<long long>(scaled);
  const double fraction = scaled - static_cast<double>(whole);
  const bool is_tie = fraction == 0.5;
  const long long up = fraction > 0.5 ? 1 : 0;
  const bool is_odd = (whole & 1) != 0;
  // A tie makes S + whole even.
  return {whole + (is_tie && is_odd ? 1 : up), whole + (is_tie && !is_odd ? 1 : up)};
}

// The binade of a sum. `fits` is false for 0 and for numbers whose u has too large a reciprocal.
struct Binade {
  static constexpr long long kOne = 1ll << 52;  // the least S
  long long sum;                                // S
  int exponent;                                 // e
  bool fits;

  __device__ explicit Binade(double s) {
    const auto bits = static_cast<uint64_t>(__double_as_longlong(s));
    sum = static_cast<long long>((bits & (uint64_t{kOne} - 1)) | uint64_t{kOne});
    exponent = static_cast<int>(bits >> 52) - 1023;
    fits = exponent > -900;
  }
  static __device__ double PowerOfTwo(int n) {
    return __longlong_as_double(static_cast<long long>(n + 1023) << 52);
  }
};

// A warp stores what chunk `chunk` of the tile adds in the binade of s, and whether every number is small
// enough to tell.
__device__ __forceinline__ void StorePair(double s, int chunk, Shared* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double* weights = shared->weights + PaddedPlace(chunk * kChunk);
  const Binade binade(s);
  bool fits = binade.fits;
  Increments increments = {0, 0};
  const double scale = Binade::PowerOfTwo(fits ? 52 - binade.exponent : 0);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const double scaled = weights[PaddedPlace(lane * kPerLane + i)] * scale;
    fits = fits && scaled < static_cast<double>(Binade::kOne);
    increments = Compose(increments, IncrementsOf(fits ? scaled : 0.0));
  }
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Increments later = {__shfl_down_sync(0xffffffffu, increments.even, offset),
                              __shfl_down_sync(0xffffffffu, increments.odd, offset)};
    increments = Compose(increments, later);
  }
  fits = __all_sync(0xffffffffu, fits);
  if (lane == 0) shared->pairs[chunk] = {increments.even, increments.odd, fits};
}

// Adds the tile's chunks from `chunk` on to s while they stay in its binade, then the one that leaves it, number
// by number. One thread; returns the next chunk and leaves s and the prefixes from first_prefix on.
__device__ __forceinline__ int AddChunks(int chunk, int num_chunks, int first_prefix,
                                         Shared* shared) {
  Binade binade(shared->total);
  const double u = Binade::PowerOfTwo(binade.fits ? binade.exponent - 52 : 0);
  double s = shared->total;
  for (; chunk < num_chunks; ++chunk) {
    const auto& pair = shared->pairs[chunk];
    const long long sum = binade.sum + ((binade.sum & 1) != 0 ? pair.odd : pair.even);
    if (!pair.fits || sum > 2 * Binade::kOne) break;
    binade.sum = sum;
    s = static_cast<double>(sum) * u;
    shared->prefixes[first_prefix + chunk] = s;
    if (sum == 2 * Binade::kOne) {  // the next binade's first number
      shared->total = s;
      return chunk + 1;
    }
  }
  if (chunk < num_chunks) {
    const double* weights = shared->weights + PaddedPlace(chunk * kChunk);
#pragma unroll 8
    for (int i = 0; i < kChunk; ++i) s += weights[PaddedPlace(i)];
    shared->prefixes[first_prefix + chunk] = s;
    ++chunk;
  }
  shared->total = s;
  return chunk;
}

// Weights first … first + kTile - 1 of the view to shared memory, zeros past its end.
__device__ __forceinline__ void EvaluateTile(const Row& row, const View& view, int first,
                                             Shared* shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kThreads) {
    const int at = first + i;
    shared->weights[PaddedPlace(i)] = at < view.count ? view.Weight(row, at) : 0.0;
  }
}

// The view's sum; leaves the sums behind every chunk in shared->prefixes.
__device__ __forceinline__ double ChainSum(const Row& row, const View& view, Shared* shared) {
  __syncthreads();
  if (threadIdx.x == 0) shared->total = 0.0;
  for (int first = 0; first < view.count; first += kTile) {
    EvaluateTile(row, view, first, shared);
    __syncthreads();
    const int num_chunks = (min(kTile, view.count - first) + kChunk - 1) / kChunk;
    for (int chunk = 0; chunk < num_chunks;) {
      const int mine = static_cast<int>(threadIdx.x) / 32;
      if (mine >= chunk && mine < num_chunks) StorePair(shared->total, mine, shared);
      __syncthreads();
      if (threadIdx.x == 0) {
        shared->found = AddChunks(chunk, num_chunks, first / kChunk, shared);
      }
      __syncthreads();
      chunk = shared->found;
    }
  }
  __syncthreads();
  const double total = shared->total;
  __syncthreads();  // before anybody writes there again
  return total;
}

// The first i whose sum up to and with it exceeds (or, with may_equal, reaches) `target`; -1 if none does.
// Behind ChainSum of the same view.
__device__ __forceinline__ int FirstPast(const Row& row, const View& view, double target,
                                         bool may_equal, Shared* shared) {
  const int num_chunks = (view.count + kChunk - 1) / kChunk;
  const auto is_past = [=](double sum) { return sum > target || (may_equal && sum == target); };
  if (threadIdx.x == 0) shared->found = num_chunks;
  __syncthreads();
  for (int chunk = static_cast<int>(threadIdx.x); chunk < num_chunks; chunk += kThreads) {
    if (is_past(shared->prefixes[chunk])) {
      atomicMin(&shared->found, chunk);
      break;
    }
  }
  __syncthreads();
  const int chunk = shared->found;
  __syncthreads();
  if (chunk == num_chunks) return -1;
  EvaluateTile(row, view, chunk * kChunk, shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    double s = chunk > 0 ? shared->prefixes[chunk - 1] : 0.0;
    int i = 0;
    while (i < kChunk && !is_past(s += shared->weights[PaddedPlace(i)])) ++i;
    shared->found = chunk * kChunk + i;
  }
  __syncthreads();
  const int found = shared->found;
  __syncthreads();  // before anybody writes there again
  return found;
}

}  // namespace lethe::sampling

#endif  // LETHE_KERNELS_SAMPLING_SAMPLING_CUDA_CUH_
