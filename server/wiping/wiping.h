// ProcessWipes: whether this process is one whose memory holds nothing that was given back.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   tries it: memory of several sizes is filled, freed or moved, and looked at as a debugger would; a thread is
//            started. True only where all of it was zeroed and the thread's stack was known to WipeDeadStacks: not
//            in programs without lethe::wiping_program, nor in builds with a sanitizer, nor under another allocator.
// Numerics:  none. About 100 us.
// Threads:   safe.
#ifndef LETHE_SERVER_WIPING_WIPING_H_
#define LETHE_SERVER_WIPING_WIPING_H_

namespace lethe {

bool ProcessWipes();

}  // namespace lethe

#endif  // LETHE_SERVER_WIPING_WIPING_H_
