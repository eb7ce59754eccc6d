// SessionKeeper: what a server does about its sessions while nobody asks: finds damage, lets the unused leave memory, and
// stores snapshots of their states.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the registry outlives the keeper.
// Rejects:   none.
// Effects:   first reads the inputs of every stored session once (CheckStoredSessions), a thousand a second at most; from
//            then on a sweep a second (SweepSessions). What left is said in the log, at most once a minute.
// Numerics:  none.
// Threads:   one of its own, from construction to destruction.
#ifndef LETHE_SERVER_SESSION_KEEPER_H_
#define LETHE_SERVER_SESSION_KEEPER_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/session_registry/resident_sessions.h"

namespace lethe {

class SessionKeeper {
 public:
  SessionKeeper(const ResidentOptions& options, const SessionRegistry* sessions);
  ~SessionKeeper();
  SessionKeeper(const SessionKeeper&) = delete;
  SessionKeeper& operator=(const SessionKeeper&) = delete;

 private:
  void Run();
  void Count(const SweepReport& report);
  // False when the keeper is to end.
  bool Wait(std::chrono::milliseconds time);

  const ResidentOptions options_;
  const SessionRegistry* const sessions_;
  SweepReport left_;  // since the last word of it
  std::chrono::steady_clock::time_point last_word_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_KEEPER_H_
