// FuzzNote, FuzzTlogProof, FuzzDsse, FuzzStatement, FuzzBundle, FuzzExport, FuzzVectorText, FuzzNpy: one parser of
// outside bytes each. FuzzSvdd: operations on the support-vector solver.
//
// A parser's target aborts (LETHE_CHECK) when an accepted input does not survive being written and
// read again, the solver's when its ways end in different bits. With LETHE_FUZZ each file is a
// libFuzzer program; without it corpus_replay_test runs them on the seeds.
// Threads: safe.
#ifndef LETHE_TESTS_FUZZ_FUZZ_TARGETS_H_
#define LETHE_TESTS_FUZZ_FUZZ_TARGETS_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lethe::fuzz {

void FuzzNote(absl::string_view bytes);
void FuzzTlogProof(absl::string_view bytes);
void FuzzDsse(absl::string_view bytes);
void FuzzStatement(absl::string_view bytes);
void FuzzBundle(absl::string_view bytes);
void FuzzExport(absl::string_view bytes);
void FuzzSvdd(absl::string_view input);
void FuzzVectorText(absl::string_view bytes);
void FuzzNpy(absl::string_view bytes);

}  // namespace lethe::fuzz

#ifdef LETHE_FUZZ
#define LETHE_FUZZ_ENTRY(target)                                            \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    target(absl::string_view(reinterpret_cast<const char*>(data), size));   \
    return 0;                                                               \
  }
#else
#define LETHE_FUZZ_ENTRY(target)
#endif

#endif  // LETHE_TESTS_FUZZ_FUZZ_TARGETS_H_
