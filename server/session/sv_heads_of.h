// SvHeadsOf: the support-vector heads of a model's state, by layer, group and head.
//
// Equation:  none.
// Shapes:    sv_head.h.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none. The views are valid until the state changes.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_SV_HEADS_OF_H_
#define LETHE_SERVER_SESSION_SV_HEADS_OF_H_

#include <vector>

#include "server/model/model_state.h"
#include "server/session/sv_head.h"

namespace lethe {

std::vector<SvHead> SvHeadsOf(const ModelState& state);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_SV_HEADS_OF_H_
