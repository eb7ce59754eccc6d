// DurableSink: stores drawn tokens before another sink sends them.
//
// It stands behind PipelinedSink, so that storing overlaps with drawing and happens once for all tokens that are sent
// together.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  sink and journal outlive it; a null journal stores nothing.
// Rejects:   none.
// Effects:   a delta whose tokens cannot be stored is not sent: false, as if the client were gone.
// Numerics:  none.
// Threads:   as the other sink.
#ifndef LETHE_SERVER_GENERATION_DURABLE_SINK_H_
#define LETHE_SERVER_GENERATION_DURABLE_SINK_H_

#include "server/generation/generation_events.h"
#include "server/journal/session_journal.h"

namespace lethe {

class DurableSink final : public GenerateSink {
 public:
  DurableSink(SessionJournal* journal, GenerateSink* sink) : journal_(journal), sink_(sink) {}

  bool Started(const StartedEvent& event) override { return sink_->Started(event); }
  bool Delta(const DeltaEvent& event) override;
  bool ForgetNotice(const ForgetNoticeEvent& event) override { return sink_->ForgetNotice(event); }
  bool Progress(const ProgressEvent& event) override { return sink_->Progress(event); }
  bool Finished(const FinishedEvent& event) override { return sink_->Finished(event); }

 private:
  SessionJournal* const journal_;
  GenerateSink* const sink_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_DURABLE_SINK_H_
