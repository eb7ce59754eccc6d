// lethe-witness: a small witness of logs (C2SP tlog-witness), for a machine and an owner other than the log's.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "audit/crypto/ed25519.h"
#include "audit/log/cosignature.h"
#include "audit/log/note.h"
#include "audit/witness/http.h"
#include "audit/witness/witness.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

struct Options {
  std::string directory;
  std::string name;
  std::string listen = "127.0.0.1:7071";
  std::vector<std::string> logs;
};

absl::StatusOr<Ed25519PrivateKey> LoadOrCreateKey(const std::string& path) {
  absl::StatusOr<Ed25519PrivateKey> key = Ed25519PrivateKey::LoadPem(path);
  if (!absl::IsNotFound(key.status())) return key;
  Ed25519PrivateKey created = Ed25519PrivateKey::Generate();
  LETHE_RETURN_IF_ERROR(created.SavePem(path));
  return created;
}

absl::Status Run(const Options& options) {
  WitnessOptions witness_options;
  witness_options.directory = options.directory;
  witness_options.name = options.name;
  witness_options.now_s = [] { return static_cast<uint64_t>(std::time(nullptr)); };
  for (const std::string& log : options.logs) {
    LETHE_ASSIGN_OR_RETURN(VerifierKey vkey, ParseVerifierKey(log));
    witness_options.logs.push_back(std::move(vkey));
  }
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<DurableDirectory> keys,
                         DurableDirectory::Lock(options.directory + "/key", "lock", "witness"));
  LETHE_ASSIGN_OR_RETURN(Ed25519PrivateKey key,
                         LoadOrCreateKey(options.directory + "/key/witness.pem"));
  LETHE_ASSIGN_OR_RETURN(const WitnessKey public_key,
                         MakeWitnessKey(options.name, key.public_key()));
  witness_options.key = std::make_shared<const Ed25519PrivateKey>(std::move(key));
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<Witness> witness, Witness::Open(witness_options));
  LETHE_ASSIGN_OR_RETURN(const HttpUrl url, ParseHttpUrl("http://" + options.listen));
  LETHE_ASSIGN_OR_RETURN(const HttpListener listener, HttpListener::Listen(url.host, url.port));
  std::printf("lethe-witness listening on %s:%d\nwitness %s\n", url.host.c_str(), listener.port(),
              WriteWitnessKey(public_key).c_str());
  std::fflush(stdout);
  listener.Serve([&witness](const std::string& path, const std::string& body) {
    return witness->Handle(path, body);
  });
  return absl::UnavailableError("the listener failed");
}

}  // namespace
}  // namespace lethe::audit

int main(int argc, char** argv) {
  lethe::audit::Options options;
  CLI::App app{
      "lethe-witness: cosigns heads of audit logs, each only if it extends the one before.\n"
      "Its second line of output is for the auditors' trust files.",
      "lethe-witness"};
  app.add_option("--data", options.directory, "Directory for the key and the last heads")
      ->required();
  app.add_option("--name", options.name, "The witness's name: no space, no '+'")->required();
  app.add_option("--log", options.logs, "vkey of a log that it cosigns; may be given several times")
      ->required();
  app.add_option("--listen", options.listen,
                 "IPV4:PORT, plain HTTP: loopback, or behind a TLS proxy")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = lethe::audit::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lethe-witness: %s\n", std::string(status.message()).c_str());
  return 1;
}
