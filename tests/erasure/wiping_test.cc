// Goal: a program that links lethe::wiping_program holds nothing of what it gave back, on the heap, on its threads'
// stacks or on those of threads that ended, and ProcessWipes says so exactly then.
// Method: memory and stacks are filled, given back, and looked at as a debugger would; each wipe is switched off once.
#include "server/wiping/wiping.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include <malloc.h>
#include <unistd.h>

#include "server/wiping/dead_stacks.h"
#include "tests/integration/server_testing.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

class WipingTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef LETHE_SANITIZED
    GTEST_SKIP()
        << "skipped because sanitizers bring their own allocator: this build does not wipe";
#endif
  }
};

// Different in every call, and written nowhere but where `Fill` is told to.
std::array<char, 16> NewMark() {
  static uint64_t count = 0;
  std::array<char, 16> mark{};
  const uint64_t a = (0x9e3779b97f4a7c15 + ++count) * 0xbf58476d1ce4e5b9;
  const uint64_t b = a * 0x94d049bb133111eb;
  std::memcpy(mark.data(), &a, 8);
  std::memcpy(mark.data() + 8, &b, 8);
  return mark;
}

// The scanner and the mark hold it too: the complement is what is planted, and looked for.
class Mark {
 public:
  Mark() : inverted_(NewMark()) {}
  void WriteTo(char* place) const {
    for (size_t i = 0; i < inverted_.size(); ++i) place[i] = static_cast<char>(~inverted_[i]);
  }
  // How often it is in this process, apart from the scanner's own copy and table.
  size_t NumLeft(const void* place, size_t bytes) const {
    std::array<char, 16> plain{};
    WriteTo(plain.data());
    const auto* at = static_cast<const char*>(place);
    size_t found = 0;
    for (size_t i = 0; i + plain.size() <= bytes; ++i) {
      found += std::memcmp(at + i, plain.data(), plain.size()) == 0 ? 1 : 0;
    }
    return found;
  }

 private:
  const std::array<char, 16> inverted_;
};

TEST_F(WipingTest, TheProcessSaysThatItWipes) {
  EXPECT_TRUE(ProcessWipes());
  const ScopedFault off(Fault::kFreedMemoryKept);
  EXPECT_FALSE(ProcessWipes());
}

// Reads a freed block through a pipe, so that nobody touches it.
size_t LeftAt(const Mark& mark, const void* freed, size_t bytes) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return 0;
  static std::array<char, 4096> copy{};
  const ssize_t written = write(ends[1], freed, std::min(bytes, copy.size()));
  const ssize_t got = written > 0 ? read(ends[0], copy.data(), copy.size()) : 0;
  close(ends[0]);
  close(ends[1]);
  return got <= 0 ? 0 : mark.NumLeft(copy.data(), static_cast<size_t>(got));
}

void* Marked(const Mark& mark, size_t bytes, size_t at) {
  char* const block = static_cast<char*>(std::malloc(bytes));
  mark.WriteTo(block + at);
  asm volatile("" : : "r"(block) : "memory");
  return block;
}

TEST_F(WipingTest, EveryWayToGiveBackMemoryZeroesIt) {
  const Mark mark;
  const auto by_free = [](void* block) { std::free(block); };
  const auto by_growing = [](void* block) { std::free(std::realloc(block, 100'000)); };
  const auto by_shrinking = [](void* block) { std::free(std::realloc(block, 16)); };
  const auto by_array = [](void* block) { std::free(reallocarray(block, 100, 1000)); };
  const auto by_nothing = [](void* block) { EXPECT_EQ(std::realloc(block, 0), nullptr); };
  const auto by_delete = [](void* block) { operator delete(block); };
  int way = 0;
  for (void (*const give_back)(void*) :
       {+by_free, +by_growing, +by_shrinking, +by_array, +by_nothing, +by_delete}) {
    for (const bool wipes : {true, false}) {
      SetFault(wipes ? std::nullopt : std::optional(Fault::kFreedMemoryKept));
      void* const block = Marked(mark, 2000, 1000);
      give_back(block);
      SetFault(std::nullopt);
      EXPECT_EQ(LeftAt(mark, block, 2000), wipes ? 0u : 1u) << "way " << way;
    }
    ++way;
  }
}

TEST_F(WipingTest, AShrunkBlockKeepsNothingBehindItsEnd) {
  const Mark mark;
  void* const block = Marked(mark, 2000, 1500);
  void* const shrunk = std::realloc(block, 1400);
  ASSERT_EQ(shrunk, block);  // it is not moved for so little
  EXPECT_EQ(mark.NumLeft(shrunk, malloc_usable_size(shrunk)), 0u);
  std::free(shrunk);
}

TEST_F(WipingTest, AGrownBlockKeepsItsBytes) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text.push_back(static_cast<char>('a' + i % 26));
  char* block = static_cast<char*>(std::malloc(10));
  size_t held = 0;
  for (const size_t bytes : {10, 100, 90, 1000, 3000, 5000}) {
    block = static_cast<char*>(std::realloc(block, bytes));
    EXPECT_EQ(std::memcmp(block, text.data(), std::min(held, bytes)), 0) << bytes;
    std::memcpy(block, text.data(), bytes);
    held = bytes;
  }
  std::free(block);
}

// Where it wrote, deep in a stack that is dead when this returns.
__attribute__((noinline)) uintptr_t DirtyStack(const Mark& mark) {
  std::array<char, 20'000> frame{};
  mark.WriteTo(frame.data() + 10'000);
  asm volatile("" : : "r"(frame.data()) : "memory");
  return reinterpret_cast<uintptr_t>(frame.data() + 10'000);
}

// A thread that dirties its stack and waits; `wipe` runs meanwhile.
size_t LeftOnAWaitingThread(const Mark& mark, const std::function<void()>& wipe) {
  std::mutex mutex;
  std::condition_variable changed;
  uintptr_t dirty = 0;
  bool done = false;
  std::thread waiting([&] {
    const uintptr_t where = DirtyStack(mark);
    std::unique_lock<std::mutex> lock(mutex);
    dirty = where;
    changed.notify_all();
    changed.wait(lock, [&] { return done; });
  });
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return dirty != 0; });
  }
  wipe();
  const size_t left = LeftAt(mark, reinterpret_cast<const void*>(dirty), 16);
  {
    std::unique_lock<std::mutex> lock(mutex);
    done = true;
  }
  changed.notify_all();
  waiting.join();
  return left;
}

TEST_F(WipingTest, AWaitingThreadsDeadStackIsWiped) {
  const Mark mark;
  EXPECT_EQ(LeftOnAWaitingThread(mark, [] {}), 1u);  // the method sees it
  EXPECT_EQ(LeftOnAWaitingThread(mark, [] { EXPECT_TRUE(WipeDeadStacks().ok()); }), 0u);
}

// Every call that erases, and no other, wipes the stacks of all threads before it is answered.
TEST_F(WipingTest, AForgetWipesTheStacksOfAllThreads) {
  const Mark mark;
  TestServer server;
  Context create_context;
  v1::CreateSessionResponse created;
  ASSERT_RPC_OK(server.stubs->session->CreateSession(&create_context, {}, &created));
  const auto append = [&] {
    Context context;
    v1::AppendRequest request;
    request.set_session_id(created.session().session_id());
    request.mutable_input()->set_text("text");
    request.set_subject("label");
    v1::AppendResponse response;
    EXPECT_TRUE(server.stubs->session->Append(&context, request, &response).ok());
  };
  const auto forget = [&] {
    Context context;
    v1::ForgetRequest request;
    request.set_session_id(created.session().session_id());
    request.mutable_selection()->set_subject("label");
    request.set_derived_policy(v1::DERIVED_POLICY_FAIL);
    v1::ForgetResponse response;
    EXPECT_TRUE(server.stubs->forgetting->Forget(&context, request, &response).ok());
  };
  EXPECT_EQ(LeftOnAWaitingThread(mark, append), 1u);
  EXPECT_EQ(LeftOnAWaitingThread(mark, forget), 0u);
  append();
  const ScopedFault fault(Fault::kDeadStacksKept);
  EXPECT_EQ(LeftOnAWaitingThread(mark, forget), 1u);
}

// Its bytes could not be wiped once they are read.
TEST_F(WipingTest, ACompressedRequestIsRefused) {
  TestServer server;
  Context context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::TokenizeRequest request;
  request.set_text(std::string(5000, 'x'));
  v1::TokenizeResponse response;
  EXPECT_EQ(server.stubs->model->Tokenize(&context, request, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(WipingTest, TheCallersOwnDeadStackIsWiped) {
  const Mark mark;
  uintptr_t dirty = DirtyStack(mark);
  EXPECT_EQ(LeftAt(mark, reinterpret_cast<const void*>(dirty), 16), 1u);
  dirty = DirtyStack(mark);
  EXPECT_TRUE(WipeDeadStacks().ok());
  EXPECT_EQ(LeftAt(mark, reinterpret_cast<const void*>(dirty), 16), 0u);
}

// memcpy leaves what it copied there, and a signal brings that into memory.
TEST_F(WipingTest, TheCallersVectorRegistersAreZeroed) {
  if (__builtin_cpu_supports("avx512f") == 0) {
    GTEST_SKIP() << "skipped because this processor has no AVX-512";
  }
  const auto left_after_wipe = [] {
    alignas(64) std::array<char, 64> bytes{};
    bytes.fill('x');
    asm volatile("vmovdqu64 %0, %%zmm17" ::"m"(bytes));
    WipeOwnDeadStack();
    asm volatile("vmovdqu64 %%zmm17, %0" : "=m"(bytes));
    return std::string(bytes.begin(), bytes.end());
  };
  EXPECT_EQ(left_after_wipe(), std::string(64, '\0'));
  const ScopedFault fault(Fault::kDeadStacksKept);
  EXPECT_EQ(left_after_wipe(), std::string(64, 'x'));
}

TEST_F(WipingTest, AnEndedThreadsStackIsWiped) {
  const Mark mark;
  for (const bool wipes : {true, false}) {
    SetFault(wipes ? std::nullopt : std::optional(Fault::kDeadStacksKept));
    uintptr_t dirty = 0;
    // Not so deep that the C library itself gives the page back (it keeps the last 16 KiB), and deeper than what
    // the thread's end needs.
    std::thread([&] {
      std::array<char, 6000> frame{};
      mark.WriteTo(frame.data());
      dirty = reinterpret_cast<uintptr_t>(frame.data());
      asm volatile("" : : "r"(frame.data()) : "memory");
    }).join();
    SetFault(std::nullopt);
    EXPECT_EQ(LeftAt(mark, reinterpret_cast<const void*>(dirty), 16), wipes ? 0u : 1u);
  }
}

// Threads come, go and compute while stacks are wiped: nobody loses anything that is alive.
TEST_F(WipingTest, LivingFramesAreLeftAlone) {
  std::atomic<bool> stop{false};
  std::atomic<int> num_wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        std::array<uint64_t, 512> frame{};
        for (size_t i = 0; i < frame.size(); ++i) frame[i] = i * 77 + static_cast<uint64_t>(t);
        std::thread([&] { frame[3] += 1; }).join();
        frame[3] -= 1;
        for (size_t i = 0; i < frame.size(); ++i) {
          if (frame[i] != i * 77 + static_cast<uint64_t>(t)) ++num_wrong;
        }
      }
    });
  }
  for (int round = 0; round < 200; ++round) ASSERT_TRUE(WipeDeadStacks().ok());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
}

}  // namespace
}  // namespace lethe::testing
