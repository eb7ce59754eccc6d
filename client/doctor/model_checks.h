// CheckModel: whether a model directory has its files, whole.
//
// Equation:  none.
// Shapes:    docs/model-format.md.
// Units:     none.
// Requires:  none.
// Rejects:   nothing: what does not fit is an error that names the file.
// Effects:   none. Whether the weights fit the configuration is the server's to say, when it loads them.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_MODEL_CHECKS_H_
#define LETHE_CLIENT_DOCTOR_MODEL_CHECKS_H_

#include <string>

#include "client/doctor/finding.h"

namespace lethe::client {

Findings CheckModel(const std::string& directory);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_MODEL_CHECKS_H_
