// OvqBatchCpu: the CPU form of OvqBatch; internal to kernels/ovq.
//
// Equation:  as ovq_batch.h.   Shapes: as ovq_batch.h.   Units: as ovq_batch.h.
// Requires:  what OvqBatch has validated.
// Rejects:   none.
// Effects:   as ovq_batch.h.
// Numerics:  the bits of OvqRead and OvqMerge, which it calls.
// Threads:   safe for distinct states.
#ifndef LETHE_KERNELS_OVQ_OVQ_BATCH_CPU_H_
#define LETHE_KERNELS_OVQ_OVQ_BATCH_CPU_H_

#include <cstdint>

#include "kernels/ovq/ovq_batch.h"

namespace lethe {

void OvqBatchCpu(const OvqShape& shape, const OvqBatchSize& size, const OvqInputs& inputs,
                 const OvqStates& states, float* out, int32_t* assignments);

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_BATCH_CPU_H_
