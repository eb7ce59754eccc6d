#include "kernels/causal_conv/causal_conv.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace lethe {

CausalConvWeights::CausalConvWeights(absl::Span<const float> w, absl::Span<const float> bias,
                                     int64_t width)
    : width_(width), bias_(bias.begin(), bias.end()) {
  LETHE_CHECK(width >= 1 && !w.empty() && w.size() % static_cast<size_t>(width) == 0);
  num_channels_ = static_cast<int64_t>(w.size()) / width;
  LETHE_CHECK(bias.empty() || bias.size() == static_cast<size_t>(num_channels_));
  taps_.resize(w.size());
  for (int64_t c = 0; c < num_channels_; ++c) {
    for (int64_t j = 0; j < width; ++j) {
      taps_[static_cast<size_t>(j * num_channels_ + c)] = w[static_cast<size_t>(c * width + j)];
    }
  }
}

CausalConvState::CausalConvState(int64_t num_channels, int64_t width)
    : num_channels_(num_channels), width_(width) {
  LETHE_CHECK(num_channels >= 1 && width >= 1);
  rows_.resize(static_cast<size_t>((width - 1) * num_channels), 0.0f);
}

const float* CausalConvState::row(int64_t distance) const {
  LETHE_DCHECK(distance >= 1 && distance <= num_rows_);
  return rows_.data() + (width_ - 1 - distance) * num_channels_;
}

void CausalConvState::Append(absl::Span<const float> z) {
  const auto row_size = static_cast<size_t>(num_channels_);
  LETHE_CHECK(row_size > 0 && z.size() % row_size == 0);
  const size_t kept = std::min(z.size(), rows_.size());
  std::copy(rows_.begin() + static_cast<ptrdiff_t>(kept), rows_.end(), rows_.begin());
  std::copy(z.end() - static_cast<ptrdiff_t>(kept), z.end(),
            rows_.end() - static_cast<ptrdiff_t>(kept));
  num_rows_ = std::min(width_ - 1, num_rows_ + static_cast<int64_t>(z.size() / row_size));
}

void CausalConvState::Clear() {
  std::fill(rows_.begin(), rows_.end(), 0.0f);
  num_rows_ = 0;
}

void CausalConvState::AppendTo(ByteWriter* out) const {
  const auto num_present = static_cast<size_t>(num_rows_ * num_channels_);
  out->Array(absl::MakeConstSpan(rows_).subspan(rows_.size() - num_present));
}

absl::Status CausalConvState::Read(ByteReader* in) {
  std::vector<float> present;
  if (absl::Status status = in->Array(&present); !status.ok()) return status;
  const bool whole_rows =
      num_channels_ > 0 && present.size() % static_cast<size_t>(num_channels_) == 0;
  if (!whole_rows || present.size() > rows_.size()) {
    return absl::DataLossError(
        "convolution state: number of values is not that of 0 … width-1 rows");
  }
  Clear();
  Append(present);
  return absl::OkStatus();
}

}  // namespace lethe
