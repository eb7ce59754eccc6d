// lethe digest --explain: names the first part in which two state digests differ. No server needed.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/digest_file.h"
#include "client/commands/files.h"
#include "client/commands/report.h"

#include "audit/state/state_digest.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::StatusOr<DigestFile> Read(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  absl::StatusOr<DigestFile> file = ParseDigestFile(json);
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", file.status().message()));
  }
  return file;
}

absl::Status Explain(Context& context, const std::vector<std::string>& paths) {
  LETHE_ASSIGN_OR_RETURN(const DigestFile a, Read(paths[0]));
  LETHE_ASSIGN_OR_RETURN(const DigestFile b, Read(paths[1]));
  const std::string difference = audit::ExplainDifference(a.parts, b.parts);
  const bool equal = difference.empty();
  if (context.json()) {
    context.PrintJson(Json{{"equal", equal}, {"difference", difference}});
  } else if (equal) {
    context.out() << "Equal: " << FormatCount(static_cast<int64_t>(a.parts.size()), "part")
                  << ", one digest.\n"
                  << std::flush;
  } else {
    context.out() << "Different: " << difference << "\n" << std::flush;
  }
  return equal ? absl::OkStatus() : absl::DataLossError("the digests differ");
}

}  // namespace

void AddDigestCommand(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("digest", "Compare two state digests part by part, offline");
  const auto paths = std::make_shared<std::vector<std::string>>();
  command
      ->add_option("--explain", *paths,
                   "Two files that lethe session digest --parts --out wrote, or digest.json of two "
                   "certificates")
      ->expected(2)
      ->required();
  command->footer("Example: lethe digest --explain before.json after.json");
  command->callback([&context, paths] { context.Finish(Explain(context, *paths)); });
}

}  // namespace lethe::client
