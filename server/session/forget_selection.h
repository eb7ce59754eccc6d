// SelectForForget: the ranks that a selector names, and the tokens derived from them.
//
// Equation:  derived: generated inputs behind the first selected rank that are not selected
//            themselves (each was drawn with a selected input, or one so derived, in context).
// Shapes:    ranks ascending and distinct.
// Units:     ranks.
// Requires:  none.
// Rejects:   as Session::StageForget documents; messages hold neither ids nor labels.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_FORGET_SELECTION_H_
#define LETHE_SERVER_SESSION_FORGET_SELECTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "server/session/forget.h"
#include "server/session/inputs.h"

namespace lethe {

struct ForgetSelection {
  std::vector<int64_t> selected;  // not empty
  std::vector<int64_t> derived;
  std::vector<int64_t> removed;  // selected, and derived under kForgetDerived
};

absl::StatusOr<ForgetSelection> SelectForForget(const Inputs& inputs,
                                                const ForgetSelector& selector,
                                                DerivedPolicy policy);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_FORGET_SELECTION_H_
