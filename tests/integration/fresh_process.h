// FreshProcess: a child process that answers what a fresh session is after a history.
//
// The child (forget_oracle.cc) has its own memory and no fault switched on; it builds the models anew. One question is one
// line "<stack> <count> <vocab_id>…\n", one answer three lines: the digest parts (separated by ';'), the logits, the text.
//
// Effects:  starts the child in the constructor and ends it in the destructor.
// Threads:  one caller at a time.
#ifndef LETHE_TESTS_INTEGRATION_FRESH_PROCESS_H_
#define LETHE_TESTS_INTEGRATION_FRESH_PROCESS_H_

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <sys/types.h>

#include "tests/integration/forget_cases.h"

namespace lethe::testing {

class FreshProcess {
 public:
  // `argument` goes to the child: a model directory, or empty for PropertyStacks().
  FreshProcess(const std::string& program, const std::string& argument);
  ~FreshProcess();
  FreshProcess(const FreshProcess&) = delete;
  FreshProcess& operator=(const FreshProcess&) = delete;

  absl::StatusOr<Observation> Ask(uint32_t stack, const std::vector<int32_t>& vocab_ids);

 private:
  pid_t child_ = -1;
  FILE* to_child_ = nullptr;
  FILE* from_child_ = nullptr;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_FRESH_PROCESS_H_
