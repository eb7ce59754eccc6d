// The fuzz targets. Parsers of outside bytes: FuzzNote, FuzzTlogProof, FuzzDsse, FuzzStatement, FuzzBundle, FuzzLogFiles, FuzzExport,
// FuzzVectorText, FuzzNpy, FuzzSafetensors, FuzzModelConfig, FuzzClientText. FuzzAnswerText: tokenizer, stop strings and UTF-8.
// FuzzSvdd: operations on the support-vector solver. FuzzImport: the content of an export into a registry. FuzzRequest: any bytes to
// any method of a server; FuzzOperations: sequences of real calls.
//
// A parser's target aborts (LETHE_CHECK) when an accepted input does not survive being written and read again, the others when what
// their first lines state does not hold. With LETHE_FUZZ each file is a libFuzzer program (tests/fuzz/run); without it
// corpus_replay_test and service_replay_test run them on the seeds.
// Threads: safe, but for FuzzRequest and FuzzOperations, which share a server.
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
void FuzzSafetensors(absl::string_view bytes);
void FuzzModelConfig(absl::string_view bytes);
void FuzzAnswerText(absl::string_view bytes);
void FuzzLogFiles(absl::string_view bytes);
void FuzzClientText(absl::string_view bytes);
void FuzzImport(absl::string_view input);
void FuzzRequest(absl::string_view input);
void FuzzOperations(absl::string_view input);

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
