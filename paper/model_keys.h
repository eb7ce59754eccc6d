// ModelKeys: the keys that a model's first support-vector head makes of a text.
//
// Equation:  docs/model-format.md (sv).
// Shapes:    [the text's tokens up to the last multiple of 64][key_dim].
// Units:     none.
// Requires:  none.
// Rejects:   NOT_FOUND or INVALID_ARGUMENT, naming --model or --text, for a model without such a
//            head or a text without 64 tokens; what Model::Load and ModelState reject.
// Effects:   loads and runs the model. With model "" kDefaultModel is taken, with text ""
//            kDefaultText; no keys when one of the two is not there.
// Numerics:  the model's f32 keys, widened.
// Threads:   compatible.
#ifndef LETHE_PAPER_MODEL_KEYS_H_
#define LETHE_PAPER_MODEL_KEYS_H_

#include <string>

#include "absl/status/statusor.h"

#include "paper/points.h"

namespace lethe::paper {

inline constexpr char kDefaultModel[] = "models/lethe-tiny";
inline constexpr char kDefaultText[] = "deploy/texts/2-morning.txt";

absl::StatusOr<Points> ModelKeys(const std::string& model, const std::string& text);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_MODEL_KEYS_H_
