#include "server/vector_session/support_rows.h"

#include <utility>

#include "kernels/base/check.h"

namespace lethe {
namespace {

void Gather(absl::Span<const double> from, size_t width, const std::vector<size_t>& ranks,
            WipedVector<double>* to) {
  WipedVector<double> rows;
  rows.reserve(ranks.size() * width);
  for (const size_t rank : ranks) {
    const absl::Span<const double> row = from.subspan(rank * width, width);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  to->swap(rows);
}

}  // namespace

void SupportRows::Update(const svdd::Solution& solution, const Inputs& inputs,
                         const VectorRows& rows) {
  const size_t n = solution.a.size();
  LETHE_CHECK(static_cast<size_t>(inputs.size()) == n && rows.keys.size() == n * rows.key_dim &&
              rows.values.size() == n * rows.value_dim);
  std::vector<size_t> ranks;
  std::vector<uint64_t> token_ids;
  WipeFrom(&a_, 0);
  for (size_t rank = 0; rank < n; ++rank) {
    if (solution.a[rank] == 0.0) continue;
    ranks.push_back(rank);
    token_ids.push_back(inputs.at(static_cast<int64_t>(rank)).token_id);
    a_.push_back(solution.a[rank]);
  }
  if (token_ids == token_ids_) return;
  Gather(rows.keys, rows.key_dim, ranks, &keys_);
  Gather(rows.values, rows.value_dim, ranks, &values_);
  token_ids_ = std::move(token_ids);
}

void SupportRows::Clear() {
  token_ids_.clear();
  WipeAll(&keys_);
  WipeAll(&values_);
  WipeAll(&a_);
}

size_t SupportRows::state_bytes() const {
  return (keys_.capacity() + values_.capacity() + a_.capacity()) * sizeof(double) +
         token_ids_.capacity() * sizeof(uint64_t);
}

}  // namespace lethe
