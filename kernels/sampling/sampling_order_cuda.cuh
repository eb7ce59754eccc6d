// SortAll, SelectLargest: the ids of a row by falling logit, ties by id, by a block of threads.
//
// Equation:  none.
// Shapes:    an entry is a key, smaller for a larger penalised logit, and an id; sorted by (key, id),
//            which no two entries share: any algorithm gives the one order.
// Numerics:  exact.
// Threads:   a block of kThreads; every function is called by all of them.
#ifndef LETHE_KERNELS_SAMPLING_SAMPLING_ORDER_CUDA_CUH_
#define LETHE_KERNELS_SAMPLING_SAMPLING_ORDER_CUDA_CUH_

#include "kernels/sampling/sampling_cuda.cuh"

namespace lethe::sampling {

inline constexpr int kSelectMax = 1024;  // entries that SelectLargest can give

__device__ __forceinline__ uint64_t KeyOf(double logit) {
  // -0 is 0; then the order of the bits, turned round.
  const auto bits = static_cast<uint64_t>(__double_as_longlong(logit + 0.0));
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}

// One compare-and-exchange step of bitonic sort on n entries.
__device__ __forceinline__ void BitonicStep(uint64_t* keys, uint32_t* ids, int n, int first,
                                            int size, int stride) {
  for (int i = static_cast<int>(threadIdx.x); i < n / 2; i += kThreads) {
    const int low = 2 * i - (i & (stride - 1));
    const int high = low + stride;
    const bool ascends = ((first + low) & size) == 0;
    const bool is_later = keys[low] != keys[high] ? keys[low] > keys[high] : ids[low] > ids[high];
    if (is_later != ascends) continue;
    const uint64_t key = keys[low];
    const uint32_t id = ids[low];
    keys[low] = keys[high];
    ids[low] = ids[high];
    keys[high] = key;
    ids[high] = id;
  }
  __syncthreads();
}

// Sorts n entries of shared memory, n a power of two.
__device__ __forceinline__ void SortShared(int n, Shared* shared) {
  __syncthreads();
  for (int size = 2; size <= n; size *= 2) {
    for (int stride = size / 2; stride >= 1; stride /= 2) {
      BitonicStep(shared->sort_keys, shared->sort_ids, n, 0, size, stride);
    }
  }
}

// The strides below kSortTile of the merges to `first_size` … `last_size`, tile by tile in shared memory.
__device__ __forceinline__ void SortTiles(uint64_t* keys, uint32_t* ids, int n, int first_size,
                                          int last_size, Shared* shared) {
  constexpr int kTileSize = static_cast<int>(kSortTile);
  for (int first = 0; first < n; first += kTileSize) {
    for (int i = static_cast<int>(threadIdx.x); i < kTileSize; i += kThreads) {
      shared->sort_keys[i] = keys[first + i];
      shared->sort_ids[i] = ids[first + i];
    }
    __syncthreads();
    for (int size = first_size; size <= last_size; size *= 2) {
      for (int stride = min(size, kTileSize) / 2; stride >= 1; stride /= 2) {
        BitonicStep(shared->sort_keys, shared->sort_ids, kTileSize, first, size, stride);
      }
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTileSize; i += kThreads) {
      keys[first + i] = shared->sort_keys[i];
      ids[first + i] = shared->sort_ids[i];
    }
    __syncthreads();
  }
}

// Entry i of the row; past the vocabulary one that is sorted behind all others.
__device__ __forceinline__ void StoreEntry(const Row& row, int i, uint64_t* keys, uint32_t* ids) {
  keys[i] = i < row.vocab ? KeyOf(row.Penalized(i)) : ~uint64_t{0};
  ids[i] = static_cast<uint32_t>(i);
}

// All ids in order; vocabularies above kSortTile use the row's n entries of the workspace.
__device__ __forceinline__ const uint32_t* SortAll(const Row& row, uint64_t* keys, uint32_t* ids,
                                                   int n, Shared* shared) {
  if (n == 0) {
    int size = 1;
    while (size < row.vocab) size *= 2;
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
      StoreEntry(row, i, shared->sort_keys, shared->sort_ids);
    }
    SortShared(size, shared);
    return shared->sort_ids;
  }
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) StoreEntry(row, i, keys, ids);
  __syncthreads();
  constexpr int kTileSize = static_cast<int>(kSortTile);
  SortTiles(keys, ids, n, 2, kTileSize, shared);
  for (int size = 2 * kTileSize; size <= n; size *= 2) {
    for (int stride = size / 2; stride >= kTileSize; stride /= 2) {
      BitonicStep(keys, ids, n, 0, size, stride);
    }
    SortTiles(keys, ids, n, size, size, shared);
  }
  return ids;
}

// Digit `round` of an entry, most significant first: eight of the key, then four of the id.
__device__ __forceinline__ uint32_t Digit(uint64_t key, uint32_t id, int round) {
  if (round < 8) return static_cast<uint32_t>(key >> (56 - 8 * round)) & 255u;
  return id >> (24 - 8 * (round - 8)) & 255u;
}

// An entry and how many of its digits are settled.
struct Threshold {
  uint64_t key;
  uint32_t id;
  int num_digits;

  // -1, 0, 1: the entry's settled digits are before, equal to, behind the threshold's.
  __device__ int Compare(uint64_t other_key, uint32_t other_id) const {
    for (int round = 0; round < num_digits; ++round) {
      const uint32_t a = Digit(other_key, other_id, round);
      const uint32_t b = Digit(key, id, round);
      if (a != b) return a < b ? -1 : 1;
    }
    return 0;
  }
};

// The first `count` <= kSelectMax ids in order, in shared memory: digit by digit the threshold below which
// lie exactly so many, then a sort of these.
__device__ __forceinline__ const uint32_t* SelectLargest(const Row& row, int count,
                                                         Shared* shared) {
  Threshold threshold = {0, 0, 0};
  int wanted = count;  // among the entries that equal the threshold so far
  for (int round = 0; round < 12; ++round) {
    if (threadIdx.x < 256) shared->histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < row.vocab; i += kThreads) {
      const uint64_t key = KeyOf(row.Penalized(i));
      if (threshold.Compare(key, static_cast<uint32_t>(i)) == 0) {
        atomicAdd(&shared->histogram[Digit(key, static_cast<uint32_t>(i), round)], 1u);
      }
    }
    __syncthreads();
    uint32_t digit = 0;
    while (static_cast<int>(shared->histogram[digit]) < wanted) {
      wanted -= static_cast<int>(shared->histogram[digit]);
      ++digit;
    }
    const bool is_exact = static_cast<int>(shared->histogram[digit]) == wanted;
    if (round < 8) {
      threshold.key |= static_cast<uint64_t>(digit) << (56 - 8 * round);
    } else {
      threshold.id |= digit << (24 - 8 * (round - 8));
    }
    threshold.num_digits = round + 1;
    __syncthreads();
    if (is_exact) break;
  }
  int size = 1;
  while (size < count) size *= 2;
  if (threadIdx.x == 0) shared->gathered = 0;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
    shared->sort_keys[i] = ~uint64_t{0};
    shared->sort_ids[i] = ~uint32_t{0};
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < row.vocab; i += kThreads) {
    const uint64_t key = KeyOf(row.Penalized(i));
    if (threshold.Compare(key, static_cast<uint32_t>(i)) > 0) continue;
    const int at = atomicAdd(&shared->gathered, 1);  // any place: they are sorted next
    shared->sort_keys[at] = key;
    shared->sort_ids[at] = static_cast<uint32_t>(i);
  }
  SortShared(size, shared);
  return shared->sort_ids;
}

}  // namespace lethe::sampling

#endif  // LETHE_KERNELS_SAMPLING_SAMPLING_ORDER_CUDA_CUH_
