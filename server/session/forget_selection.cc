#include "server/session/forget_selection.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

absl::StatusOr<std::vector<int64_t>> RanksOfIdsAndRanges(const Inputs& inputs,
                                                         const ForgetSelector& selector) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < selector.token_ids.size(); ++i) {
    const int64_t rank = inputs.FindRank(selector.token_ids[i]);
    if (rank < 0) {
      return absl::NotFoundError(absl::StrCat("token_ids[", i, "] is not retained"));
    }
    ranks.push_back(rank);
  }
  for (size_t i = 0; i < selector.ranges.size(); ++i) {
    const TokenIdRange& range = selector.ranges[i];
    if (range.first >= range.end) {
      return absl::InvalidArgumentError(
          absl::StrCat("ranges[", i, "]: end must be greater than first"));
    }
    const auto [first, end] = inputs.RanksOf(range);
    if (first == end) {
      return absl::NotFoundError(absl::StrCat("ranges[", i, "] holds no retained token_id"));
    }
    for (int64_t rank = first; rank < end; ++rank) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<int64_t> FirstRanks(int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return ranks;
}

absl::StatusOr<std::vector<int64_t>> SelectedRanks(const Inputs& inputs,
                                                   const ForgetSelector& selector) {
  const bool has_ids = !selector.token_ids.empty() || !selector.ranges.empty();
  const int num_kinds = static_cast<int>(has_ids) + static_cast<int>(selector.subject.has_value()) +
                        static_cast<int>(selector.before_token_id.has_value()) +
                        static_cast<int>(selector.everything);
  if (num_kinds != 1) {
    return absl::InvalidArgumentError(
        "the selector must set exactly one of token_ids and ranges, subject, before_token_id, "
        "everything");
  }
  if (has_ids) return RanksOfIdsAndRanges(inputs, selector);
  if (selector.everything) {
    if (inputs.size() == 0) return absl::NotFoundError("the history is empty");
    return FirstRanks(inputs.size());
  }
  if (selector.before_token_id.has_value()) {
    const int64_t rank = inputs.FindRank(*selector.before_token_id);
    if (rank < 0) return absl::NotFoundError("before_token_id is not retained");
    if (rank == 0) {
      return absl::InvalidArgumentError("before_token_id is the first: nothing is before it");
    }
    return FirstRanks(rank);
  }
  if (selector.subject->empty()) return absl::InvalidArgumentError("subject must not be empty");
  std::vector<int64_t> ranks = inputs.RanksOfSubject(*selector.subject);
  if (ranks.empty()) return absl::NotFoundError("no retained input has this subject");
  return ranks;
}

}  // namespace

absl::StatusOr<ForgetSelection> SelectForForget(const Inputs& inputs,
                                                const ForgetSelector& selector,
                                                DerivedPolicy policy) {
  if (policy == DerivedPolicy::kUnspecified) {
    return absl::InvalidArgumentError(
        "derived_policy must be KEEP_AND_REPORT, FORGET_DERIVED or FAIL");
  }
  ForgetSelection selection;
  LETHE_ASSIGN_OR_RETURN(selection.selected, SelectedRanks(inputs, selector));
  size_t next = 0;
  for (int64_t rank = selection.selected.front(); rank < inputs.size(); ++rank) {
    if (next < selection.selected.size() && selection.selected[next] == rank) {
      ++next;
    } else if (inputs.at(rank).kind == InputKind::kGenerated) {
      selection.derived.push_back(rank);
    }
  }
  if (policy == DerivedPolicy::kFail && !selection.derived.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("derived_policy is FAIL and ", selection.derived.size(),
                     " retained tokens are derived from the selected ones"));
  }
  if (policy == DerivedPolicy::kForgetDerived) {
    std::set_union(selection.selected.begin(), selection.selected.end(), selection.derived.begin(),
                   selection.derived.end(), std::back_inserter(selection.removed));
  } else {
    selection.removed = selection.selected;
  }
  return selection;
}

ForgetSelector ForgetSelector::Ids(std::vector<uint64_t> token_ids) {
  ForgetSelector selector;
  selector.token_ids = std::move(token_ids);
  return selector;
}

ForgetSelector ForgetSelector::Ranges(std::vector<TokenIdRange> ranges) {
  ForgetSelector selector;
  selector.ranges = std::move(ranges);
  return selector;
}

ForgetSelector ForgetSelector::Subject(std::string subject) {
  ForgetSelector selector;
  selector.subject = std::move(subject);
  return selector;
}

ForgetSelector ForgetSelector::Before(uint64_t token_id) {
  ForgetSelector selector;
  selector.before_token_id = token_id;
  return selector;
}

ForgetSelector ForgetSelector::Everything() {
  ForgetSelector selector;
  selector.everything = true;
  return selector;
}

}  // namespace lethe
