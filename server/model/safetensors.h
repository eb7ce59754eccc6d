// Tensor, TensorMap, ReadSafetensors, WriteSafetensors: the public safetensors layout, read
// strictly.
//
// Equation:  none. u64 little-endian header length, JSON header {name: {dtype, shape,
//            data_offsets}}, data.
// Shapes:    row-major.
// Units:     offsets in bytes from the end of the header.
// Requires:  none.
// Rejects:   NOT_FOUND: no such file. DATA_LOSS: the file ends before its header
//            or data do. INVALID_ARGUMENT that names the tensor: dtype other than F32 and BF16,
//            data_offsets that overlap, leave a gap, run out of bounds or disagree with the shape,
//            a required tensor that is missing, a value that is not finite, a duplicate name, a
//            header over 16 MiB or not of that form, bytes after the last tensor.
// Effects:   none.
// Numerics:  BF16 is widened to f32 without change of value.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_SAFETENSORS_H_
#define LETHE_SERVER_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lethe {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using TensorMap = std::map<std::string, Tensor>;

// The bytes of a whole file. `required` names tensors that the header must have; a header without
// one of them is refused by that name, before its absence shows as a gap between offsets.
absl::StatusOr<TensorMap> ParseSafetensors(absl::string_view bytes,
                                           absl::Span<const std::string> required = {});
absl::StatusOr<TensorMap> ReadSafetensors(const std::string& path,
                                          absl::Span<const std::string> required = {});
// The bytes of a file, for config.json as well.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// F32, tensors in name order (for tests and tools).
std::string SafetensorsBytes(const TensorMap& tensors);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_SAFETENSORS_H_
