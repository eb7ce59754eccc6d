// InputsFile: a session's retained inputs and what a fresh session needs to replay them, as a JSON file.
//
//   {"format":"https://lethe.dev/inputs/v1","memory_options":{"ovq_slots":64},"model":"lethe-tiny",
//    "vocab_ids":[91,82,...]}
//   {"format":"https://lethe.dev/inputs/v1","keys":[[0.5,1],...],"values":[[2],...],
//    "vector_options":{"box_mass":6.5,"key_dim":2,"ridge":0.00048828125,"sigma":1.5,"value_dim":1}}
//
// Equation:  none.
// Shapes:    vocab_ids, keys and values in rank order; values of no columns where value_dim is 0.
// Units:     none.
// Requires:  none.
// Rejects:   ParseInputsFile: INVALID_ARGUMENT naming the field that is missing or of the wrong type.
// Effects:   none. The file is content: it holds everything that the session was told.
// Numerics:  doubles are written so that they read back exactly.
// Threads:   safe.
#ifndef LETHE_CLIENT_INPUTS_FILE_H_
#define LETHE_CLIENT_INPUTS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/vector_file.h"

#include "lethe/v1/session.pb.h"

namespace lethe::client {

// Of a vector session.
struct VectorInputs {
  v1::VectorOptions options;
  VectorRows rows;
};

struct InputsFile {
  std::string model;
  v1::MemoryOptions memory_options;
  std::vector<int32_t> vocab_ids;
  std::optional<VectorInputs> vectors = std::nullopt;  // then the others are empty

  size_t num_inputs() const {
    return vectors ? static_cast<size_t>(vectors->rows.keys.num_rows) : vocab_ids.size();
  }
};

std::string WriteInputsFile(const InputsFile& file);
absl::StatusOr<InputsFile> ParseInputsFile(absl::string_view json);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_INPUTS_FILE_H_
