// lethe certify, lethe certificate get.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/certificate_files.h"
#include "client/commands/certify_call.h"
#include "client/commands/commands.h"
#include "client/commands/nonce.h"
#include "client/commands/option_checks.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct CertifyOptions {
  v1::CertifyRequest request;
  std::string directory;
  std::string nonce_hex;
};

struct GetOptions {
  v1::GetCertificateRequest request;
  std::string directory;
};

std::string Bound(bool has, double value) { return has ? FormatDouble(value) : "-"; }

void PrintHeads(Context& context, const v1::CertifyResponse& response) {
  if (response.heads().empty()) {
    return;
  }
  context.out() << "Support-vector heads; bounds on the distance from the exact optimum over the "
                   "retained keys:\n";
  RowTable table({"head", "keys", "margin", "error", "reserve", "kernel sum", "alpha", "rho",
                  "decision", "readout", "partition"});
  for (const v1::HeadBounds& head : response.heads()) {
    table.Add({head.head(), absl::StrCat(head.num_keys()), absl::StrCat(head.num_margin()),
               absl::StrCat(head.num_error()), absl::StrCat(head.num_reserve()),
               Bound(head.has_kernel_sum_bound(), head.kernel_sum_bound()),
               Bound(head.has_alpha_bound(), head.alpha_bound()),
               Bound(head.has_rho_bound(), head.rho_bound()),
               Bound(head.has_decision_bound(), head.decision_bound()),
               Bound(head.has_readout_bound(), head.readout_bound()),
               head.partition_proved() ? "proved" : "not proved"});
  }
  table.Print(context.out());
}

void PrintCertificate(Context& context, const v1::Certificate& certificate,
                      const std::string& directory, const std::vector<std::string>& files) {
  context.out() << "Certificate of session " << OneLine(certificate.ref().session_id()) << "\n";
  FieldTable table;
  table.Add("record",
            absl::StrCat("seq ", certificate.ref().seq(), " (", certificate.kind(), "), leaf ",
                         certificate.ref().leaf_index(), " of the audit log"));
  table.Add("files", absl::StrCat(directory, "/: ", absl::StrJoin(files, ", ")));
  if (certificate.opening().empty()) {
    table.Add("opening", "none: destroyed by a later Forget, or not for this credential");
  }
  table.Print(context.out());
}

absl::Status Certify(Context& context, CertifyOptions& options) {
  LETHE_ASSIGN_OR_RETURN(*options.request.mutable_nonce(), ParseNonce(options.nonce_hex));
  LETHE_ASSIGN_OR_RETURN(const CertifiedState state,
                         CertifyInto(context, options.request, options.directory));
  const v1::CertifyResponse& response = state.response;
  if (context.json()) {
    Json heads = Json::array();
    for (const v1::HeadBounds& head : response.heads()) {
      heads.push_back(MessageToJson(head));
    }
    context.PrintJson(Json{{"certificate", MessageToJson(response.certificate().ref())},
                           {"digest", MessageToJson(response.digest())},
                           {"heads", heads},
                           {"directory", options.directory},
                           {"files", state.files}});
    return absl::OkStatus();
  }
  PrintCertificate(context, response.certificate(), options.directory, state.files);
  PrintHeads(context, response);
  return absl::OkStatus();
}

absl::Status GetCertificate(Context& context, const GetOptions& options) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetCertificateResponse response,
                         client->GetCertificate(options.request));
  if (options.directory.empty()) {
    if (context.json()) {
      context.PrintJson(MessageToJson(response));
      return absl::OkStatus();
    }
    context.out() << response.certificate().envelope() << "\n" << std::flush;
    return absl::OkStatus();
  }
  LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                         WriteCertificate(options.directory, {.certificate = response.certificate(),
                                                              .bundle = response.bundle(),
                                                              .digest = ""}));
  if (context.json()) {
    context.PrintJson(Json{{"certificate", MessageToJson(response.certificate().ref())},
                           {"directory", options.directory},
                           {"files", files}});
  } else {
    PrintCertificate(context, response.certificate(), options.directory, files);
  }
  return absl::OkStatus();
}

}  // namespace

void AddCertifyCommands(CLI::App& app, Context& context) {
  CLI::App* certify = app.add_subcommand(
      "certify",
      "Sign a statement about the present state, with bounds, and fetch the certificate");
  const auto options = std::make_shared<CertifyOptions>();
  certify->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  certify
      ->add_option("--out", options->directory,
                   "Directory to write the certificate to; one that holds none yet")
      ->required();
  certify->add_flag_callback(
      "--bundle", [options] { options->request.set_include_bundle(true); },
      "Also the proof bundle (bundle.json). It is content: keys and values of every input");
  certify->add_option("--nonce", options->nonce_hex,
                      "16 to 32 bytes in hex, echoed in the signed statement");
  certify->add_option("--disclose-to", *options->request.mutable_disclose_to(),
                      "Also let the auditor of this name see the state's content; the record says "
                      "so for ever (docs/security.md)");
  certify->add_option("--request-id", *options->request.mutable_request_id(),
                      "A repeat with the same id returns the first answer");
  certify->footer("Example: lethe certify $S --out certificate --bundle");
  certify->callback([&context, options] { context.Finish(Certify(context, *options)); });

  CLI::App* certificate =
      app.add_subcommand("certificate", "Records of a session, again")->require_subcommand(1);
  certificate->footer("Example: lethe certificate get $S --seq 1 --out receipt");
  CLI::App* get =
      certificate->add_subcommand("get", "Fetch one record with a fresh inclusion proof");
  const auto get_options = std::make_shared<GetOptions>();
  get->add_option("SESSION", *get_options->request.mutable_session_id(), "Session id")->required();
  get->add_option_function<uint64_t>(
         "--seq", [get_options](uint64_t seq) { get_options->request.set_seq(seq); },
         "Sequence number in the session, from 1 (default: the newest)")
      ->check(WholeNumber(1));
  get->add_option("--out", get_options->directory,
                  "Directory to write to (default: print the envelope)");
  get->add_flag_callback(
      "--bundle", [get_options] { get_options->request.set_include_bundle(true); },
      "Also the proof bundle; only for the newest record, while the state is the certified one");
  get->footer("Example: lethe certificate get $S --seq 1 --out receipt");
  get->callback([&context, get_options] { context.Finish(GetCertificate(context, *get_options)); });
}

}  // namespace lethe::client
