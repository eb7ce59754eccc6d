#include "server/bench/kernel_peers.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lethe::bench {
namespace {

// As one word of a shell command.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

double Number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::string Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

absl::StatusOr<std::vector<KernelPeer>> MeasurePeers(std::string script, const std::string& filter,
                                                     int runs) {
  std::error_code error;
  if (script.empty()) {
    script =
        std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "kernel_peers.py";
  }
  if (!std::filesystem::exists(script, error)) {
    return absl::NotFoundError(absl::StrCat("--peers: there is no file ", script));
  }
  const std::string command =
      absl::StrCat("python3 ", Quoted(script), " --runs ", runs, " --filter ", Quoted(filter));
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("peers: no process could be started");
  std::string output;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.append(buffer, got);
  }
  if (pclose(pipe) != 0) {
    return absl::UnavailableError("peers: kernel_peers.py failed; its reason is above");
  }
  std::vector<KernelPeer> peers;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) continue;
    peers.push_back({Text(object, "kernel"), Text(object, "shape"), Text(object, "peer"),
                     Text(object, "dtype"), Number(object, "median_s"), Number(object, "min_s"),
                     Number(object, "max_s"), Number(object, "tokens_per_s"),
                     Number(object, "state_bytes_per_s"), std::move(line)});
  }
  return peers;
}

}  // namespace lethe::bench
