// CheckDataDirectory, CheckLedger: whether a data directory lies where erasing it means something, and who can read it.
//
// Equation:  none.
// Shapes:    docs/data-directory.md.
// Units:     none.
// Requires:  none; a directory that does not exist yet is judged by the one that it will be made in.
// Rejects:   nothing: what cannot be examined is an error.
// Effects:   none: nothing is opened for writing, no key is read.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_DIRECTORY_CHECKS_H_
#define LETHE_CLIENT_DOCTOR_DIRECTORY_CHECKS_H_

#include <string>

#include "client/doctor/finding.h"
#include "client/doctor/system_files.h"

namespace lethe::client {

// Access rights, file system, what lies under it, free space.
Findings CheckDataDirectory(const std::string& directory, const SystemFiles& files);

// Whether the erasure ledger is out of reach of whatever copies or restores the data directory.
Findings CheckLedger(const std::string& ledger, const std::string& directory);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_DIRECTORY_CHECKS_H_
