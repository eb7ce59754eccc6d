// StreamCase: one kind of streaming memory with inputs fit for it, for tests over all of them.
// Threads: compatible.
#ifndef LETHE_TESTS_MEMORY_STREAM_CASES_H_
#define LETHE_TESTS_MEMORY_STREAM_CASES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "memory/ovq/ovq_memory.h"
#include "memory/palimpsa/palimpsa_memory.h"
#include "memory/vla/vla_memory.h"

namespace lethe::testing {

struct StreamCase {
  std::string name;
  std::function<std::unique_ptr<Memory>()> create;
  int64_t num_heads;
  int64_t key_dim;
  int64_t value_dim;
  bool has_decay = false;      // log_decay
  bool has_precision = false;  // precision
  bool has_direction = false;  // write_direction
};

inline void PrintTo(const StreamCase& stream, std::ostream* os) { *os << stream.name; }

// Every kind and option that changes the state: two heads, key_dim 16, value_dim 24.
std::vector<StreamCase> AllStreamCases();

// A sequence of tokens; row t of each field belongs to token t.
class StreamTokens {
 public:
  StreamTokens(const StreamCase& stream, int64_t count, uint64_t seed);

  int64_t count() const { return count_; }
  MemoryInputs Slice(int64_t first, int64_t count) const;
  // The sequence without the tokens first .. first + count - 1.
  StreamTokens Without(int64_t first, int64_t count) const;

  // [T][per token]; empty where the kind does not use it.
  std::vector<float> q, k, v, log_decay, precision, write_direction;

 private:
  int64_t count_;
};

// Steps through tokens first .. last - 1 in calls of the given lengths, repeated in turn; the
// reads.
std::vector<float> StepThrough(const StreamCase& stream, const StreamTokens& tokens, int64_t first,
                               int64_t last, const std::vector<int64_t>& cuts, Memory* memory);

// The same tokens through calls of Write and Step in turn; the reads are dropped.
void WriteAndStepThrough(const StreamCase& stream, const StreamTokens& tokens, int64_t first,
                         int64_t last, const std::vector<int64_t>& cuts, Memory* memory);

std::string CanonicalBytes(const Memory& memory);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_MEMORY_STREAM_CASES_H_
