// AppendSlotDigest, InitialImage: what an image of a slot says, and the image of rank 0; internal to
// server/device.
//
// Equation:  docs/state-digest.md: the parts of a session's layers.
// Shapes:    image: [layout.image_bytes()], aligned to 16 bytes.
// Units:     num_tokens counts the tokens that the state has taken.
// Requires:  the layout of this config (LETHE_CHECK of the size).
// Rejects:   none.
// Effects:   appends.
// Numerics:  the bytes that ModelState's parts have where the states have equal bits.
// Threads:   safe.
#ifndef LETHE_SERVER_DEVICE_SLOT_DIGEST_H_
#define LETHE_SERVER_DEVICE_SLOT_DIGEST_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "kernels/base/wiped.h"
#include "server/device/slot_layout.h"

namespace lethe {

class SvSession;

void AppendSlotDigest(const ModelConfig& config, const SlotLayout& layout,
                      absl::Span<const std::byte> image, int64_t num_tokens, const SvSession* sv,
                      audit::StateParts* parts);

WipedVector<std::byte> InitialImage(const ModelConfig& config, const SlotLayout& layout);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_SLOT_DIGEST_H_
