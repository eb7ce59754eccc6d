// Inputs: the bookkeeping of a session's retained history: one record per retained token, in rank
// order.
//
// Equation:  none.
// Shapes:    parallel lists by rank.
// Units:     token_id, vocab_id, rank as in session.h.
// Requires:  ranks in [0, size()); Append's token_ids ascend (checked by LETHE_CHECK).
// Rejects:   none.
// Effects:   Remove overwrites the dropped vocab_ids, and a subject label that no retained input
//            carries any more.
// Numerics:  none. Lookups by token_id O(log n).
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_INPUTS_H_
#define LETHE_SERVER_SESSION_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "server/session/forget.h"

namespace lethe {

// The longest subject label, in bytes.
inline constexpr size_t kMaxSubjectBytes = 128;

// The end of a range that no token_id is behind.
inline constexpr uint64_t kAllIds = ~uint64_t{0};

enum class InputKind : uint8_t { kPrompt, kAppended, kGenerated };

struct Input {
  uint64_t token_id = 0;
  int32_t vocab_id = 0;
  InputKind kind = InputKind::kPrompt;
  // Generated while an input that has been forgotten since, or a token so derived, was retained
  // (contract C4).
  bool derived_from_forgotten = false;
  uint32_t subject_index = 0;  // into the label table; 0 is "no label"
};

class Inputs {
 public:
  ~Inputs();
  Inputs() = default;
  Inputs(const Inputs&) = default;
  Inputs& operator=(const Inputs&) = delete;
  Inputs(Inputs&&) = default;
  Inputs& operator=(Inputs&&) = default;

  int64_t size() const { return static_cast<int64_t>(inputs_.size()); }
  const Input& at(int64_t rank) const { return inputs_[static_cast<size_t>(rank)]; }
  absl::string_view subject(int64_t rank) const { return labels_[at(rank).subject_index]; }

  // A kGenerated input is marked derived when a retained one is.
  void Append(uint64_t token_id, int32_t vocab_id, InputKind kind, absl::string_view subject);
  // An input as it was stored, its mark included; its subject_index is not looked at.
  void AppendStored(const Input& stored, absl::string_view subject);
  void Truncate(int64_t num_inputs);
  // Ascending distinct ranks; the later generated inputs that stay are marked
  // derived_from_forgotten.
  void Remove(absl::Span<const int64_t> ranks);

  std::vector<uint64_t> IdsAt(absl::Span<const int64_t> ranks) const;
  int64_t FindRank(uint64_t token_id) const;  // -1: not retained
  // Ranks with first <= token_id < end, as a half-open rank range.
  std::pair<int64_t, int64_t> RanksOf(const TokenIdRange& range) const;
  std::vector<int64_t> RanksOfSubject(absl::string_view subject) const;
  bool any_derived_from_forgotten() const { return num_derived_ > 0; }
  // token_ids in [1, next_token_id) that are not retained, ascending.
  std::vector<TokenIdRange> Gaps(uint64_t next_token_id) const;
  size_t state_bytes() const;

 private:
  uint32_t InternLabel(absl::string_view subject);
  void DropUnusedLabels();

  std::vector<Input, WipingAllocator<Input>> inputs_;
  std::vector<std::string> labels_ = {std::string()};
  int64_t num_derived_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_INPUTS_H_
