// ServerOptions, ParseOptions: the command line and configuration file of lethe-server.
//
// Equation:  none.
// Shapes:    none.
// Units:     named in each field.
// Requires:  none.
// Rejects:   ParseOptions prints help or a message that names the flag and its range, and returns
//            the exit code.
// Effects:   writes to standard output and standard error.
// Numerics:  none.
// Threads:   one thread.
#ifndef LETHE_SERVER_OPTIONS_H_
#define LETHE_SERVER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/device_options.h"
#include "server/diagnostics/log.h"
#include "server/identity_options.h"
#include "server/limits/limits.h"

namespace lethe {

struct ServerOptions {
  std::vector<std::string> model_directories;
  std::string data_directory = "lethe-data";
  std::string erasure_ledger;  // empty: beside the data directory
  std::string listen_address = "127.0.0.1:7070";
  std::string origin;  // empty: the log's own, or of a new log kDefaultOrigin (data_directory.h)
  std::vector<std::string> expected_checkpoints;  // paths
  bool adopt_log = false;
  std::vector<std::string> witnesses;  // <vkey>=http://HOST:PORT
  bool witness_required = true;
  // At most one; then the server changes the key and ends.
  bool rotate_record_key = false;
  std::string rotate_log_key;  // the new origin
  std::string restore_log;     // likewise
  int compute_threads = 1;
  DeviceOptions device;
  bool no_model = false;  // vector sessions only
  bool check = false;     // read what is stored, report, end
  int64_t max_sessions = 256;
  int64_t max_vectors = 65'536;
  int64_t stored_input_mib = 256;  // less where resident_mib is less than 4096
  int64_t resident_mib = 4096;     // at most half of the memory that this process may use
  int64_t idle_minutes = 30;
  int64_t snapshot_mib = 1024;
  int max_message_bytes = 8 << 20;
  int drain_seconds = 10;
  int keepalive_seconds = 60;
  int keepalive_timeout_seconds = 20;
  bool reflection = false;
  std::string metrics_address;  // empty: no metrics
  Limits limits;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  IdentityOptions identity;
};

// Nothing: run with *options. A number: exit with it (0 after --help, 2 for a usage error).
std::optional<int> ParseOptions(int argc, const char* const* argv, ServerOptions* options);

}  // namespace lethe

#endif  // LETHE_SERVER_OPTIONS_H_
