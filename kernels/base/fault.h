// Fault: the mutants of the exact-forgetting property test and the wipes that erasure tests switch off, each a real
// mistake that a server could make.
//
// FaultActive is resolved at link time: programs link fault_none.cc, where it is always false, so no
// flag, environment variable or request can switch a fault on; tests link tests/testing/fault_switch.cc.
// Threads: safe.
#ifndef LETHE_KERNELS_BASE_FAULT_H_
#define LETHE_KERNELS_BASE_FAULT_H_

namespace lethe {

enum class Fault {
  kGridNotRealigned,            // after a Forget chunks end where they ended before it
  kOldConvolutionTailKept,      // convolution tails are not restored by a Forget
  kWindowSummedFromBlockStart,  // window attention sums from the start of the call's tokens
  kVlaStepCountKept,            // VLA's step count (nudge phase) is not restored by a Forget
  kOvqTokenCountKept,           // OVQ's t (growth law) is not restored by a Forget
  kPolishSkipped,               // the support-vector state keeps the path's own rounding
  kStaleSnapshotKept,           // a snapshot behind the first removed rank survives and is used
  kPenaltyCountsKept,           // repetition counts are not recomputed after a Forget
  kTreeOverChunks,       // Palimpsa sums a call's tokens in a tree instead of folding by rank
  kChangedFeaturesKept,  // what the bank takes of tokens behind a gap is not evaluated again
  kGateBoundaryKept,  // after an edit the gate covers what it did before, without the removed keys
  kKeyAddedAtEnd,     // an edit puts its replaced keys last instead of at their ranks
  kDataKeyKept,       // the store forgets a data key's slot without overwriting it
  kOldRowsKept,       // a Forget leaves the rows that it replaces in the store
  kWalKept,           // the store's write-ahead log is not truncated after an erasure
};

bool FaultActive(Fault fault);

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_FAULT_H_
