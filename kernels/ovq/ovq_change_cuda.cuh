// The changing half of OVQ's merge: slots become the means of themselves and the tokens that join
// them, and the reads get their rows.
#ifndef LETHE_KERNELS_OVQ_OVQ_CHANGE_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_CHANGE_CUDA_CUH_

#include <cstdint>

#include "kernels/ovq/ovq_merge_cuda.cuh"

namespace lethe::ovq {

// a / total, rounded to nearest; inverse = 1 / total, rounded to nearest, and no -0 as a. The first
// correction brings the quotient to within a unit in the last place, the second rounds it right
// (Markstein 1990), unless the remainder is not exact: where a is tiny.
__device__ inline float Divide(float a, float total, float inverse) {
  float quotient = a * inverse;
  quotient = fmaf(fmaf(-total, quotient, a), inverse, quotient);
  return fmaf(fmaf(-total, quotient, a), inverse, quotient);
}
__device__ inline float4 Divide(float4 a, float total, float inverse) {
  const float least = fminf(fminf(fabsf(a.x), fabsf(a.y)), fminf(fabsf(a.z), fabsf(a.w)));
  if (least >= 0x1p-60f) {
    return make_float4(Divide(a.x, total, inverse), Divide(a.y, total, inverse),
                       Divide(a.z, total, inverse), Divide(a.w, total, inverse));
  }
  return make_float4(__fdiv_rn(a.x, total), __fdiv_rn(a.y, total), __fdiv_rn(a.z, total),
                     __fdiv_rn(a.w, total));
}

// By one warp at a time: a lane has kDim / 64 vectors of the D keys and D values of a row.
template <int kDim, bool kFull, int kTokens>
class Changer {
  using Block = MergeBlock<kDim, kFull, kTokens>;
  static constexpr int kGroups = Block::kGroups;
  static constexpr int kVectors = kDim / 64;
  static constexpr int kAtOnce = 2;  // changes by a warp, with their loads in flight together

 public:
  __device__ explicit Changer(const Block& block) : b_(block) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      slots_[i] = (IsKey(i) ? b_.shared.slot_keys : b_.shared.slot_values) + Element(i);
    }
    rows_ = b_.args.rows == nullptr
                ? nullptr
                : b_.args.rows + (RowsOfChain(b_.args, b_.Chain()) + b_.ChangedRow()) * (2 * kDim);
  }

  __device__ void ChangeAll() const {
#pragma unroll 1
    for (int i = b_.warp; i < b_.shared.num_changes; i += kAtOnce * kMergeWarps) {
      Loads loads[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int place = i + j * kMergeWarps;
        if (place < b_.shared.num_changes) Begin(b_.shared.changes[place], &loads[j]);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int place = i + j * kMergeWarps;
        if (place < b_.shared.num_changes) End(b_.shared.changes[place], loads[j]);
      }
    }
  }

 private:
  struct Loads {
    float4 tokens[kVectors];  // of the change's index
    float4 means[kVectors];   // of the slot before, unless it is new
  };

  // The tokens that join a slot.
  struct Joiners {
    uint64_t low, high;

    __device__ bool IsEmpty() const { return (low | high) == 0; }
    __device__ int TakeLowest() {
      if (low != 0) {
        const int index = __ffsll(static_cast<long long>(low)) - 1;
        low &= low - 1;
        return index;
      }
      const int index = 63 + __ffsll(static_cast<long long>(high));
      high &= high - 1;
      return index;
    }
  };
  __device__ Joiners JoinersAt(int index) const {
    const auto& words = b_.shared.joiners;
    Joiners joiners = {};
    joiners.low = words[0][index] | static_cast<uint64_t>(words[1][index]) << 32;
    if constexpr (kGroups > 2) {
      joiners.high = words[2][index] | static_cast<uint64_t>(words[3][index]) << 32;
    }
    return joiners;
  }

  // A lane's i-th vector of a row.
  __device__ int Vector(int i) const { return i * 32 + b_.lane.index; }
  __device__ bool IsKey(int i) const { return Vector(i) < kDim / 4; }
  __device__ int Element(int i) const { return 4 * (Vector(i) % (kDim / 4)); }
  __device__ int Size(int i) const { return IsKey(i) ? b_.KeySize() : b_.ValueSize(); }
  __device__ bool IsInside(int i) const { return kFull || Element(i) < Size(i); }
  __device__ float* SlotVector(int i, int slot) const {
    return slots_[i] + static_cast<int64_t>(slot) * Size(i);
  }
  __device__ float4 TokenVector(int i, int index) const {
    return LoadRow<kFull>(b_.RowOf(!IsKey(i), index), Element(i), Size(i));
  }

  __device__ void Begin(const SlotChange& change, Loads* loads) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      loads->tokens[i] = TokenVector(i, change.index);
      loads->means[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if ((change.slot & kSeed) == 0 && IsInside(i)) {
        loads->means[i] = *reinterpret_cast<const float4*>(SlotVector(i, change.slot));
      }
    }
  }

  __device__ void End(const SlotChange& change, const Loads& loads) const {
    const bool is_seed = (change.slot & kSeed) != 0;
    const int slot = change.slot & ~kSeed;
    float4 means[kVectors];
    float4 sums[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float4 x = loads.tokens[i];
      means[i] = is_seed ? x : loads.means[i];
      // A sum begins with 0: -0 becomes +0.
      sums[i] = is_seed ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                        : make_float4(0.0f + x.x, 0.0f + x.y, 0.0f + x.z, 0.0f + x.w);
    }
    if (change.num_joiners > (is_seed ? 0 : 1)) {
      Joiners joiners = JoinersAt(change.index);
      if (!is_seed) static_cast<void>(joiners.TakeLowest());  // it is the change's index
      AddRows(joiners, &sums);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float4& mean = means[i];
      if (change.num_joiners > 0) {
        const float4 sum = sums[i];
        const float weight = change.weight;
        mean = Divide(make_float4(fmaf(weight, mean.x, sum.x), fmaf(weight, mean.y, sum.y),
                                  fmaf(weight, mean.z, sum.z), fmaf(weight, mean.w, sum.w)),
                      change.total, change.inverse);
      }
      if (IsInside(i)) *reinterpret_cast<float4*>(SlotVector(i, slot)) = mean;
      StoreHalves(i, slot, change.index, mean);
    }
  }

  // Adds the rows of tokens in rank order, four in flight.
  __device__ void AddRows(Joiners joiners, float4 (*sums)[kVectors]) const {
#pragma unroll 1
    while (!joiners.IsEmpty()) {
      float4 rows[4][kVectors];
      bool is_set[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        is_set[j] = !joiners.IsEmpty();
        if (!is_set[j]) continue;
        const int index = joiners.TakeLowest();
#pragma unroll
        for (int i = 0; i < kVectors; ++i) rows[j][i] = TokenVector(i, index);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!is_set[j]) break;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          float4& sum = (*sums)[i];
          sum = make_float4(sum.x + rows[j][i].x, sum.y + rows[j][i].y, sum.z + rows[j][i].z,
                            sum.w + rows[j][i].w);
        }
      }
    }
  }

  // For the merges to come and for the reads.
  __device__ void StoreHalves(int i, int slot, int index, float4 mean) const {
    const uint2 halves = make_uint2(PackHalves(mean.x, mean.y), PackHalves(mean.z, mean.w));
    const int element = Element(i);
    if (IsKey(i)) {
      const int place = PermutedHalf(element);
      *reinterpret_cast<uint2*>(b_.arrays.keys + SharedKey<kDim>(b_.LocalRow(slot), place >> 3) +
                                (place & 7)) = halves;
    }
    if (rows_ == nullptr) return;
    // Two halves, and two more 8 places behind in a key, 2 in a value.
    uint16_t* to = rows_ + index * (2 * kDim) + (IsKey(i) ? KeyPosition(element) : kDim + element);
    *reinterpret_cast<uint32_t*>(to) = halves.x;
    *reinterpret_cast<uint32_t*>(to + (IsKey(i) ? 8 : 2)) = halves.y;
  }

  const Block& b_;
  float* slots_[kVectors];
  uint16_t* rows_;  // where the chunk's changes go
};

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_CHANGE_CUDA_CUH_
