// GroupMethods, LayerReports, HasSelected: what records and receipts say of a session's kind and layers.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  HasSelected: the session's lock is held and it was not deleted.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe; HasSelected under the session's lock.
#ifndef LETHE_SERVER_CERTIFICATION_SESSION_METHODS_H_
#define LETHE_SERVER_CERTIFICATION_SESSION_METHODS_H_

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "audit/certificate/statement.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

struct GroupMethod {
  std::string group;  // "layer.4.group.0.sv"
  audit::LayerMethod method = audit::LayerMethod::kReevaluation;
  bool bounded = false;
};

// Every memory group of the model; the one memory of a vector session.
std::vector<GroupMethod> GroupMethods(const SessionEntry& entry, ForgetWay way);

// Every layer with a state.
std::vector<audit::LayerReport> LayerReports(const SessionEntry& entry, ForgetWay way);

// True when a selection took reserve keys out of a vector session.
bool HasSelected(const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_SESSION_METHODS_H_
