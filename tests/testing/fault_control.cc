// FaultActive and CrashPoint of lethe-server-faulty, the server of the erasure tests: faults and crash points come from
// the file that the environment variable LETHE_TEST_CONTROL names, at start and whenever the process gets SIGUSR2.
// The file holds two numbers, a fault (-1: none) and the crash point to end at (0: never), and is removed once read.
//
// Threads: safe; the setting is process-wide.

#include <atomic>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include "kernels/base/crash_point.h"
#include "kernels/base/fault.h"
#include "tests/testing/fault_switch.h"

namespace lethe {
namespace {

constinit std::atomic<int> active_fault{-1};
constinit std::atomic<int> crash_at{0};
constinit std::atomic<int> points_passed{0};
const char* control_path = nullptr;

int ReadNumber(const char** text) {
  while (**text == ' ') ++*text;
  const bool negative = **text == '-';
  if (negative) ++*text;
  int number = 0;
  for (; **text >= '0' && **text <= '9'; ++*text) number = 10 * number + (**text - '0');
  return negative ? -number : number;
}

// Async-signal-safe.
void ReadControl(int /*signal*/) {
  const int file = open(control_path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char text[64] = "";
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return;
  const char* at = text;
  active_fault.store(ReadNumber(&at));
  points_passed.store(0);
  crash_at.store(ReadNumber(&at));
  unlink(control_path);
}

const bool started = [] {
  control_path = std::getenv("LETHE_TEST_CONTROL");
  if (control_path == nullptr) return false;
  ReadControl(0);
  struct sigaction action {};
  action.sa_handler = &ReadControl;
  action.sa_flags = SA_RESTART;
  return sigaction(SIGUSR2, &action, nullptr) == 0;
}();

}  // namespace

bool FaultActive(Fault fault) {
  return active_fault.load(std::memory_order_relaxed) == static_cast<int>(fault);
}

void CrashPoint(const char* /*moment*/) {
  if (points_passed.fetch_add(1) + 1 == crash_at.load()) _exit(testing::kCrashExit);
}

}  // namespace lethe
