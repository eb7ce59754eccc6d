#include "server/generation/pipelined_sink.h"

#include <utility>

namespace lethe {
namespace {

void AddTokens(const DeltaEvent& delta, std::vector<uint64_t>* token_ids) {
  for (const GeneratedTokenEvent& token : delta.tokens) token_ids->push_back(token.token_id);
}

void Join(DeltaEvent&& from, DeltaEvent* to) {
  to->text += from.text;
  to->raw += from.raw;
  for (GeneratedTokenEvent& token : from.tokens) to->tokens.push_back(std::move(token));
}

}  // namespace

PipelinedSink::PipelinedSink(GenerateSink* sink) : sink_(sink), thread_([this] { Work(); }) {}

PipelinedSink::~PipelinedSink() {
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

size_t PipelinedSink::NumWaitingTokens() const {
  size_t count = 0;
  for (const Event& event : waiting_) {
    if (const auto* delta = std::get_if<DeltaEvent>(&event)) count += delta->tokens.size();
  }
  return count;
}

bool PipelinedSink::Push(Event event) {
  MutexLock lock(&mutex_);
  while (!failed_ && NumWaitingTokens() >= kMaxWaitingTokens) {
    urgent_ = true;
    changed_.SignalAll();
    changed_.Wait(&mutex_);
  }
  if (failed_) return false;
  auto* delta = std::get_if<DeltaEvent>(&event);
  auto* last = waiting_.empty() ? nullptr : std::get_if<DeltaEvent>(&waiting_.back());
  if (delta != nullptr && last != nullptr) {
    Join(std::move(*delta), last);
    return true;
  }
  waiting_.push_back(std::move(event));
  if (delta == nullptr) urgent_ = true;
  if (idle_ || delta == nullptr) changed_.SignalAll();
  return true;
}

bool PipelinedSink::Flush() {
  MutexLock lock(&mutex_);
  urgent_ = true;
  changed_.SignalAll();
  while (!failed_ && (sending_ || !waiting_.empty())) changed_.Wait(&mutex_);
  return !failed_;
}

std::vector<uint64_t> PipelinedSink::UnsentTokens() {
  MutexLock lock(&mutex_);
  std::vector<uint64_t> token_ids = unsent_;
  for (const Event& event : waiting_) {
    if (const auto* delta = std::get_if<DeltaEvent>(&event)) AddTokens(*delta, &token_ids);
  }
  return token_ids;
}

bool PipelinedSink::Send(const Event& event) {
  struct Visitor {
    GenerateSink* sink;
    bool operator()(const StartedEvent& e) const { return sink->Started(e); }
    bool operator()(const DeltaEvent& e) const { return sink->Delta(e); }
    bool operator()(const ForgetNoticeEvent& e) const { return sink->ForgetNotice(e); }
    bool operator()(const ProgressEvent& e) const { return sink->Progress(e); }
    bool operator()(const FinishedEvent& e) const { return sink->Finished(e); }
  };
  return std::visit(Visitor{sink_}, event);
}

// Until there is an event that may be sent now, or the end.
void PipelinedSink::AwaitWork() {
  while (!closing_) {
    const auto due = last_sent_ + kMinInterval;
    if (failed_ || waiting_.empty()) {
      idle_ = true;
      changed_.Wait(&mutex_);
      idle_ = false;
    } else if (urgent_ || std::chrono::steady_clock::now() >= due) {
      return;
    } else {
      changed_.WaitUntil(&mutex_, due);
    }
  }
}

void PipelinedSink::Work() {
  mutex_.Lock();
  while (true) {
    AwaitWork();
    if (closing_) break;
    const Event event = std::move(waiting_.front());
    waiting_.pop_front();
    if (waiting_.empty()) urgent_ = false;
    sending_ = true;
    mutex_.Unlock();
    const bool sent = Send(event);
    mutex_.Lock();
    sending_ = false;
    last_sent_ = std::chrono::steady_clock::now();
    if (!sent) {
      failed_ = true;
      if (const auto* delta = std::get_if<DeltaEvent>(&event)) AddTokens(*delta, &unsent_);
    }
    changed_.SignalAll();
  }
  mutex_.Unlock();
}

}  // namespace lethe
