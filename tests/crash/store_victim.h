// StoreVictim: a process that changes three stored sessions until it is killed, and compares what it finds at its start with
// what the one before it had answered.
//
// Equation:  the store is as `now` says, or as `next` does while a change is under way; the log holds the change's
//            record exactly in the second case; keys that an answered change destroyed are gone.
// Shapes:    a Board lies in memory that the processes share.
// Units:     changes from 1.
// Requires:  one victim at a time on a directory and its board.
// Rejects:   Compare: DATA_LOSS: what is not as above. The others: what the store rejects.
// Effects:   none beyond directory and board.
// Numerics:  none.
// Threads:   one thread.
#ifndef LETHE_TESTS_CRASH_STORE_VICTIM_H_
#define LETHE_TESTS_CRASH_STORE_VICTIM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "server/journal/session_journal.h"
#include "server/store/data_directory.h"

namespace lethe::testing {

inline constexpr int kVictimSessions = 3;
inline constexpr uint32_t kVictimInputsMax = 160;
inline constexpr uint32_t kVictimMetaMax = 60;
inline constexpr size_t kVictimDeadKeysMax = 64;

// What a session holds, in memory that processes share.
struct SharedInput {
  uint64_t token_id;
  int32_t vocab_id;
  uint8_t kind;
  uint8_t derived;
  uint8_t label;
};
struct SharedSession {
  bool exists;
  uint64_t next_id;
  uint32_t num_inputs;
  SharedInput inputs[kVictimInputsMax + 32];
  uint32_t num_meta;
  uint64_t meta[kVictimMetaMax + 8];  // the changes that wrote them; the first is the snapshot
};
struct SharedModel {
  SharedSession sessions[kVictimSessions];
  uint64_t num_leaves;
};
struct Board {
  SharedModel now;   // as last answered, or found
  SharedModel next;  // as the change under way leads to
  std::atomic<bool> under_way;
  uint64_t change;        // its number
  bool change_is_record;  // goes with a leaf
  uint32_t num_dead_keys;
  char dead_keys[kVictimDeadKeysMax][32];  // of the last answered change
  std::atomic<uint64_t> num_checked;
  std::atomic<uint64_t> num_answered;
  char complaint[400];
};

// In this order: Start, Compare, then ChangeSomething until the end.
class StoreVictim {
 public:
  StoreVictim(std::string path, uint64_t seed, Board* board)
      : path_(std::move(path)), random_(seed), board_(board) {}

  absl::Status Start();
  absl::Status Compare();
  absl::Status ChangeSomething();

 private:
  struct Live {
    std::unique_ptr<SessionJournal> journal;
    Inputs inputs;
  };

  absl::Status ReadSession(int number, absl::Span<const StoredRow> rows);
  absl::Status Change(int index);
  absl::Status AddInputs(Live* live, SharedSession* next);
  absl::Status DrawTokens(Live* live, SharedSession* next);
  absl::Status Record(Live* live, SharedSession* next, int label);
  absl::Status Destroy(Live* live, SharedSession* next);
  void Announce(bool is_record);
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  // What the meta row of the present change says.
  std::string Body() const;

  const std::string path_;
  std::mt19937_64 random_;
  Board* const board_;
  std::unique_ptr<DataDirectory> data_;
  std::unique_ptr<SessionJournal> registry_;
  Live live_[kVictimSessions];
  SharedModel found_;  // in the directory
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_STORE_VICTIM_H_
