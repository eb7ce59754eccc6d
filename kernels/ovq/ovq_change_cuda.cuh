// The changing half of OVQ's merge: slots become the means of themselves and
// the tokens that join them, and the reads get their rows.
#ifndef LETHE_KERNELS_OVQ_OVQ_CHANGE_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_CHANGE_CUDA_CUH_

#include <cstdint>

#include "kernels/ovq/ovq_merge_cuda.cuh"

namespace lethe::ovq {

template <int kDim, bool kFull, int kTokens>
class Changer {
  using Block = MergeBlock<kDim, kFull, kTokens>;
  static constexpr int kGroups = Block::kGroups;
  static constexpr int kAtOnce = 256 / kDim;  // changes by a warp

 public:
  __device__ explicit Changer(const Block& block) : b_(block) {}

  __device__ void ChangeAll() const {
#pragma unroll 1
    for (int i = b_.warp; i < b_.shared.num_changes; i += kAtOnce * kMergeWarps) Change(i);
  }

 private:
  // What a warp loads of a slot that changes: itself and the first token that
  // joins it.
  struct Loads {
    int index;  // negative: there is no change
    int count;
    float4 means[kDim / 64];
    float4 sums[kDim / 64];
  };
  // The tokens that join a slot.
  struct Joiners {
    uint64_t low, high;

    __device__ bool IsEmpty() const { return (low | high) == 0; }
    __device__ int Size() const { return __popcll(low) + __popcll(high); }
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
    Joiners joiners = {};
    joiners.low = b_.shared.joiners[0][index] | static_cast<uint64_t>(b_.shared.joiners[1][index])
                                                    << 32;
    if constexpr (kGroups > 2) {
      joiners.high =
          b_.shared.joiners[2][index] | static_cast<uint64_t>(b_.shared.joiners[3][index]) << 32;
    }
    return joiners;
  }

  // By one warp: some slots become the mean with those that join them, with
  // their loads in flight together.
  __device__ void Change(int first) const {
    Loads loads[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int place = first + i * kMergeWarps;
      loads[i].index = place < b_.shared.num_changes ? b_.shared.changes[place] : -1;
      if (loads[i].index >= 0) Begin(&loads[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (loads[i].index >= 0) End(&loads[i]);
    }
  }

  __device__ void Begin(Loads* loads) const {
    const int index = loads->index;
    const int entry = b_.shared.slots_of[index];
    const int slot = entry & ~kSeed;
    const bool is_seed = (entry & kSeed) != 0;
    Joiners joiners = JoinersAt(index);
    const int joiner = joiners.IsEmpty() ? index : joiners.TakeLowest();
    loads->count = is_seed ? 1 : b_.shared.counts[slot];
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      loads->means[i] = LoadVector(is_seed ? b_.RowOf(!IsKey(i), index) : SlotRow(i, slot), i);
      loads->sums[i] = LoadVector(b_.RowOf(!IsKey(i), joiner), i);
    }
  }

  __device__ void End(Loads* loads) const {
    const int index = loads->index;
    const int slot = b_.shared.slots_of[index] & ~kSeed;
    Joiners joiners = JoinersAt(index);
    const int num_joiners = joiners.Size();
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      const float4 x = loads->sums[i];  // a sum begins with 0: -0 becomes +0
      loads->sums[i] = make_float4(0.0f + x.x, 0.0f + x.y, 0.0f + x.z, 0.0f + x.w);
    }
    if (num_joiners > 1) {
      static_cast<void>(joiners.TakeLowest());
      AddRows(joiners, &loads->sums);
    }
    const auto weight = static_cast<float>(loads->count);
    const auto total = static_cast<float>(loads->count + num_joiners);
    const int64_t row = b_.LogRow(index);
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      float4& mean = loads->means[i];
      if (num_joiners > 0) {
        const float4 sum = loads->sums[i];
        mean.x = __fdiv_rn(fmaf(weight, mean.x, sum.x), total);
        mean.y = __fdiv_rn(fmaf(weight, mean.y, sum.y), total);
        mean.z = __fdiv_rn(fmaf(weight, mean.z, sum.z), total);
        mean.w = __fdiv_rn(fmaf(weight, mean.w, sum.w), total);
      }
      if (kFull || Element(i) < Size(i)) {
        *reinterpret_cast<float4*>(SlotRow(i, slot) + Element(i)) = mean;
      }
      IsKey(i) ? StoreKey(slot, row, Element(i), mean) : StoreValue(row, Element(i), mean);
    }
    if (b_.lane.index != 0) return;
    b_.shared.counts[slot] = loads->count + num_joiners;
    b_.arrays.slot_rows[b_.LocalRow(slot)] =
        static_cast<int32_t>(row - RowsOfChain(b_.args, b_.Chain()));
    if (b_.args.row_biases != nullptr) b_.args.row_biases[row] = Log2(total);
  }

  // A lane's i-th vector of the D keys and D values of a row.
  __device__ int Vector(int i) const { return i * 32 + b_.lane.index; }
  __device__ bool IsKey(int i) const { return Vector(i) < kDim / 4; }
  __device__ int Element(int i) const { return 4 * (Vector(i) % (kDim / 4)); }
  __device__ int Size(int i) const { return IsKey(i) ? b_.KeySize() : b_.ValueSize(); }
  __device__ float* SlotRow(int i, int slot) const {
    return (IsKey(i) ? b_.shared.slot_keys : b_.shared.slot_values) +
           static_cast<int64_t>(slot) * Size(i);
  }
  __device__ float4 LoadVector(const float* row, int i) const {
    return LoadRow<kFull>(row, Element(i), Size(i));
  }

  // Adds the rows of tokens in rank order, four in flight.
  __device__ void AddRows(Joiners joiners, float4 (*sums)[kDim / 64]) const {
#pragma unroll 1
    while (!joiners.IsEmpty()) {
      float4 rows[4][kDim / 64];
      bool is_set[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        is_set[j] = !joiners.IsEmpty();
        if (!is_set[j]) continue;
        const int index = joiners.TakeLowest();
#pragma unroll
        for (int i = 0; i < kDim / 64; ++i) rows[j][i] = LoadVector(b_.RowOf(!IsKey(i), index), i);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!is_set[j]) break;
#pragma unroll
        for (int i = 0; i < kDim / 64; ++i) {
          float4& sum = (*sums)[i];
          sum = make_float4(sum.x + rows[j][i].x, sum.y + rows[j][i].y, sum.z + rows[j][i].z,
                            sum.w + rows[j][i].w);
        }
      }
    }
  }

  __device__ void StoreKey(int slot, int64_t row, int element, float4 mean) const {
    const uint2 halves = make_uint2(PackHalves(mean.x, mean.y), PackHalves(mean.z, mean.w));
    const int place = PermutedHalf(element);
    *reinterpret_cast<uint2*>(b_.arrays.keys + SharedKey<kDim>(b_.LocalRow(slot), place >> 3) +
                              (place & 7)) = halves;
    if (b_.args.rows == nullptr) return;
    uint16_t* to = b_.args.rows + row * (2 * kDim) + KeyPosition(element);
    *reinterpret_cast<uint32_t*>(to) = halves.x;
    *reinterpret_cast<uint32_t*>(to + 8) = halves.y;
  }
  __device__ void StoreValue(int64_t row, int element, float4 mean) const {
    if (b_.args.rows == nullptr) return;
    *reinterpret_cast<uint2*>(b_.args.rows + row * (2 * kDim) + kDim + element) =
        make_uint2(PackHalves(mean.x, mean.y), PackHalves(mean.z, mean.w));
  }

  const Block& b_;
};

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_CHANGE_CUDA_CUH_
