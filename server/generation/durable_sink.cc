#include "server/generation/durable_sink.h"

#include "absl/strings/str_cat.h"

#include "server/diagnostics/log.h"

namespace lethe {

bool DurableSink::Delta(const DeltaEvent& event) {
  if (journal_ != nullptr && !event.tokens.empty()) {
    if (const absl::Status stored = journal_->FlushDrawn(); !stored.ok()) {
      LogError(absl::StrCat("a stream ends, its tokens cannot be stored: ", stored.message()));
      return false;
    }
  }
  return sink_->Delta(event);
}

}  // namespace lethe
