// lethe forget.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/derived_policy.h"
#include "client/commands/nonce.h"
#include "client/commands/option_checks.h"
#include "client/commands/progress.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/request_parts.h"
#include "client/id_ranges.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct ForgetOptions {
  v1::ForgetRequest request;
  std::optional<std::string> ids;
  std::optional<std::string> range;
  std::optional<std::string> subject;
  std::optional<uint64_t> before;
  bool everything = false;
  std::string nonce_hex;
};

absl::Status FillSelection(const ForgetOptions& options, v1::ForgetSelection* selection) {
  const int num_given = (options.ids ? 1 : 0) + (options.range ? 1 : 0) +
                        (options.subject ? 1 : 0) + (options.before ? 1 : 0) +
                        (options.everything ? 1 : 0);
  if (num_given != 1) {
    return absl::InvalidArgumentError(
        "say what to forget with exactly one of --ids, --range, --subject, --before, --everything");
  }
  if (options.ids) {
    LETHE_ASSIGN_OR_RETURN(*selection->mutable_tokens(), ParseIds("--ids", *options.ids));
  } else if (options.range) {
    LETHE_ASSIGN_OR_RETURN(*selection->mutable_tokens()->add_ranges(),
                           ParseRange("--range", *options.range));
  } else if (options.subject) {
    selection->set_subject(*options.subject);
  } else if (options.before) {
    selection->set_before_token_id(*options.before);
  } else {
    selection->set_everything(true);
  }
  return absl::OkStatus();
}

std::string FormatEvaluated(const v1::ForgetResponse& receipt) {
  std::string text = absl::StrCat(receipt.num_reevaluated());
  if (receipt.num_replayed() > 0 || receipt.num_local_reevaluated() > 0) {
    absl::StrAppend(&text, " by the model, ", receipt.num_local_reevaluated(),
                    " by its local layers, ", receipt.num_replayed(), " replayed by its memories");
  }
  return text;
}

void PrintReceipt(Context& context, const v1::ForgetRequest& request,
                  const v1::ForgetResponse& receipt) {
  const bool dry_run = request.validate_only();
  context.out() << (dry_run ? "Would forget " : "Forgot ")
                << FormatCount(receipt.num_forgotten(), "input") << " of session "
                << OneLine(request.session_id()) << "."
                << (receipt.repeated_request() ? " (The receipt of an earlier request.)" : "")
                << "\n";
  FieldTable table;
  table.Add("token_ids forgotten", FormatRanges(receipt.forgotten()));
  table.Add("of them derived", FormatRanges(receipt.derived_forgotten()));
  table.Add("derived and kept", FormatRanges(receipt.derived_kept()));
  table.Add("first rank removed", absl::StrCat(receipt.first_rank()));
  table.Add("inputs retained", absl::StrCat(receipt.num_inputs()));
  table.Add("tokens evaluated again", FormatEvaluated(receipt));
  table.Add("snapshots destroyed", absl::StrCat(receipt.num_snapshots_destroyed()));
  std::map<std::string, int> methods;
  for (const v1::GroupMethod& method : receipt.methods()) {
    ++methods[absl::StrCat(method.method(), ", ", method.influence())];
  }
  for (const auto& [method, count] : methods) {
    table.Add("method", absl::StrCat(method, ": ", FormatCount(count, "memory group")));
  }
  if (receipt.has_digest_after()) {
    table.Add("state digest after", FormatHex(receipt.digest_after().sha256()));
  }
  if (receipt.has_certificate()) {
    table.Add("certificate", absl::StrCat("seq ", receipt.certificate().seq(), ", leaf ",
                                          receipt.certificate().leaf_index(), " of the audit log"));
  }
  if (!dry_run) {
    table.Add("time", FormatMicroseconds(receipt.duration_us()));
  }
  table.Print(context.out());
  if (dry_run) {
    context.out() << "Nothing was changed (--dry-run).\n" << std::flush;
  }
}

absl::Status Forget(Context& context, ForgetOptions& options) {
  LETHE_RETURN_IF_ERROR(FillSelection(options, options.request.mutable_selection()));
  LETHE_ASSIGN_OR_RETURN(*options.request.mutable_nonce(), ParseNonce(options.nonce_hex));
  if (!options.request.validate_only()) EnsureRequestId(options.request.mutable_request_id());
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  absl::StatusOr<v1::ForgetResponse> receipt = absl::UnknownError("");
  {
    const Progress progress(context.io(), "forgetting");
    receipt = client->Forget(options.request);
  }
  LETHE_RETURN_IF_ERROR(receipt.status());
  if (context.json()) {
    context.PrintJson(MessageToJson(*receipt));
  } else {
    PrintReceipt(context, options.request, *receipt);
  }
  return absl::OkStatus();
}

}  // namespace

void AddForgetCommand(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "forget", "Remove inputs, so that the session is one that never saw them; all or nothing");
  const auto options = std::make_shared<ForgetOptions>();
  command->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  command->add_option("--ids", options->ids, "token_ids: 1,2,5-9 (both ends included)");
  command->add_option("--range", options->range, "The token_ids A to B - 1, as A:B");
  command->add_option("--subject", options->subject, "Everything with this subject label");
  command->add_option("--before", options->before, "Everything before this token_id")
      ->check(WholeNumber());
  command->add_flag("--everything", options->everything, "The whole history");
  AddDerivedPolicy(*command, "change nothing", [options](v1::DerivedPolicy policy) {
    options->request.set_derived_policy(policy);
  });
  command->add_flag_callback(
      "--dry-run", [options] { options->request.set_validate_only(true); },
      "Check everything and say what would happen; change nothing");
  command
      ->add_option_function<std::string>(
          "--way",
          [options](const std::string& way) {
            options->request.set_way(way == "re-evaluation" ? v1::FORGET_WAY_REEVALUATION
                                                            : v1::FORGET_WAY_UNSPECIFIED);
          },
          "cheapest, or re-evaluation: let the model evaluate the rest of the history again even "
          "where that is not needed; the result is the same")
      ->check(CLI::IsMember({"cheapest", "re-evaluation"}));
  command->add_option("--nonce", options->nonce_hex,
                      "16 to 32 bytes in hex, echoed in the signed statement");
  command->add_option(
      "--request-id", *options->request.mutable_request_id(),
      "A repeat with the same id returns the same receipt (default: drawn at random)");
  command->footer("Example: lethe forget $S --subject patient-17 --derived forget");
  command->callback([&context, options] { context.Finish(Forget(context, *options)); });
}

}  // namespace lethe::client
