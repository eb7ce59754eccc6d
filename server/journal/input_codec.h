// EncodeInputs, DecodeInputs: a run of a session's inputs as a row of the session store holds them.
//
// Equation:  none.
// Shapes:    docs/data-directory.md. Keys and values of a vector session travel with their inputs; a model's session
//            has dimensions of 0.
// Units:     ranks, half-open.
// Requires:  ranks in range.
// Rejects:   DecodeInputs: DATA_LOSS for bytes that EncodeInputs does not write, or that do not go on where `inputs`
//            end.
// Effects:   DecodeInputs appends.
// Numerics:  none; floating point by its bits.
// Threads:   safe.
#ifndef LETHE_SERVER_JOURNAL_INPUT_CODEC_H_
#define LETHE_SERVER_JOURNAL_INPUT_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "kernels/base/wiped.h"
#include "server/session/inputs.h"
#include "server/vector_session/vector_rows.h"

namespace lethe {

struct InputRun {
  const Inputs& inputs;
  int64_t first = 0;
  int64_t end = 0;
};
std::string EncodeInputs(const InputRun& run, const VectorRows& vectors);

struct DecodedInputs {
  Inputs inputs;
  WipedVector<double> keys;
  WipedVector<double> values;
};
absl::Status DecodeInputs(absl::string_view bytes, DecodedInputs* decoded);

}  // namespace lethe

#endif  // LETHE_SERVER_JOURNAL_INPUT_CODEC_H_
