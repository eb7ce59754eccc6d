// CheckKeys: whether a data directory's keys are all there and whole, and those that its trust file names.
//
// Equation:  none.
// Shapes:    docs/data-directory.md, "keys/" and "sessions/"; docs/certificate-format.md, trust.txt.
// Units:     none.
// Requires:  none; a directory without keys/ is one that no server has used yet.
// Rejects:   nothing: what does not fit is an error, what the caller may not read is a note.
// Effects:   reads keys and wipes them again; nothing of them is in a finding. Nothing is made: a key that is missing
//            stays missing.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_KEY_CHECKS_H_
#define LETHE_CLIENT_DOCTOR_KEY_CHECKS_H_

#include <string>

#include "client/doctor/finding.h"

namespace lethe::client {

Findings CheckKeys(const std::string& directory);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_KEY_CHECKS_H_
