// PipelinedSink: lets the next token be drawn while the last ones are being sent.
//
// Events go to another sink on a thread of this one's, in order. A delta is sent at once when the
// last one is kMinInterval ago; deltas that come sooner wait for that moment and are joined. So a
// slow model's tokens are not delayed, a fast one's cost few messages and few wake-ups of threads
// (on a virtual machine one costs as much as a quarter of a lethe-tiny token), and a slow client or
// connection gets larger messages.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the other sink outlives this one and is used by nobody else meanwhile.
// Rejects:   none.
// Effects:   an event returns true when it is queued; it blocks while kMaxWaitingTokens wait. false:
//            the other sink failed before; nothing more is passed on. The destructor waits for the
//            other sink's call in progress and drops what waits still.
// Numerics:  none.
// Threads:   one thread calls; the other sink is called from one other thread.
#ifndef LETHE_SERVER_GENERATION_PIPELINED_SINK_H_
#define LETHE_SERVER_GENERATION_PIPELINED_SINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "kernels/base/mutex.h"
#include "server/generation/generation_events.h"

namespace lethe {

class PipelinedSink final : public GenerateSink {
 public:
  // Few: what waits is taken back when the client goes away, and is text of the session in memory.
  static constexpr size_t kMaxWaitingTokens = 32;

  static constexpr std::chrono::milliseconds kMinInterval{5};

  explicit PipelinedSink(GenerateSink* sink);
  ~PipelinedSink() override;
  PipelinedSink(const PipelinedSink&) = delete;
  PipelinedSink& operator=(const PipelinedSink&) = delete;

  bool Started(const StartedEvent& event) override { return Push(event); }
  bool Delta(const DeltaEvent& event) override { return Push(event); }
  bool ForgetNotice(const ForgetNoticeEvent& event) override { return Push(event); }
  bool Progress(const ProgressEvent& event) override { return Push(event); }
  bool Finished(const FinishedEvent& event) override { return Push(event); }
  bool Flush() override;
  std::vector<uint64_t> UnsentTokens() override;

 private:
  using Event =
      std::variant<StartedEvent, DeltaEvent, ForgetNoticeEvent, ProgressEvent, FinishedEvent>;

  bool Push(Event event);
  void Work();
  void AwaitWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Send(const Event& event);
  size_t NumWaitingTokens() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  GenerateSink* const sink_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Event> waiting_ ABSL_GUARDED_BY(mutex_);
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  bool idle_ ABSL_GUARDED_BY(mutex_) = false;    // the thread waits for an event
  bool urgent_ ABSL_GUARDED_BY(mutex_) = false;  // what waits is not to be delayed
  std::chrono::steady_clock::time_point last_sent_ ABSL_GUARDED_BY(mutex_);
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> unsent_ ABSL_GUARDED_BY(mutex_);  // of the event that failed
  std::thread thread_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_PIPELINED_SINK_H_
