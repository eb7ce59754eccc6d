// KillClient: a client of a server that is killed and started again, which remembers what it was answered.
//
// Threads: compatible.
#ifndef LETHE_TESTS_CRASH_KILL_CLIENT_H_
#define LETHE_TESTS_CRASH_KILL_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"

namespace lethe::testing {

// Sizes of the vector session.
struct Sizes {
  int64_t num_inputs = 0;
  int64_t num_forgotten = 0;
  uint64_t num_records = 0;
  bool operator==(const Sizes& other) const {
    return num_inputs == other.num_inputs && num_forgotten == other.num_forgotten &&
           num_records == other.num_records;
  }
};

// A client that remembers what it was answered.
class KillClient {
 public:
  KillClient(std::string directory, uint64_t seed);

  // One life of the server: start, compare, calls until the kill.
  void Live();

  const std::string& complaint() const { return complaint_; }
  int64_t num_compared() const { return num_compared_; }
  int64_t num_answered() const { return num_answered_; }
  int64_t num_resumed() const { return num_resumed_; }  // behind a token that had arrived

 private:
  struct PendingCall {
    std::function<grpc::Status()> run;
    Sizes after;
  };

  void Complain(const std::string& text) {
    if (complaint_.empty()) complaint_ = text;
  }
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  void CreateSessions();
  std::string CreateModelSession(const std::string& request_id);  // empty: it failed
  bool StartSessionIfFull();
  void Compare();
  void CompareStream();
  void CheckNewestRecord();
  Sizes AskSizes();
  std::string AskDigest();
  // Runs the call, which may be a repeat.
  bool Finish(const PendingCall& call);
  PendingCall NextCall();
  PendingCall AppendCall(const std::string& label, int count);
  PendingCall ForgetCall(const std::string& label, int64_t count);
  PendingCall CertifyCall();
  grpc::Status Stream();
  // Adds what arrives to `got`; the first event goes to `started`.
  grpc::Status ReadStream(const v1::GenerateRequest& request, std::vector<v1::GeneratedToken>* got,
                          v1::GenerationStarted* started);
  void FinishStream();
  std::vector<int32_t> HistoryBefore(uint64_t token_id);

  const std::string directory_;
  std::mt19937_64 random_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Stubs> stubs_;
  std::string vector_id_;
  std::string model_id_;
  std::map<std::string, int64_t> labels_;        // inputs under each
  std::string empty_id_;                         // a session of the same model that is told nothing
  std::map<uint64_t, int32_t> delivered_;        // vocab_id by token_id
  std::unique_ptr<v1::GenerateRequest> broken_;  // the stream that the kill broke
  std::vector<v1::GeneratedToken> arrived_;      // of it
  Sizes answered_;
  std::string digest_;  // of that state; empty: not asked
  std::unique_ptr<PendingCall> pending_;
  int num_calls_ = 0;
  int num_model_sessions_ = 0;
  int64_t num_compared_ = 0;
  int64_t num_answered_ = 0;
  int64_t num_resumed_ = 0;
  std::string complaint_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_KILL_CLIENT_H_
