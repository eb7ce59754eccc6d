#include "memory/svdd/gram_cache.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/gram/gram.h"

namespace lethe::svdd {
namespace {

// Overwrites before shrinking, so that no dropped number stays in the spare capacity.
void WipeFrom(std::vector<double>* values, size_t begin) {
  if (begin >= values->size()) return;
  std::fill(values->begin() + static_cast<std::ptrdiff_t>(begin), values->end(), 0.0);
  values->resize(begin);
}

void WipeAll(std::vector<double>* values) {
  WipeFrom(values, 0);
  std::vector<double>().swap(*values);
}

}  // namespace

void GramCache::WipeBuffers() {
  for (std::vector<double>& row : spare_rows_) WipeAll(&row);
  spare_rows_.clear();
  WipeAll(&buffer_);
}

std::vector<double> GramCache::TakeBuffer(size_t size) {
  std::vector<double> buffer = std::move(buffer_);
  buffer_.clear();
  if (buffer.size() < size) buffer.resize(size + size / 2);
  return buffer;
}

void GramCache::GiveBuffer(std::vector<double> buffer) {
  if (buffer.size() > buffer_.size()) buffer_ = std::move(buffer);
}

void GramCache::Append(absl::Span<const double> keys) {
  LETHE_CHECK(keys.size() % static_cast<size_t>(dim_) == 0);
  keys_.insert(keys_.end(), keys.begin(), keys.end());
  num_keys_ += static_cast<int64_t>(keys.size()) / dim_;
  rows_.resize(static_cast<size_t>(num_keys_));
}

void GramCache::Truncate(int64_t num_keys) {
  LETHE_CHECK(num_keys >= 0 && num_keys <= num_keys_);
  for (size_t i = static_cast<size_t>(num_keys); i < rows_.size(); ++i) WipeAll(&rows_[i]);
  rows_.resize(static_cast<size_t>(num_keys));
  for (std::vector<double>& row : rows_) WipeFrom(&row, static_cast<size_t>(num_keys));
  WipeFrom(&keys_, static_cast<size_t>(num_keys * dim_));
  num_keys_ = num_keys;
  WipeBuffers();
}

void GramCache::Erase(int64_t index) {
  LETHE_CHECK(index >= 0 && index < num_keys_);
  const auto offset = static_cast<std::ptrdiff_t>(index);
  WipeAll(&rows_[static_cast<size_t>(index)]);
  rows_.erase(rows_.begin() + offset);
  for (std::vector<double>& row : rows_) {
    if (static_cast<int64_t>(row.size()) <= index) continue;
    std::copy(row.begin() + offset + 1, row.end(), row.begin() + offset);
    WipeFrom(&row, row.size() - 1);
  }
  std::copy(keys_.begin() + (offset + 1) * dim_, keys_.end(), keys_.begin() + offset * dim_);
  --num_keys_;
  WipeFrom(&keys_, static_cast<size_t>(num_keys_ * dim_));
  WipeBuffers();
}

void GramCache::KeepOnly(absl::Span<const int64_t> indices) {
  size_t next = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool keep = next < indices.size() && static_cast<size_t>(indices[next]) == i;
    if (keep) {
      ++next;
    } else if (!rows_[i].empty()) {
      spare_rows_.push_back(std::move(rows_[i]));
      rows_[i].clear();
    }
  }
}

absl::Span<const double> GramCache::Key(int64_t index) const {
  return absl::MakeConstSpan(keys_).subspan(static_cast<size_t>(index * dim_),
                                            static_cast<size_t>(dim_));
}

absl::Span<const double> GramCache::Row(int64_t index) {
  LETHE_DCHECK(index >= 0 && index < num_keys_);
  std::vector<double>& row = rows_[static_cast<size_t>(index)];
  const size_t old_length = row.size();
  const size_t length = static_cast<size_t>(num_keys_);
  if (old_length == 0 && !spare_rows_.empty()) {
    row = std::move(spare_rows_.back());
    spare_rows_.pop_back();
  }
  if (old_length < length) {
    row.resize(length);
    GramRow(Key(index), absl::MakeConstSpan(keys_).subspan(old_length * static_cast<size_t>(dim_)),
            sigma_, absl::MakeSpan(row).subspan(old_length));
  }
  return row;
}

void GramCache::Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns,
                      size_t stride, double* out) const {
  LETHE_CHECK(stride >= rows.size());
  const int64_t last = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
  for (size_t c = 0; c < columns.size(); ++c) {
    const int64_t column = columns[c];
    const std::vector<double>& cached = rows_[static_cast<size_t>(column)];
    const auto length = static_cast<int64_t>(cached.size());
    double* to = out + c * stride;
    if (last < length) {
      for (size_t r = 0; r < rows.size(); ++r) to[r] = cached[static_cast<size_t>(rows[r])];
      continue;
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      const int64_t row = rows[r];
      if (row < length) {
        to[r] = cached[static_cast<size_t>(row)];
      } else if (column < CachedLength(row)) {
        to[r] = rows_[static_cast<size_t>(row)][static_cast<size_t>(column)];
      } else {
        GramRow(Key(column), Key(row), sigma_, absl::MakeSpan(to + r, 1));
      }
    }
  }
}

size_t GramCache::state_bytes() const {
  size_t bytes = (keys_.capacity() + buffer_.capacity() + rows_.capacity() * 3) * sizeof(double);
  for (const std::vector<double>& row : rows_) bytes += row.capacity() * sizeof(double);
  for (const std::vector<double>& row : spare_rows_) bytes += row.capacity() * sizeof(double);
  return bytes;
}

}  // namespace lethe::svdd
