// InputsFile: a session's retained inputs and what a fresh session needs to replay them, as a JSON file.
//
//   {"format":"https://lethe.dev/inputs/v1","memory_options":{"ovq_slots":64},"model":"lethe-tiny",
//    "vocab_ids":[91,82,...]}
//
// Equation:  none.
// Shapes:    vocab_ids in rank order.
// Units:     none.
// Requires:  none.
// Rejects:   ParseInputsFile: INVALID_ARGUMENT naming the field that is missing or of the wrong type.
// Effects:   none. The file is content: it holds everything that the session was told.
// Numerics:  doubles are written so that they read back exactly.
// Threads:   safe.
#ifndef LETHE_CLIENT_INPUTS_FILE_H_
#define LETHE_CLIENT_INPUTS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "lethe/v1/session.pb.h"

namespace lethe::client {

struct InputsFile {
  std::string model;
  v1::MemoryOptions memory_options;
  std::vector<int32_t> vocab_ids;
};

std::string WriteInputsFile(const InputsFile& file);
absl::StatusOr<InputsFile> ParseInputsFile(absl::string_view json);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_INPUTS_FILE_H_
