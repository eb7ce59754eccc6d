// ErasureServer: a server program with faults and crash points that can be switched on, its files, and everything of it
// that may be looked at after a Forget.
//
// Threads: compatible.
#ifndef LETHE_TESTS_ERASURE_ERASURE_SERVER_H_
#define LETHE_TESTS_ERASURE_ERASURE_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/fault.h"
#include "tests/audit/temp_directory.h"
#include "tests/erasure/markers.h"
#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"

namespace lethe::testing {

inline constexpr char kBoundedModel[] = "bounded";
inline constexpr char kContextualModel[] = "contextual";

// Both have every memory kind, 4,096 tokens of history and a byte for a vocabulary id. The first forgets by replay, the
// second by evaluation.
inline constexpr uint64_t kErasureWeights = 11;
std::string ErasureModelConfig(const std::string& name);

class ErasureServer {
 public:
  // With the fault from its start, and further arguments.
  explicit ErasureServer(std::optional<Fault> fault = std::nullopt,
                         std::vector<std::string> arguments = {});

  void Start();
  void Kill() { program_->Kill(); }
  int Wait() { return program_->Wait(); }
  // The process ends when it passes the n-th crash point from now.
  void CrashAtPoint(int n) { Control(n); }
  void SetFault(std::optional<Fault> fault) {
    fault_ = fault;
    Control(0);
  }

  std::string CreateSession(const std::string& model);
  std::string CreateVectorSession();
  // Ids of the inputs.
  v1::TokenRange Append(const std::string& session, const std::string& text,
                        const std::string& label);
  v1::TokenRange AppendRows(const std::string& session, const std::vector<double>& keys,
                            const std::vector<double>& values, const std::string& label);
  std::string Generate(const std::string& session, const std::string& prompt,
                       const std::string& label, bool remember);
  grpc::Status ForgetSubject(const std::string& session, const std::string& label,
                             const std::string& request_id = "");
  grpc::Status ForgetRange(const std::string& session, const v1::TokenRange& range);
  grpc::Status Delete(const std::string& session);
  // A job over all sessions, which has ended; its summary is an answer.
  void ForgetEverywhere(const std::string& label);
  // The file of an export, under a key of zeros; its import as a new session.
  std::string Export(const std::string& session);
  std::string Import(const std::string& file);
  // The bytes of the state digest; an error's text without one.
  std::string Digest(const std::string& session);
  void Certify(const std::string& session);
  // Every answer about it that can be asked for, content and errors included.
  std::string RepliesAbout(const std::string& session);
  // Readouts for queries, which are content and enter no history.
  void Read(const std::string& session, const std::vector<double>& queries);
  // Answers so far may hold what is forgotten later.
  void DropSeen() { seen_.clear(); }

  // What it answered to Forgets and certifications, and answers now to whoever asks for everything, its metrics too.
  std::vector<Hit> ScanReplies(const Markers& markers);
  // The data directory, its neighbours, temporary files, standard error at level debug.
  std::vector<Hit> ScanFiles(const Markers& markers);
  // Up to a second until there are none: gRPC frees a call just after it was answered.
  std::vector<Hit> ScanMemory(const Markers& markers);

  // Until standard error has a match; false: it had none for 30 seconds.
  bool AwaitWord(const std::string& pattern) const;
  // What /proc says of it.
  std::string ProcessFile(const std::string& name) const {
    return audit::ReadFile("/proc/" + std::to_string(program_->process()) + "/" + name);
  }
  std::string data_path() const { return directory_.path() + "/data"; }
  Stubs& stubs() { return *stubs_; }

 private:
  void Control(int crash_point);
  grpc::Status Forget(const v1::ForgetRequest& request);

  audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  std::optional<Fault> fault_;
  const std::vector<std::string> arguments_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Stubs> stubs_;
  std::string metrics_address_;
  std::vector<std::string> sessions_;
  int num_requests_ = 0;
  std::string seen_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_ERASURE_ERASURE_SERVER_H_
