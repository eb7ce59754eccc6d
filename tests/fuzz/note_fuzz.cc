// Goal: notes, checkpoints and vkeys from outside never crash, and what is accepted has one text.
// Method: parse, write, compare.
#include "audit/log/checkpoint.h"
#include "audit/log/note.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {

void FuzzNote(absl::string_view bytes) {
  if (const auto note = audit::ParseNote(bytes); note.ok()) {
    LETHE_CHECK(audit::WriteNote(*note) == bytes);
    if (const auto checkpoint = audit::ParseCheckpointText(note->text); checkpoint.ok()) {
      LETHE_CHECK(audit::WriteCheckpointText(*checkpoint) == note->text);
    }
  }
  if (const auto vkey = audit::ParseVerifierKey(bytes); vkey.ok()) {
    LETHE_CHECK(audit::WriteVerifierKey(*vkey) == bytes);
  }
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzNote)
