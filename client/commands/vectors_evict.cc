// lethe vectors evict: a certified selection. First the certificate that proves which keys are reserve, kept
// with its bundle; then they leave, with a record of their own.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/certify_call.h"
#include "client/commands/commands.h"
#include "client/commands/nonce.h"
#include "client/commands/progress.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/id_ranges.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct EvictOptions {
  v1::EvictReserveRequest request;
  std::string directory;
  std::string nonce_hex;

  std::string certify_directory() const { return absl::StrCat(directory, "/1-certify"); }
  std::string select_directory() const { return absl::StrCat(directory, "/2-select"); }
};

// What the server would refuse, before it signs a certificate that is not wanted then.
absl::Status CheckAllowsSelection(Client& client, const std::string& session_id) {
  v1::GetSessionRequest request;
  request.set_session_id(session_id);
  LETHE_ASSIGN_OR_RETURN(const v1::GetSessionResponse response, client.GetSession(request));
  if (response.session().vector_options().selection()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "only a vector session that was created with --selection gives its reserve away");
}

absl::StatusOr<v1::EvictReserveResponse> EvictCertified(Context& context, EvictOptions& options) {
  v1::CertifyRequest certify;
  certify.set_session_id(options.request.session_id());
  certify.set_include_bundle(true);
  LETHE_ASSIGN_OR_RETURN(const CertifiedState state,
                         CertifyInto(context, certify, options.certify_directory()));
  options.request.set_certified_seq(state.response.certificate().ref().seq());
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  const Progress progress(context.io(), "evicting");
  return client->EvictReserve(options.request);
}

absl::Status FetchRecord(Client& client, const EvictOptions& options,
                         const v1::CertificateRef& ref) {
  v1::GetCertificateRequest request;
  request.set_session_id(ref.session_id());
  request.set_seq(ref.seq());
  LETHE_ASSIGN_OR_RETURN(const v1::GetCertificateResponse response, client.GetCertificate(request));
  return WriteCertificate(options.select_directory(),
                          {.certificate = response.certificate(), .bundle = "", .digest = ""})
      .status();
}

void PrintEviction(Context& context, const EvictOptions& options,
                   const v1::EvictReserveResponse& receipt) {
  context.out() << "Evicted " << FormatCount(receipt.num_evicted(), "reserve key") << " of session "
                << OneLine(options.request.session_id()) << ".\n";
  FieldTable table;
  table.Add("token_ids evicted", FormatRanges(receipt.evicted()));
  table.Add("inputs retained", absl::StrCat(receipt.num_inputs()));
  table.Add("epoch", absl::StrCat(receipt.epoch(),
                                  ": reads are those of before while lethe session get shows it"));
  table.Add(
      "certificates",
      absl::StrCat(options.certify_directory(), ", seq ", receipt.certificate().seq() - 1, ", and ",
                   options.select_directory(), ", seq ", receipt.certificate().seq()));
  table.Print(context.out());
  context.out() << "Check both with: lethe verify " << options.select_directory()
                << " --trust trust.txt --previous " << options.certify_directory() << "\n"
                << std::flush;
}

absl::Status Evict(Context& context, EvictOptions& options) {
  LETHE_ASSIGN_OR_RETURN(*options.request.mutable_nonce(), ParseNonce(options.nonce_hex));
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_RETURN_IF_ERROR(CheckAllowsSelection(*client, options.request.session_id()));
  LETHE_RETURN_IF_ERROR(PrepareDirectory(options.select_directory()));
  const absl::StatusOr<v1::EvictReserveResponse> receipt = EvictCertified(context, options);
  if (!receipt.ok()) {
    if (options.request.certified_seq() != 0) {
      context.err() << "lethe: the certificate of the present state is in "
                    << options.certify_directory() << "\n";
    }
    return receipt.status();
  }
  const absl::Status fetched = FetchRecord(*client, options, receipt->certificate());
  if (!fetched.ok()) {
    context.err() << "lethe: the reserve was evicted, but its record is not in "
                  << options.select_directory() << "; lethe certificate get --seq "
                  << receipt->certificate().seq() << " fetches it\n";
    return fetched;
  }
  if (context.json()) {
    Json object = MessageToJson(*receipt);
    object["certify_directory"] = options.certify_directory();
    object["select_directory"] = options.select_directory();
    context.PrintJson(object);
  } else {
    PrintEviction(context, options, *receipt);
  }
  return absl::OkStatus();
}

}  // namespace

void AddVectorsEvictCommand(CLI::App& vectors, Context& context) {
  CLI::App* command = vectors.add_subcommand(
      "evict",
      "Let the reserve keys go, certified: they have no weight, so that reads stay what they are "
      "until the next change; after it they may differ from those of a session that kept them");
  const auto options = std::make_shared<EvictOptions>();
  command->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  command
      ->add_option("--out", options->directory,
                   "Directory for the certificate that proves the reserve (1-certify, with its "
                   "bundle, which is content) and the record of the eviction (2-select)")
      ->required();
  command->add_option("--nonce", options->nonce_hex,
                      "16 to 32 bytes in hex, echoed in the signed record of the eviction");
  command->footer("Example: lethe vectors evict $V --out selection");
  command->callback([&context, options] { context.Finish(Evict(context, *options)); });
}

}  // namespace lethe::client
