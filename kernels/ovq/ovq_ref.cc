#include "kernels/ovq/ovq_ref.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/base/check.h"

namespace lethe {
namespace {

constexpr double kL2EpsilonRef = 1e-12;

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> L2(const std::vector<double>& x) {
  const double norm = std::sqrt(Dot(x, x) + kL2EpsilonRef);
  std::vector<double> unit(x);
  for (double& element : unit) element /= norm;
  return unit;
}

// The most similar of the candidates, the first on ties.
size_t ArgMax(const std::vector<double>& x, const std::vector<std::vector<double>>& candidates) {
  size_t best = 0;
  for (size_t n = 1; n < candidates.size(); ++n) {
    if (Dot(x, candidates[n]) > Dot(x, candidates[best])) best = n;
  }
  return best;
}

}  // namespace

OvqRef::OvqRef(const OvqShape& shape, double beta)
    : shape_(shape), logit_scale_(beta * std::sqrt(static_cast<double>(shape.key_dim))) {}

std::vector<double> OvqRef::Step(const std::vector<double>& q, const std::vector<double>& k,
                                 const std::vector<double>& v) {
  LETHE_CHECK(static_cast<int64_t>(k.size()) == shape_.key_dim && q.size() == k.size());
  LETHE_CHECK(static_cast<int64_t>(v.size()) == shape_.value_dim);
  chunk_keys_.push_back(L2(k));
  chunk_values_.push_back(v);
  const std::vector<double> query = L2(q);
  std::vector<double> logits;
  for (size_t n = 0; n < counts_.size(); ++n) {
    logits.push_back(logit_scale_ * Dot(query, slot_keys_[n]) +
                     std::log(static_cast<double>(counts_[n])));
  }
  for (const std::vector<double>& key : chunk_keys_) {
    logits.push_back(logit_scale_ * Dot(query, key));
  }
  const double largest = *std::max_element(logits.begin(), logits.end());
  double denominator = 0.0;
  std::vector<double> read(v.size());
  for (size_t n = 0; n < logits.size(); ++n) {
    const double weight = std::exp(logits[n] - largest);
    const std::vector<double>& value =
        n < counts_.size() ? slot_values_[n] : chunk_values_[n - counts_.size()];
    denominator += weight;
    for (size_t i = 0; i < read.size(); ++i) read[i] += weight * value[i];
  }
  for (double& element : read) element /= denominator;
  return read;
}

int64_t OvqRef::num_new_slots() const {
  return OvqNumSlots(shape_.max_slots, merged_tokens_ + shape_.chunk_tokens) -
         OvqNumSlots(shape_.max_slots, merged_tokens_);
}

double OvqRef::Novelty(size_t i) const {
  if (counts_.empty()) return Dot(chunk_keys_[i], chunk_keys_[0]);
  return Dot(chunk_keys_[i], slot_keys_[ArgMax(chunk_keys_[i], slot_keys_)]);
}

std::vector<int32_t> OvqRef::ChooseAssignment() const {
  LETHE_CHECK(static_cast<int64_t>(chunk_keys_.size()) == shape_.chunk_tokens);
  const bool is_first_chunk = counts_.empty();
  const auto num_new = static_cast<size_t>(num_new_slots());
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = is_first_chunk ? 1 : 0; i < chunk_keys_.size(); ++i) {
    order.emplace_back(Novelty(i), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<size_t> seeds;
  if (is_first_chunk) seeds.push_back(0);
  for (size_t n = 0; seeds.size() < num_new; ++n) seeds.push_back(order[n].second);
  std::sort(seeds.begin(), seeds.end());

  std::vector<std::vector<double>> candidates = slot_keys_;
  if (is_first_chunk) {
    for (size_t seed : seeds) candidates.push_back(chunk_keys_[seed]);
  }
  std::vector<int32_t> assignment;
  for (size_t i = 0; i < chunk_keys_.size(); ++i) {
    const auto found = std::find(seeds.begin(), seeds.end(), i);
    const auto opened = counts_.size() + static_cast<size_t>(found - seeds.begin());
    assignment.push_back(found != seeds.end()
                             ? ~static_cast<int32_t>(opened)
                             : static_cast<int32_t>(ArgMax(chunk_keys_[i], candidates)));
  }
  return assignment;
}

double OvqRef::AssignmentShortfall(const std::vector<int32_t>& assignment) const {
  std::vector<bool> is_seed(chunk_keys_.size());
  std::vector<std::vector<double>> candidates = slot_keys_;
  auto next_slot = static_cast<int32_t>(counts_.size());
  for (size_t i = 0; i < assignment.size(); ++i) {
    if (assignment[i] >= 0) continue;
    LETHE_CHECK(~assignment[i] == next_slot++);
    is_seed[i] = true;
    if (counts_.empty()) candidates.push_back(chunk_keys_[i]);
  }
  LETHE_CHECK(next_slot == static_cast<int32_t>(num_slots() + num_new_slots()));
  double shortfall = 0.0;
  double seed_max = -2.0;
  double joined_min = 2.0;
  for (size_t i = 0; i < assignment.size(); ++i) {
    const bool is_forced = counts_.empty() && i == 0;
    if (is_seed[i] && !is_forced) seed_max = std::max(seed_max, Novelty(i));
    if (is_seed[i]) continue;
    joined_min = std::min(joined_min, Novelty(i));
    const double best = Dot(chunk_keys_[i], candidates[ArgMax(chunk_keys_[i], candidates)]);
    const auto slot = static_cast<size_t>(assignment[i]);
    LETHE_CHECK(slot < candidates.size());
    shortfall = std::max(shortfall, best - Dot(chunk_keys_[i], candidates[slot]));
  }
  return std::max(shortfall, seed_max - joined_min);
}

void OvqRef::Merge(const std::vector<int32_t>& assignment) {
  LETHE_CHECK(static_cast<int64_t>(assignment.size()) == shape_.chunk_tokens);
  const auto num_slots_after = static_cast<size_t>(num_slots() + num_new_slots());
  slot_keys_.resize(num_slots_after, std::vector<double>(chunk_keys_[0].size()));
  slot_values_.resize(num_slots_after, std::vector<double>(chunk_values_[0].size()));
  counts_.resize(num_slots_after);
  const auto slot_of = [](int32_t entry) {
    return static_cast<size_t>(entry < 0 ? ~entry : entry);
  };
  for (int32_t entry : assignment) ++counts_[slot_of(entry)];
  const std::vector<std::vector<double>> old_keys = slot_keys_;
  const std::vector<std::vector<double>> old_values = slot_values_;
  for (size_t i = 0; i < assignment.size(); ++i) {
    const size_t slot = slot_of(assignment[i]);
    const auto count = static_cast<double>(counts_[slot]);
    for (size_t j = 0; j < chunk_keys_[i].size(); ++j) {
      slot_keys_[slot][j] += (chunk_keys_[i][j] - old_keys[slot][j]) / count;
    }
    for (size_t j = 0; j < chunk_values_[i].size(); ++j) {
      slot_values_[slot][j] += (chunk_values_[i][j] - old_values[slot][j]) / count;
    }
  }
  chunk_keys_.clear();
  chunk_values_.clear();
  merged_tokens_ += shape_.chunk_tokens;
}

}  // namespace lethe
