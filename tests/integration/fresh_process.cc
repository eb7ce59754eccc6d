#include "tests/integration/fresh_process.h"

#include <cstdlib>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/check.h"

namespace lethe::testing {
namespace {

absl::StatusOr<std::string> ReadLine(FILE* stream) {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&line, &capacity, stream);
  std::string text;
  if (length > 0) text.assign(line, static_cast<size_t>(length) - 1);
  std::free(line);
  if (length <= 0) return absl::UnavailableError("the fresh process ended");
  return text;
}

}  // namespace

FreshProcess::FreshProcess(const std::string& program, const std::string& argument) {
  int down[2];
  int up[2];
  LETHE_CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
  child_ = fork();
  LETHE_CHECK(child_ >= 0);
  if (child_ == 0) {
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), argument.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_child_ = fdopen(down[1], "w");
  from_child_ = fdopen(up[0], "r");
}

FreshProcess::~FreshProcess() {
  std::fclose(to_child_);
  std::fclose(from_child_);
  waitpid(child_, nullptr, 0);
}

absl::StatusOr<Observation> FreshProcess::Ask(uint32_t stack,
                                              const std::vector<int32_t>& vocab_ids) {
  std::fprintf(to_child_, "%u %zu", stack, vocab_ids.size());
  for (const int32_t id : vocab_ids) std::fprintf(to_child_, " %d", id);
  std::fprintf(to_child_, "\n");
  std::fflush(to_child_);
  Observation observation;
  for (std::string* field : {&observation.digest_parts, &observation.logits, &observation.text}) {
    absl::StatusOr<std::string> line = ReadLine(from_child_);
    if (!line.ok()) return line.status();
    *field = *line;
  }
  for (char& c : observation.digest_parts) {
    if (c == ';') c = '\n';
  }
  return observation;
}

}  // namespace lethe::testing
