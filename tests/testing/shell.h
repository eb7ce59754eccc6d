// RunShell: what a shell makes of a script.
// Threads: safe.
#ifndef LETHE_TESTS_TESTING_SHELL_H_
#define LETHE_TESTS_TESTING_SHELL_H_

#include <array>
#include <cstdio>
#include <string>

#include <sys/wait.h>

namespace lethe::testing {

struct ShellRun {
  int exit_code = -1;  // -1 after a signal
  std::string output;  // what went to standard output
};

inline ShellRun RunShell(const std::string& script) {
  ShellRun run;
  FILE* pipe = ::popen(script.c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> buffer;
  for (size_t count; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    run.output.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  return run;
}

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_SHELL_H_
