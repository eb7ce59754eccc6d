// pthread_create of a program that wipes: every thread is known to WipeDeadStacks, and wipes its own stack when it ends
// (the C library keeps the stacks of ended threads, with what they hold, for the next ones).

#include <memory>

#include <dlfcn.h>
#include <pthread.h>

#include "server/wiping/dead_stacks.h"

namespace {

struct Start {
  void* (*run)(void*);
  void* argument;
};

void* Run(void* given) {
  const std::unique_ptr<Start> start(static_cast<Start*>(given));
  const lethe::KnownStack known;
  void* const result = start->run(start->argument);
  lethe::WipeOwnDeadStack();
  return result;
}

using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  auto start = std::make_unique<Start>(Start{run, argument});
  const int error = create(thread, attributes, &Run, start.get());
  if (error == 0) static_cast<void>(start.release());  // the thread's
  return error;
}
