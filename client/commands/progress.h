// Progress: tells a waiting person on the error stream that work goes on, from two seconds on.
//
//   Progress progress(context.io(), "evaluating");
//   progress.Update("3 of 9 parts");   // optional, shown after the label
//   ...                                // the line is wiped when progress goes out of scope
//
// Equation:  none.
// Shapes:    none.
// Units:     seconds.
// Requires:  nothing else writes to the error stream meanwhile.
// Rejects:   nothing.
// Effects:   silent when the error stream is not a terminal.
// Numerics:  none.
// Threads:   compatible; a helper thread draws, and ends with the object.
#ifndef LETHE_CLIENT_COMMANDS_PROGRESS_H_
#define LETHE_CLIENT_COMMANDS_PROGRESS_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "client/commands/context.h"

namespace lethe::client {

class Progress {
 public:
  Progress(const Io& io, std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(std::string detail);

 private:
  void Draw();

  std::ostream& err_;
  const std::string label_;
  std::mutex mutex_;
  std::condition_variable stopped_changed_;
  std::string detail_;    // guarded by mutex_
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_PROGRESS_H_
