// ReadRecordFiles: the contents of a directory's or tar archive's .txt files.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   NOT_FOUND for a path that is not there; INVALID_ARGUMENT for an archive that cannot be
//            unpacked or is no tar.
// Effects:   runs `xz` or `gzip` for a path that ends in .xz or .gz, without a shell.
// Numerics:  none; memory O(the unpacked bytes).
// Threads:   safe.
#ifndef LETHE_PAPER_RECORD_FILES_H_
#define LETHE_PAPER_RECORD_FILES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace lethe::paper {

// By file name without folders and ".txt".
absl::StatusOr<std::map<std::string, std::string>> ReadRecordFiles(const std::string& path);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_RECORD_FILES_H_
