// Goal: trust files, keys, leaves, anchors, entry bundles, keyset statements and what a log asks of a witness, all from outside,
// never crash their readers, and what is accepted has one meaning and, where the format is canonical, one text.
// Method: parse, write, compare, or parse again what was written.
#include <string>
#include <vector>

#include "audit/certificate/keyset.h"
#include "audit/certificate/trust.h"
#include "audit/log/cosignature.h"
#include "audit/log/leaf.h"
#include "audit/log/log_anchor.h"
#include "audit/log/tiles.h"
#include "audit/witness/add_checkpoint.h"
#include "audit/witness/http.h"
#include "audit/witness/witness_client.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

void FuzzOneText(absl::string_view bytes) {
  if (const auto leaf = audit::ParseLogLeaf(bytes); leaf.ok()) {
    LETHE_CHECK(audit::WriteLogLeaf(*leaf) == bytes);
  }
  if (const auto witness = audit::ParseWitnessKey(bytes); witness.ok()) {
    LETHE_CHECK(audit::WriteWitnessKey(*witness) == bytes);
  }
  if (const auto entries = audit::ParseEntryBundle(bytes); entries.ok()) {
    const std::vector<std::string> copies(entries->begin(), entries->end());
    LETHE_CHECK(audit::WriteEntryBundle(copies) == bytes);
  }
  if (const auto request = audit::ParseAddCheckpoint(bytes); request.ok()) {
    LETHE_CHECK(audit::WriteAddCheckpoint(*request) == bytes);
  }
  if (const auto anchor = audit::ParseAnchorText(bytes); anchor.ok()) {
    LETHE_CHECK(audit::WriteAnchorText(*anchor) == bytes);
  }
  if (const auto keyset = audit::ParseKeyset(bytes); keyset.ok()) {
    const auto written = audit::WriteKeyset(*keyset);
    LETHE_CHECK(written.ok() && *written == bytes);
    LETHE_CHECK(audit::ClaimsToBeKeyset(bytes));
  }
}

}  // namespace

void FuzzLogFiles(absl::string_view bytes) {
  FuzzOneText(bytes);
  if (const auto trust = audit::ParseTrust(bytes); trust.ok()) {
    const std::string written = audit::WriteTrust(*trust);
    const auto again = audit::ParseTrust(written);
    LETHE_CHECK(again.ok() && audit::WriteTrust(*again) == written);
    LETHE_CHECK(again->record_keys.size() == trust->record_keys.size());
    LETHE_CHECK(again->log_keys.size() == trust->log_keys.size());
    LETHE_CHECK(again->witnesses.size() == trust->witnesses.size());
  }
  if (const auto url = audit::ParseHttpUrl(bytes); url.ok()) {
    LETHE_CHECK(url->port >= 1 && url->port <= 65'535 && !url->host.empty());
  }
  if (const auto target = audit::ParseWitnessTarget(bytes); target.ok()) {
    LETHE_CHECK(audit::ParseWitnessKey(audit::WriteWitnessKey(target->key)).ok());
  }
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzLogFiles)
