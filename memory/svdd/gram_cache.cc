#include "memory/svdd/gram_cache.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"
#include "kernels/gram/gram.h"

namespace lethe::svdd {
namespace {

constexpr size_t kSpareRows = 64;  // about what a boundary changes

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
  if (buffer.size() * sizeof(double) > kBufferBytes) {
    WipeAll(&buffer);
  } else if (buffer.size() > buffer_.size()) {
    WipeAll(&buffer_);
    buffer_ = std::move(buffer);
  }
}

void GramCache::Append(absl::Span<const double> keys) {
  groups_.Append(keys);
  rows_.resize(static_cast<size_t>(num_groups()));
}

void GramCache::CopyKeys(const GramCache& other) {
  LETHE_CHECK(num_keys() == 0);
  groups_ = other.groups_;
  rows_.resize(static_cast<size_t>(num_groups()));
}

void GramCache::Truncate(int64_t num_keys_kept) {
  groups_.Truncate(num_keys_kept);
  const auto kept = static_cast<size_t>(num_groups());
  for (size_t i = kept; i < rows_.size(); ++i) WipeAll(&rows_[i]);
  rows_.resize(kept);
  for (std::vector<double>& row : rows_) WipeFrom(&row, kept);
  WipeBuffers();
}

void GramCache::Erase(int64_t rank) {
  const KeyGroups::Erased erased = groups_.Erase(rank);
  const auto from = static_cast<std::ptrdiff_t>(erased.group);
  WipeBuffers();
  if (erased.removed) {
    WipeAll(&rows_[static_cast<size_t>(from)]);
    rows_.erase(rows_.begin() + from);
    for (std::vector<double>& row : rows_) {
      if (static_cast<std::ptrdiff_t>(row.size()) <= from) continue;
      std::copy(row.begin() + from + 1, row.end(), row.begin() + from);
      WipeFrom(&row, row.size() - 1);
    }
    return;
  }
  const auto end = static_cast<std::ptrdiff_t>(erased.moved_to) + 1;
  const auto rotate = [&](auto* values) {
    std::rotate(values->begin() + from, values->begin() + from + 1, values->begin() + end);
  };
  rotate(&rows_);
  for (std::vector<double>& row : rows_) {
    if (static_cast<std::ptrdiff_t>(row.size()) >= end) {
      rotate(&row);
    } else {
      WipeFrom(&row, static_cast<size_t>(from));
    }
  }
}

void GramCache::KeepOnly(absl::Span<const int64_t> indices, size_t max_bytes) {
  size_t next = 0;
  size_t bytes = 0;
  const size_t row_bytes = static_cast<size_t>(num_groups()) * sizeof(double);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool wanted = next < indices.size() && static_cast<size_t>(indices[next]) == i;
    next += wanted ? 1 : 0;
    if (rows_[i].empty()) continue;
    bytes += row_bytes;
    if (wanted && bytes <= max_bytes) continue;
    bytes -= row_bytes;
    spare_rows_.push_back(std::move(rows_[i]));
    rows_[i].clear();
  }
  while (spare_rows_.size() > kSpareRows) {
    WipeAll(&spare_rows_.back());
    spare_rows_.pop_back();
  }
}

absl::Span<const double> GramCache::Row(int64_t index) {
  LETHE_DCHECK(index >= 0 && index < num_groups());
  std::vector<double>& row = rows_[static_cast<size_t>(index)];
  const size_t old_length = row.size();
  const size_t length = static_cast<size_t>(num_groups());
  if (old_length == 0 && !spare_rows_.empty()) {
    row = std::move(spare_rows_.back());
    spare_rows_.pop_back();
  }
  if (old_length < length) {
    row.resize(length);
    const absl::Span<const double> key = groups_.Key(index);
    GramRow(key, groups_.distinct_keys().subspan(old_length * key.size()), sigma_,
            absl::MakeSpan(row).subspan(old_length));
    num_evaluations_ += static_cast<int64_t>(length - old_length);
  }
  return row;
}

void GramCache::Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns,
                      size_t stride, double* out) {
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
        GramRow(groups_.Key(column), groups_.Key(row), sigma_, absl::MakeSpan(to + r, 1));
        ++num_evaluations_;
      }
    }
  }
}

size_t GramCache::state_bytes() const {
  size_t bytes = groups_.state_bytes() + buffer_.capacity() * sizeof(double) +
                 (rows_.capacity() + spare_rows_.capacity()) * sizeof(std::vector<double>);
  for (const std::vector<double>& row : rows_) bytes += row.capacity() * sizeof(double);
  for (const std::vector<double>& row : spare_rows_) bytes += row.capacity() * sizeof(double);
  return bytes;
}

}  // namespace lethe::svdd
