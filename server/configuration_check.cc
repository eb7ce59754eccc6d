#include "server/configuration_check.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/status_macros.h"
#include "server/metrics/metrics_server.h"
#include "server/rpc/listen_address.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

absl::Status TryListen(const std::string& text) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  if (!address.ok()) return address.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string host(absl::StripSuffix(absl::StripPrefix(address->host, "["), "]"));
  const std::string port = absl::StrCat(address->port);
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return absl::FailedPreconditionError("no such host");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  const bool bound =
      listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(listener, found->ai_addr, found->ai_addrlen) == 0 && listen(listener, 1) == 0;
  const int error = errno;
  if (listener >= 0) close(listener);
  return bound ? absl::OkStatus() : absl::FailedPreconditionError(std::strerror(error));
}

// A directory that is there and ours, or one that can be made.
absl::Status CheckDirectory(const std::string& path) {
  std::error_code error;
  fs::path place = fs::absolute(path).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  if (!fs::is_directory(place, error)) {
    return absl::FailedPreconditionError(absl::StrCat(place.string(), " is no directory"));
  }
  if (access(place.c_str(), R_OK | W_OK | X_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot write to ", place.string()));
  }
  return absl::OkStatus();
}

absl::Status Named(absl::string_view option, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(option, ": ", status.message()));
}

}  // namespace

absl::Status CheckConfiguration(const ServerOptions& options) {
  LETHE_RETURN_IF_ERROR(Named("--listen", TryListen(options.listen_address)));
  if (!options.metrics_address.empty()) {
    LETHE_RETURN_IF_ERROR(MetricsServer::Start(options.metrics_address).status());
  }
  LETHE_RETURN_IF_ERROR(Named("--data", CheckDirectory(options.data_directory)));
  if (!options.erasure_ledger.empty()) {
    LETHE_RETURN_IF_ERROR(Named("--erasure-ledger", CheckDirectory(options.erasure_ledger)));
  }
  const int64_t memory_mib = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) >> 20;
  if (options.resident_mib > memory_mib) {
    return absl::FailedPreconditionError(
        absl::StrCat("--resident-mib: want at most the machine's memory, ", memory_mib, " MiB"));
  }
  return absl::OkStatus();
}

}  // namespace lethe
