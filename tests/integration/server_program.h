// Program: a run of the program lethe-server, or of another server that is started the same way.
//
// Threads: compatible.
#ifndef LETHE_TESTS_INTEGRATION_SERVER_PROGRAM_H_
#define LETHE_TESTS_INTEGRATION_SERVER_PROGRAM_H_

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lethe::testing {

inline constexpr char kServerProgram[] = LETHE_BINARY_DIR "/bin/lethe-server";

// Standard error goes to a file, standard output to a pipe. The destructor kills.
class Program {
 public:
  Program(std::vector<std::string> arguments, const std::string& error_path,
          const std::string& program = kServerProgram) {
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      const int error = open(error_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(pipe_ends[1], STDOUT_FILENO);
      dup2(error, STDERR_FILENO);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
    close(pipe_ends[1]);
    output_ = fdopen(pipe_ends[0], "r");
  }
  ~Program() {
    Kill();
    fclose(output_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string ReadLine() {
    std::string line;
    for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_)) {
      line.push_back(static_cast<char>(c));
    }
    return line;
  }
  // Of the first line; empty when the program ended before.
  std::string ReadAddress() {
    const std::string line = ReadLine();
    return line.substr(line.rfind(' ') + 1);
  }
  pid_t process() const { return process_; }
  void Signal(int signal) const { kill(process_, signal); }
  // As kill -9.
  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    Wait();
  }
  // The exit status; -1 after a signal.
  int Wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = -1;
  FILE* output_ = nullptr;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_SERVER_PROGRAM_H_
