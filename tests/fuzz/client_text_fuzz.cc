// Goal: what a user writes or a file gives to `lethe`, and what a client gives the server to read as text, never crashes its
// reader, and what is accepted means one thing.
// Method: parse, write, parse, compare: inputs files, lists of ids, listen addresses.
#include <string>

#include "client/id_ranges.h"
#include "client/inputs_file.h"

#include "kernels/base/check.h"
#include "server/rpc/listen_address.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

void FuzzIds(absl::string_view text) {
  if (const auto range = client::ParseRange("--range", text); range.ok()) {
    LETHE_CHECK(range->first() < range->end());
  }
  client::ParseVocabIds("--ids", text).status().IgnoreError();
  const auto selection = client::ParseIds("--ids", text);
  if (!selection.ok()) return;
  for (const v1::TokenRange& range : selection->ranges()) LETHE_CHECK(range.first() < range.end());
  if (selection->ranges().empty()) return;
  const auto again = client::ParseIds("--ids", client::FormatRanges(selection->ranges()));
  LETHE_CHECK(again.ok());
}

}  // namespace

void FuzzClientText(absl::string_view bytes) {
  FuzzIds(bytes);
  if (const auto file = client::ParseInputsFile(bytes); file.ok()) {
    const std::string written = client::WriteInputsFile(*file);
    const auto again = client::ParseInputsFile(written);
    LETHE_CHECK(again.ok() && client::WriteInputsFile(*again) == written);
    LETHE_CHECK(again->num_inputs() == file->num_inputs());
  }
  if (const auto address = ParseListenAddress(std::string(bytes)); address.ok()) {
    LETHE_CHECK(!address->host.empty() && address->port >= 0 && address->port <= 65'535);
  }
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzClientText)
