#include "server/session/inputs.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace lethe {
namespace {

void Wipe(std::string* text) { explicit_bzero(text->data(), text->size()); }

}  // namespace

Inputs::~Inputs() {
  for (std::string& label : labels_) Wipe(&label);
}

uint32_t Inputs::InternLabel(absl::string_view subject) {
  const auto found = std::find(labels_.begin(), labels_.end(), subject);
  if (found != labels_.end()) return static_cast<uint32_t>(found - labels_.begin());
  labels_.emplace_back(subject);
  return static_cast<uint32_t>(labels_.size() - 1);
}

void Inputs::Append(uint64_t token_id, int32_t vocab_id, InputKind kind,
                    absl::string_view subject) {
  Input input;
  input.token_id = token_id;
  input.vocab_id = vocab_id;
  input.kind = kind;
  input.derived_from_forgotten = kind == InputKind::kGenerated && num_derived_ > 0;
  AppendStored(input, subject);
}

void Inputs::AppendStored(const Input& stored, absl::string_view subject) {
  LETHE_CHECK(inputs_.empty() || inputs_.back().token_id < stored.token_id);
  inputs_.push_back(stored);
  inputs_.back().subject_index = InternLabel(subject);
  if (stored.derived_from_forgotten) ++num_derived_;
}

void Inputs::Truncate(int64_t num_inputs) {
  LETHE_CHECK(num_inputs >= 0 && num_inputs <= size());
  const auto keep = static_cast<size_t>(num_inputs);
  for (size_t i = keep; i < inputs_.size(); ++i) {
    if (inputs_[i].derived_from_forgotten) --num_derived_;
  }
  // Shrinking leaves the storage as it is: overwrite what is dropped.
  if (keep < inputs_.size()) {
    explicit_bzero(static_cast<void*>(inputs_.data() + keep),
                   (inputs_.size() - keep) * sizeof(Input));
  }
  inputs_.resize(keep);
  DropUnusedLabels();
}

void Inputs::Remove(absl::Span<const int64_t> ranks) {
  if (ranks.empty()) return;
  const auto first = static_cast<size_t>(ranks[0]);
  size_t next_removed = 0;
  size_t end = first;
  num_derived_ = std::count_if(inputs_.begin(), inputs_.begin() + ranks[0],
                               [](const Input& input) { return input.derived_from_forgotten; });
  for (size_t i = first; i < inputs_.size(); ++i) {
    if (next_removed < ranks.size() && static_cast<size_t>(ranks[next_removed]) == i) {
      ++next_removed;
      continue;
    }
    Input input = inputs_[i];
    if (input.kind == InputKind::kGenerated) input.derived_from_forgotten = true;
    if (input.derived_from_forgotten) ++num_derived_;
    inputs_[end++] = input;
  }
  LETHE_CHECK(next_removed == ranks.size());
  explicit_bzero(static_cast<void*>(inputs_.data() + end), (inputs_.size() - end) * sizeof(Input));
  inputs_.resize(end);
  DropUnusedLabels();
}

void Inputs::DropUnusedLabels() {
  std::vector<bool> is_used(labels_.size(), false);
  is_used[0] = true;
  for (const Input& input : inputs_) is_used[input.subject_index] = true;
  std::vector<uint32_t> new_index(labels_.size(), 0);
  std::vector<std::string> kept;
  for (size_t i = 0; i < labels_.size(); ++i) {
    if (is_used[i]) {
      new_index[i] = static_cast<uint32_t>(kept.size());
      kept.push_back(labels_[i]);
    }
    Wipe(&labels_[i]);
  }
  labels_ = std::move(kept);
  for (Input& input : inputs_) input.subject_index = new_index[input.subject_index];
}

std::vector<uint64_t> Inputs::IdsAt(absl::Span<const int64_t> ranks) const {
  std::vector<uint64_t> token_ids;
  token_ids.reserve(ranks.size());
  for (const int64_t rank : ranks) token_ids.push_back(at(rank).token_id);
  return token_ids;
}

int64_t Inputs::FindRank(uint64_t token_id) const {
  const auto [first, end] = RanksOf({token_id, token_id + 1});
  return first < end ? first : -1;
}

std::pair<int64_t, int64_t> Inputs::RanksOf(const TokenIdRange& range) const {
  const auto before = [](const Input& input, uint64_t id) { return input.token_id < id; };
  const auto first = std::lower_bound(inputs_.begin(), inputs_.end(), range.first, before);
  const auto end = std::lower_bound(first, inputs_.end(), range.end, before);
  return {first - inputs_.begin(), end - inputs_.begin()};
}

std::vector<int64_t> Inputs::RanksOfSubject(absl::string_view subject) const {
  std::vector<int64_t> ranks;
  const auto found = std::find(labels_.begin(), labels_.end(), subject);
  if (found == labels_.end()) return ranks;
  const auto index = static_cast<uint32_t>(found - labels_.begin());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].subject_index == index) ranks.push_back(static_cast<int64_t>(i));
  }
  return ranks;
}

std::vector<TokenIdRange> Inputs::Gaps(uint64_t next_token_id) const {
  std::vector<TokenIdRange> gaps;
  uint64_t expected = 1;
  for (const Input& input : inputs_) {
    if (input.token_id >= next_token_id) break;
    if (input.token_id > expected) gaps.push_back({expected, input.token_id});
    expected = input.token_id + 1;
  }
  if (expected < next_token_id) gaps.push_back({expected, next_token_id});
  return gaps;
}

size_t Inputs::state_bytes() const {
  size_t bytes = inputs_.size() * sizeof(Input);
  for (const std::string& label : labels_) bytes += label.size();
  return bytes;
}

}  // namespace lethe
