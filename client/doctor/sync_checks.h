// CheckSyncSpeed: how long a write takes to be safe from a loss of power where the data directory lies.
//
// Equation:  none.
// Shapes:    none.
// Units:     milliseconds.
// Requires:  none; a directory that does not exist yet is measured in the one that it will be made in.
// Rejects:   nothing: a directory that cannot be written is a note.
// Effects:   makes a file with a name of its own, writes and syncs kNumSyncs blocks of 4 KiB, removes it.
// Numerics:  the median; a busy disk answers slowly.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_SYNC_CHECKS_H_
#define LETHE_CLIENT_DOCTOR_SYNC_CHECKS_H_

#include <string>

#include "client/doctor/finding.h"

namespace lethe::client {

inline constexpr int kNumSyncs = 16;

Findings CheckSyncSpeed(const std::string& directory);

// What a median sync of so long means.
Finding JudgeSync(double median_ms);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_SYNC_CHECKS_H_
