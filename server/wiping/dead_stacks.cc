#include "server/wiping/dead_stacks.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include <semaphore.h>
#include <sys/mman.h>

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"

// Zeros zmm16 to zmm31, which vzeroall leaves. The C library copies through them where the processor has them, and the kernel
// writes a waiting thread's registers to its stack when it handles a signal. In assembly, so that no compiler reasons
// about which registers it changes.
extern "C" void LetheZeroHighRegisters();
asm(".text\n"
    ".type LetheZeroHighRegisters, @function\n"
    "LetheZeroHighRegisters:\n"
    ".irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
    "vpxorq %zmm\\number, %zmm\\number, %zmm\\number\n"
    ".endr\n"
    "ret\n"
    ".size LetheZeroHighRegisters, . - LetheZeroHighRegisters\n");

namespace lethe {
namespace {

const bool has_high_registers = __builtin_cpu_supports("avx512f") != 0;

constexpr uintptr_t kPageBytes = 4096;

struct Stacks {
  Mutex mutex;
  KnownStack* first ABSL_GUARDED_BY(mutex) = nullptr;
  sem_t answers;
};

// Never destroyed: threads may outlive main.
Stacks& All() {
  static Stacks* const stacks = new Stacks();
  return *stacks;
}

int WipeSignal() { return SIGRTMIN + 6; }

// Of this thread; 0 when it has no KnownStack. Read in the signal handler, so it must not need construction.
constinit thread_local uintptr_t stack_low = 0;
sem_t* answers_of_handler = nullptr;

uintptr_t LowestOfOwnStack() {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t bytes = 0;
  LETHE_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<uintptr_t>(low);
}

// Zeros [from, stack pointer) and the vector registers. Without a frame of its own it needs nothing of what it zeros.
__attribute__((naked, noinline)) void ZeroUpToStackPointer(uintptr_t /*from*/) {
  asm("mov %rsp, %rcx\n"
      "sub %rdi, %rcx\n"
      "xor %eax, %eax\n"
      "rep stosb\n"
      "vzeroall\n"
      "ret\n");
}

// Async-signal-safe.
__attribute__((noinline)) void WipeFrom(uintptr_t low) {
  if (has_high_registers) LetheZeroHighRegisters();
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  // A page of room for the call below.
  const uintptr_t whole_end = (here - kPageBytes) / kPageBytes * kPageBytes;
  if (low >= whole_end) {
    if (low < here) ZeroUpToStackPointer(low);
    return;
  }
  // Fails where the main thread's stack has not grown to yet, after it has taken what there is.
  static_cast<void>(madvise(reinterpret_cast<void*>(low), whole_end - low, MADV_DONTNEED));
  ZeroUpToStackPointer(whole_end);
}

void OnWipeSignal(int /*signal*/) {
  const int error = errno;
  if (stack_low != 0) WipeFrom(stack_low);
  sem_post(answers_of_handler);
  errno = error;
}

void InstallHandler() {
  static const bool installed = [] {
    answers_of_handler = &All().answers;
    LETHE_CHECK(sem_init(answers_of_handler, 0, 0) == 0);
    struct sigaction action {};
    action.sa_handler = &OnWipeSignal;
    action.sa_flags = SA_RESTART;
    LETHE_CHECK(sigaction(WipeSignal(), &action, nullptr) == 0);
    return true;
  }();
  static_cast<void>(installed);
}

// What AlsoWipe was given.
struct OtherMemory {
  Mutex mutex;
  std::vector<std::function<absl::Status()>> wipes ABSL_GUARDED_BY(mutex);
};

OtherMemory& Others() {
  static OtherMemory* const others = new OtherMemory;
  return *others;
}

}  // namespace

KnownStack::KnownStack() : thread_(pthread_self()) {
  InstallHandler();
  stack_low = LowestOfOwnStack();
  Stacks& stacks = All();
  MutexLock lock(&stacks.mutex);
  next_ = stacks.first;
  if (next_ != nullptr) next_->previous_ = this;
  stacks.first = this;
}

KnownStack::~KnownStack() {
  Stacks& stacks = All();
  MutexLock lock(&stacks.mutex);
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : stacks.first) = next_;
}

bool OwnStackIsKnown() { return stack_low != 0; }

void WipeOwnDeadStack() {
  if (FaultActive(Fault::kDeadStacksKept)) return;
  WipeFrom(stack_low != 0 ? stack_low : LowestOfOwnStack());
}

void AlsoWipe(std::function<absl::Status()> wipe) {
  MutexLock lock(&Others().mutex);
  Others().wipes.push_back(std::move(wipe));
}

absl::Status WipeDeadStacks() {
  std::vector<std::function<absl::Status()>> wipes;
  {
    MutexLock lock(&Others().mutex);
    wipes = Others().wipes;
  }
  for (const std::function<absl::Status()>& wipe : wipes) LETHE_RETURN_IF_ERROR(wipe());
  if (FaultActive(Fault::kDeadStacksKept)) return absl::OkStatus();
  Stacks& stacks = All();
  {
    // Held until all have answered, so no thread ends meanwhile.
    MutexLock lock(&stacks.mutex);
    int num_asked = 0;
    for (KnownStack* stack = stacks.first; stack != nullptr; stack = stack->next_) {
      if (pthread_equal(stack->thread_, pthread_self()) != 0) continue;
      if (pthread_kill(stack->thread_, WipeSignal()) == 0) ++num_asked;
    }
    timespec end{};
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += kWipeSeconds;
    while (num_asked > 0) {
      if (sem_clockwait(&stacks.answers, CLOCK_MONOTONIC, &end) == 0) {
        --num_asked;
      } else if (errno != EINTR) {
        return absl::UnavailableError("a thread did not wipe its stack in time");
      }
    }
  }
  WipeOwnDeadStack();
  return absl::OkStatus();
}

}  // namespace lethe
