// SoakClient: one client of a server under load, with a session of its own, and what it knows must hold of it.
//
// What it tells the session holds its canaries (canary.h). It remembers what was answered: which texts were taken under
// which label, which labels were forgotten, which generated tokens arrived.
//
//   tests       Append (with deadlines, repeated until answered), Generate (to its end, cancelled, past its deadline, its connection
//               dropped and gone on with, with a Forget in the middle), Forget (by label or by ids, each policy), Certify, Export and
//               Import, listing, delete and create.
//   complaints  an error that is no documented refusal; text of another session or of a forgotten label; a text that was taken and is
//               not there; a delivered token that is not there; a state that is not that of a fresh session (contract C1).
//
// Requires:  log and server outlive the client.
// Threads:   compatible: one thread at a time.
#ifndef LETHE_TESTS_SOAK_SOAK_CLIENT_H_
#define LETHE_TESTS_SOAK_SOAK_CLIENT_H_

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/soak/soak_channel.h"
#include "tests/soak/soak_log.h"

namespace lethe::soak {

class SoakClient {
 public:
  // `address`: where the server listens. No two clients share `index`.
  SoakClient(const std::string& address, int64_t index, uint64_t seed, SoakLog* log);

  // One operation, drawn at random.
  void Step();
  // Compares the session with what is known of it; with_state: and its digest with a fresh session's.
  void Check(bool with_state);

 private:
  // What the server took under a label by Append.
  struct Told {
    std::string text;
    uint64_t first = 0;
    uint64_t end = 0;
  };
  enum class Ending { kWhole, kCancel, kDeadline, kDrop, kForget };
  struct Stream {
    uint64_t last_token_id = 0;
    bool noticed = false;  // a Forget
    Ending ending = Ending::kWhole;
    grpc::Status status;
  };

  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  std::string NewRequestId();
  bool Accept(const char* operation, const grpc::Status& status) {
    return log_->Accept(operation, status);
  }
  void Complain(const std::string& text);
  // Everything that a server says goes through it.
  void Scan(const char* where, absl::string_view bytes);

  void Create();
  void Delete();
  void Append();
  void Generate(Ending ending);
  Stream Read(const v1::GenerateRequest& request, Ending ending);
  void Arrive(const v1::GenerateResponse& event, Stream* stream);
  void GoOn(v1::GenerateRequest request, const Stream& broken);
  void Forget();
  void ForgetSome(std::string label, bool by_ids);  // a copy: told_ loses it
  void Certify();
  void Transfer();
  void List();
  std::vector<v1::Input> ListInputs(bool* complete);
  void CheckInputs(const std::vector<v1::Input>& inputs);
  void CheckState(const std::vector<v1::Input>& inputs);

  SoakLog* const log_;
  const int64_t index_;
  std::mt19937_64 random_;
  SoakChannel channel_;

  std::string session_id_;  // empty: none could be made
  int64_t owner_ = 0;       // of the session's canaries
  int64_t num_sessions_ = 0;
  int64_t num_requests_ = 0;
  int64_t num_labels_ = 0;
  bool is_full_ = false;
  std::map<std::string, Told> told_;  // by label
  std::set<std::string> forgotten_;   // labels
  struct Delivered {
    int32_t vocab_id = 0;
    Ending ending = Ending::kWhole;  // of its stream
  };
  std::map<uint64_t, Delivered> delivered_;
};

}  // namespace lethe::soak

#endif  // LETHE_TESTS_SOAK_SOAK_CLIENT_H_
