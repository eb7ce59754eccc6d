// MeasureNumerics: whose arithmetic the sessions of a device have.
//
// Equation:  of the host queue the CPU's. Of a GPU: "cuda-" and its compute capability, and the SHA-256 over the
//            CPU's id, and logits and digest parts of the self-test's model (numerics_id.h) on the device, a session in one
//            call and one in steps beside a mate.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   what DeviceEngine::Create and Evaluate reject.
// Effects:   takes the device for about a second, before its engine is made.
// Numerics:  two devices with equal ids gave the same bits in the self-test.
// Threads:   safe.
#ifndef LETHE_SERVER_DEVICE_DEVICE_NUMERICS_H_
#define LETHE_SERVER_DEVICE_DEVICE_NUMERICS_H_

#include "absl/status/statusor.h"

#include "kernels/base/device.h"
#include "server/model/numerics_id.h"

namespace lethe {

absl::StatusOr<Numerics> MeasureNumerics(DeviceKind device);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_NUMERICS_H_
