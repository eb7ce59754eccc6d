// lethe audit consistency: the log only grew. Two sizes, or signed heads that somebody kept.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/held_head.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/trust_file.h"

#include "audit/log/merkle_verify.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct ConsistencyArguments {
  std::string old_head;
  std::string new_head;
  std::string trust_path;
};

audit::Sha256Digest ToDigest(const std::string& bytes) {
  audit::Sha256Digest digest{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), digest.size()), digest.begin());
  return digest;
}

bool IsSize(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

absl::StatusOr<uint64_t> ParseSize(const std::string& text) {
  uint64_t size = 0;
  if (!absl::SimpleAtoi(text, &size) || size == 0 || text[0] == '0') {
    return absl::InvalidArgumentError("want a size of 1 or more in plain digits, or a file");
  }
  return size;
}

absl::StatusOr<v1::GetConsistencyProofResponse> FetchProof(Context& context, uint64_t old_size,
                                                           uint64_t new_size) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::GetConsistencyProofRequest request;
  request.set_first_size(old_size);
  request.set_second_size(new_size);
  return client->GetConsistencyProof(request);
}

absl::Status Verify(const audit::ConsistencyClaim& claim,
                    const v1::GetConsistencyProofResponse& response) {
  std::vector<audit::Sha256Digest> proof;
  for (const std::string& hash : response.hashes()) proof.push_back(ToDigest(hash));
  const absl::Status verified = audit::VerifyConsistency(claim, proof);
  return verified.ok()
             ? absl::OkStatus()
             : absl::DataLossError(absl::StrCat("the log is not consistent: ", verified.message()));
}

void Print(Context& context, const audit::ConsistencyClaim& claim,
           const v1::GetConsistencyProofResponse& response, bool verified, const char* advice) {
  const std::string old_root(audit::AsStringView(claim.old_root));
  const std::string new_root(audit::AsStringView(claim.new_root));
  if (context.json()) {
    Json object = MessageToJson(response);
    object["first_size"] = claim.old_size;
    object["consistent"] = verified;
    context.PrintJson(object);
  } else if (verified) {
    context.out() << "Consistent: the log of " << claim.new_size << " records extends the one of "
                  << claim.old_size << " (" << response.hashes_size()
                  << " hashes, checked here).\n  root at " << claim.old_size << "  "
                  << FormatHex(old_root) << "\n  root at " << claim.new_size << "  "
                  << FormatHex(new_root) << "\n"
                  << advice << std::flush;
  }
}

// Roots as the server names them: of use to somebody who compares them.
absl::Status CompareSizes(Context& context, const ConsistencyArguments& arguments) {
  LETHE_ASSIGN_OR_RETURN(const uint64_t old_size, ParseSize(arguments.old_head));
  uint64_t new_size = 0;
  if (!arguments.new_head.empty()) {
    LETHE_ASSIGN_OR_RETURN(new_size, ParseSize(arguments.new_head));
  }
  LETHE_ASSIGN_OR_RETURN(const v1::GetConsistencyProofResponse response,
                         FetchProof(context, old_size, new_size));
  const audit::ConsistencyClaim claim = {old_size, response.second_size(),
                                         ToDigest(response.first_root()),
                                         ToDigest(response.second_root())};
  const absl::Status verified = Verify(claim, response);
  Print(context, claim, response, verified.ok(),
        "Compare these roots with the checkpoints that you hold.\n");
  return verified;
}

// The new head: a file, or the newest one that the server shows.
absl::StatusOr<audit::Checkpoint> NewHead(Context& context, const ConsistencyArguments& arguments,
                                          const audit::TrustStore& trust) {
  if (!arguments.new_head.empty()) return ReadHeldHead(arguments.new_head, trust);
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetLogResponse log, client->GetLog(v1::GetLogRequest()));
  return OpenTrustedHead(log.checkpoint(), trust);
}

absl::Status CompareHeads(Context& context, const ConsistencyArguments& arguments) {
  LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust, ReadTrust(arguments.trust_path));
  LETHE_ASSIGN_OR_RETURN(const audit::Checkpoint old_head, ReadHeldHead(arguments.old_head, trust));
  LETHE_ASSIGN_OR_RETURN(const audit::Checkpoint new_head, NewHead(context, arguments, trust));
  if (old_head.origin != new_head.origin) {
    return absl::DataLossError(
        absl::StrCat("the heads are of two logs, ", old_head.origin, " and ", new_head.origin));
  }
  if (new_head.tree_size < old_head.tree_size) {
    return absl::DataLossError(absl::StrCat("the newer head covers ", new_head.tree_size,
                                            " records, the older one ", old_head.tree_size));
  }
  const audit::ConsistencyClaim claim = {old_head.tree_size, new_head.tree_size, old_head.root_hash,
                                         new_head.root_hash};
  v1::GetConsistencyProofResponse response;
  // Every log extends the empty one.
  absl::Status verified;
  if (claim.old_size > 0) {
    LETHE_ASSIGN_OR_RETURN(response, FetchProof(context, claim.old_size, claim.new_size));
    verified = Verify(claim, response);
  }
  Print(context, claim, response, verified.ok(), "Both heads are signed by the trusted log key.\n");
  return verified;
}

}  // namespace

void AddAuditConsistencyCommand(CLI::App& audit, Context& context) {
  CLI::App* command = audit.add_subcommand(
      "consistency", "Proof that the log only grew, of two sizes or from a head that you hold");
  const auto arguments = std::make_shared<ConsistencyArguments>();
  command
      ->add_option("OLD", arguments->old_head,
                   "Older size, or a file: a checkpoint, a proof.tlog, a certificate's directory")
      ->required();
  command->add_option("NEW", arguments->new_head,
                      "Newer size or file (default: the server's newest)");
  command
      ->add_option("--trust", arguments->trust_path,
                   "File with the log keys that you got out of band; needed with files")
      ->allow_extra_args(false);
  command->footer("Example: lethe audit consistency certificate --trust trust.txt");
  command->callback([&context, arguments] {
    const bool sizes =
        IsSize(arguments->old_head) && (arguments->new_head.empty() || IsSize(arguments->new_head));
    context.Finish(sizes ? CompareSizes(context, *arguments) : CompareHeads(context, *arguments));
  });
}

}  // namespace lethe::client
