// ForbidDumps, MakePrivateFiles, KeepFreedMemory, EndWhenOutOfMemory: what a serving process asks of the operating system at
// its start.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  called in main, before other threads start.
// Rejects:   none.
// Effects:   ForbidDumps: no core files, no mapping in one that a debugger writes (coredump_filter, as MADV_DONTDUMP of
//            every mapping), and no process of the same user may read this one's memory.
//            MakePrivateFiles: whatever file the process makes, others may not read it (umask 077), SQLite's among them.
//            KeepFreedMemory: the allocator has one arena more than compute_threads, so that one
//            call's memory serves the next on another thread, and gives memory back to the system
//            only beyond kKeptBytes an arena. Boundary states of megabytes come and go every 64
//            tokens; each costs page faults otherwise (10 to 20 % of decoding, lethe-tiny).
//            EndWhenOutOfMemory: an allocation that fails ends the process with status 1. As an exception it would leave
//            a call between its record and its change, and gRPC, which catches what handlers throw, would go on serving.
// Numerics:  none.
// Threads:   see Requires.
#ifndef LETHE_SERVER_PROCESS_SETUP_H_
#define LETHE_SERVER_PROCESS_SETUP_H_

namespace lethe {

inline constexpr int kKeptBytes = 64 << 20;

void ForbidDumps();
void MakePrivateFiles();
void KeepFreedMemory(int compute_threads);
void EndWhenOutOfMemory();

}  // namespace lethe

#endif  // LETHE_SERVER_PROCESS_SETUP_H_
