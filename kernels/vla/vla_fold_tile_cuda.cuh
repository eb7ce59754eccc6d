// Tiles of A and S in a warp's registers, and VlaFold's products with them. Shared by both kernels, so
// that their bits are equal.
//
// A warp holds kTileRows rows of a matrix; lane = 8 group + column holds rows 4 group + r, r < 4, and
// of every 32 columns the four from 4 column on. A matrix of fewer columns than kKey, or of a number
// of rows that is no multiple of kTileRows, is filled up with zeros, which change no sum.
#ifndef LETHE_KERNELS_VLA_VLA_FOLD_TILE_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_FOLD_TILE_CUDA_CUH_

#include <cstdint>

#include "kernels/vla/vla_fold_token_cuda.cuh"

namespace lethe::vla_fold {

template <int kKey>
struct Tile {
  static constexpr int kVectors = kKey / kWarp;  // of four columns, in a row of one lane
  float x[kLaneRows][4 * kVectors];
};

struct Place {
  int row;     // the lane's first, in the matrix
  int column;  // 0 .. 7
};

__device__ inline Place PlaceOf(int tile, int lane) {
  return {kTileRows * tile + kLaneRows * (lane / 8), lane % 8};
}

// A [rows][columns] matrix in memory. kExact: it has kKey columns and all rows of its tiles.
template <int kKey, bool kExact>
struct MatrixShape {
  __device__ int Columns() const { return kExact ? kKey : columns; }
  __device__ bool Holds(int row, int column) const {
    return kExact || (row < rows && column < columns);
  }
  int rows;
  int columns;
};

template <int kKey, bool kExact>
__device__ inline void LoadTile(const float* matrix, MatrixShape<kKey, kExact> shape, Place place,
                                Tile<kKey>& tile) {
  const float* const first = matrix + place.row * shape.Columns() + 4 * place.column;
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
    for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
      float4 x = {};
      if (shape.Holds(place.row + r, kWarp * m + 4 * place.column)) {
        x = *Vectors(first + r * shape.Columns() + kWarp * m);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) tile.x[r][4 * m + e] = Element(x, e);
    }
  }
}

template <int kKey, bool kExact>
__device__ inline void StoreTile(const Tile<kKey>& tile, MatrixShape<kKey, kExact> shape,
                                 Place place, float* matrix) {
  float* const first = matrix + place.row * shape.Columns() + 4 * place.column;
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
    for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
      if (shape.Holds(place.row + r, kWarp * m + 4 * place.column)) {
        const float* x = tile.x[r] + 4 * m;
        *reinterpret_cast<float4*>(first + r * shape.Columns() + kWarp * m) = {x[0], x[1], x[2],
                                                                               x[3]};
      }
    }
  }
}

// The same by way of shared memory, where loads hold no registers while they are under way: every
// lane copies what it reads itself, to stage [kKey / 8][32] of vectors.
template <int kKey, bool kExact>
__device__ inline void CopyTile(const float* matrix, MatrixShape<kKey, kExact> shape, Place place,
                                int lane, float* stage) {
  const float* const first = matrix + place.row * shape.Columns() + 4 * place.column;
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
    for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
      const bool is_there = shape.Holds(place.row + r, kWarp * m + 4 * place.column);
      Copy16(is_there ? first + r * shape.Columns() + kWarp * m : matrix, is_there,
             stage + 4 * ((r * Tile<kKey>::kVectors + m) * kWarp + lane));
    }
  }
}

template <int kKey>
__device__ inline void LoadStaged(const float* stage, int lane, Tile<kKey>& tile) {
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
    for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
      const float4 x = Vectors(stage)[(r * Tile<kKey>::kVectors + m) * kWarp + lane];
#pragma unroll
      for (int e = 0; e < 4; ++e) tile.x[r][4 * m + e] = Element(x, e);
    }
  }
}

// sums[r] += row r of the tile times x, this lane's columns of it.
template <int kKey>
__device__ inline void Multiply(const Tile<kKey>& tile, const float* x, Place place,
                                float (&sums)[kLaneRows]) {
#pragma unroll
  for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
    const float4 xj = Vectors(x)[8 * m + place.column];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        sums[r] = __fmaf_rn(tile.x[r][4 * m + e], Element(xj, e), sums[r]);
      }
    }
  }
}

// Of the rows' sums over all columns, the one of row place.row + lane / 2 % 4; kCount products at
// once, so that their shuffles overlap.
template <int kCount>
__device__ inline void JoinColumns(const float (&sums)[kCount][kLaneRows], int lane,
                                   float (&joined)[kCount]) {
  const bool upper = (lane & 4) != 0;
  const bool odd = (lane & 2) != 0;
  float half[kCount][2];
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      half[n][i] = (upper ? sums[n][2 + i] : sums[n][i]) +
                   __shfl_xor_sync(kAllLanes, upper ? sums[n][i] : sums[n][2 + i], 4);
    }
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    joined[n] = (odd ? half[n][1] : half[n][0]) +
                __shfl_xor_sync(kAllLanes, odd ? half[n][0] : half[n][1], 2);
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) joined[n] += __shfl_xor_sync(kAllLanes, joined[n], 1);
}

// JoinColumns' inverse: from a value of row lane / 2 % 4 to those of all four rows.
__device__ inline void SpreadRows(float value, int lane, float (&values)[kLaneRows]) {
  const bool upper = (lane & 4) != 0;
  const bool odd = (lane & 2) != 0;
  const float other = __shfl_xor_sync(kAllLanes, value, 2);
  const float half[2] = {odd ? other : value, odd ? value : other};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float opposite = __shfl_xor_sync(kAllLanes, half[i], 4);
    values[i] = upper ? opposite : half[i];
    values[2 + i] = upper ? half[i] : opposite;
  }
}

// A ---------------------------------------------------------------------------------------------

// The lane's shares of z = A u and y = A k^ in its four rows.
struct Products {
  float z[kLaneRows] = {};
  float y[kLaneRows] = {};
};

// Joins the products into token.z, token.y and the parts of u.z and u.y.
template <int kKey>
__device__ inline void PublishProducts(const Products& products, const Token<kKey>& token, int tile,
                                       int lane) {
  const Place place = PlaceOf(tile, lane);
  const float4 u = *Vectors(token.u() + place.row);
  float dot[2] = {};
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
    dot[0] = __fmaf_rn(products.z[r], Element(u, r), dot[0]);
    dot[1] = __fmaf_rn(products.y[r], Element(u, r), dot[1]);
  }
  const bool is_y = (lane & 4) != 0;
  const bool lower = (lane & 2) != 0;
  const bool odd = (lane & 1) != 0;
  float part = (is_y ? dot[1] : dot[0]) + __shfl_xor_sync(kAllLanes, is_y ? dot[0] : dot[1], 4);
  float kept[kLaneRows];
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
    kept[r] = (is_y ? products.y[r] : products.z[r]) +
              __shfl_xor_sync(kAllLanes, is_y ? products.z[r] : products.y[r], 4);
  }
  part += __shfl_xor_sync(kAllLanes, part, 2);
  float half[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    half[i] = (lower ? kept[2 + i] : kept[i]) +
              __shfl_xor_sync(kAllLanes, lower ? kept[i] : kept[2 + i], 2);
  }
  part += __shfl_xor_sync(kAllLanes, part, 1);
  const float value =
      (odd ? half[1] : half[0]) + __shfl_xor_sync(kAllLanes, odd ? half[0] : half[1], 1);
  // Four groups a warp give a part each; with twice the warps, two groups give one.
  constexpr int kGroupsPerPart = kKey / 64;
  if (kGroupsPerPart == 2) part += __shfl_xor_sync(kAllLanes, part, 8);
  (is_y ? token.y() : token.z())[place.row + lane % 4] = value;
  const int group = lane / 8;
  if (lane % 4 == 0 && group % kGroupsPerPart == 0) {
    token.parts()[(is_y ? kParts : 0) + (4 * tile + group) / kGroupsPerPart] = part;
  }
}

// A lane's four columns of every 32 of a vector in shared memory. kHeld: read into registers once,
// else where they are used.
template <int kKey, bool kHeld>
struct Columns {
  __device__ Columns(const float* vector, Place place) : from(Vectors(vector) + place.column) {
    if (kHeld) {
#pragma unroll
      for (int m = 0; m < Tile<kKey>::kVectors; ++m) held[m] = from[8 * m];
    }
  }
  __device__ float4 At(int m) const { return kHeld ? held[m] : from[8 * m]; }

  const float4* from;
  float4 held[kHeld ? Tile<kKey>::kVectors : 1];
};

// w = z / sqrt(denominator) in the lane's rows and columns: A <- A - w w^T stays symmetric, since the
// product of both factors is exact inside the fma.
template <int kKey, bool kHeld>
struct Direction {
  // All loads before the first use: they are what the chain of tokens waits for.
  __device__ Direction(const Token<kKey>& token, Place place)
      : z_rows(*Vectors(token.z() + place.row)), z_columns(token.z(), place) {
    bool is_clamped;
    scale = Scale(token, &is_clamped);
    rows[0] = -(z_rows.x * scale);
    rows[1] = -(z_rows.y * scale);
    rows[2] = -(z_rows.z * scale);
    rows[3] = -(z_rows.w * scale);
  }

  float4 z_rows;
  Columns<kKey, kHeld> z_columns;
  float scale;
  float rows[kLaneRows];  // negative
};

template <int kKey, bool kHeld>
__device__ inline void Subtract(const Direction<kKey, kHeld>& direction, Tile<kKey>& tile) {
#pragma unroll
  for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
    const float4 z = direction.z_columns.At(m);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float w = Element(z, e) * direction.scale;
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        tile.x[r][4 * m + e] = __fmaf_rn(direction.rows[r], w, tile.x[r][4 * m + e]);
      }
    }
  }
}

// Element (i, i) is element r of a lane's row r where its columns are its rows.
template <int kKey>
__device__ inline void Nudge(Place place, Tile<kKey>& tile) {
#pragma unroll
  for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
    if (place.row == kWarp * m + 4 * place.column) {
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        tile.x[r][4 * m + r] += static_cast<float>(kVlaNudge);
      }
    }
  }
}

// S ---------------------------------------------------------------------------------------------

// The row that JoinColumns leaves in a lane.
__device__ inline int JoinedRow(Place place, int lane) { return place.row + lane / 2 % 4; }

// v - S k^ of the lane's joined row.
template <int kKey>
__device__ inline float WriteError(const Tile<kKey>& tile, const Token<kKey>& token, Place place,
                                   int lane) {
  float sums[1][kLaneRows] = {};
  Multiply(tile, token.k(), place, sums[0]);
  float joined[1];
  JoinColumns(sums, lane, joined);
  return token.v()[JoinedRow(place, lane)] - joined[0];
}

// S <- S + error alpha^T; in the same pass the lane's shares of the read S q (kHasRead) and of S k^
// for the next token (kHasNext).
template <bool kHasRead, bool kHasNext, int kKey>
__device__ inline void WriteAndMultiply(float error, const Token<kKey>& token, const float* next_k,
                                        Place place, int lane, Tile<kKey>& tile,
                                        float (&sums)[2][kLaneRows]) {
  float errors[kLaneRows];
  SpreadRows(error, lane, errors);
#pragma unroll
  for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
    const float4 alpha = Vectors(token.alpha())[8 * m + place.column];
    float4 q, k;
    if (kHasRead) q = Vectors(token.q())[8 * m + place.column];
    if (kHasNext) k = Vectors(next_k)[8 * m + place.column];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        float& x = tile.x[r][4 * m + e];
        x = __fmaf_rn(errors[r], Element(alpha, e), x);
        if (kHasRead) sums[0][r] = __fmaf_rn(x, Element(q, e), sums[0][r]);
        if (kHasNext) sums[1][r] = __fmaf_rn(x, Element(k, e), sums[1][r]);
      }
    }
  }
}

template <int kKey>
__device__ inline void PublishRead(float read, const Token<kKey>& token, Place place, int lane) {
  if (lane % 2 == 0) token.read()[JoinedRow(place, lane)] = read;
}

}  // namespace lethe::vla_fold

#endif  // LETHE_KERNELS_VLA_VLA_FOLD_TILE_CUDA_CUH_
