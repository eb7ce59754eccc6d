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
  kGateBoundaryKept,   // after an edit the gate covers what it did before, without the removed keys
  kKeyAddedAtEnd,      // an edit puts its replaced keys last instead of at their ranks
  kDataKeyKept,        // the store forgets a data key's slot without overwriting it
  kOldRowsKept,        // a Forget leaves the rows that it replaces in the store
  kWalKept,            // the store's write-ahead log is not truncated after an erasure
  kFreedMemoryKept,    // free and realloc leave what a block held
  kDeadStacksKept,     // returned functions' frames stay on the stacks
  kReceivedBytesKept,  // requests stay in the blocks that gRPC reads connections into
  kLedgerNotReplayed,  // a restored data directory comes back as it was
  kSubjectAdmitted,    // new inputs under a label are let in while it is being forgotten everywhere
  kWritersGoOn,        // who was let in before goes on writing under the label
  kConstantChanged,  // no mistake: a build with one constant of the model changed, another numerics id
  kDirectoryNotSynced,  // names of new files are not made durable
  kNewKeysNotSynced,    // rows refer to data keys that are not on disk yet
  kCommitNotSynced,     // a change is answered while the operating system still holds it
  kIntentNotWritten,    // a change that goes with a record is stored at once
  kKeysDestroyedEarly,  // a Forget destroys the old keys before its record is in the log
  kHeadNotSynced,  // the log's published head is not made durable before it is renamed into place
  kFailedSyncRetried,   // a sync that failed is asked for again
  kFailedCommitUndone,  // a record whose commit failed is taken for absent
  kUnfinishedServed,    // a session goes on although its record's change could not be finished
  kFailureOutlived,     // a store that has failed takes further changes
  kDeviceFails,         // no mistake: the next step on a device reports an error of the device
  kDeviceFull,          // likewise: there is no room for a new session's support-vector groups
};

bool FaultActive(Fault fault);

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_FAULT_H_
