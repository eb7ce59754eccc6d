// CrashStory: what clients did to a server, step by step, the files it wrote meanwhile, and whether a directory that a
// crash left behind keeps the promises made until then.
//
// Equation:  after a crash the sessions are as the last answered step left them, or as the step under way would have:
//            digest, inputs, counters, certificates; the log holds exactly their records; a repeat of the step
//            under way, by its request_id, ends where the step would have; a stream leaves a prefix, of which a kill
//            drops no delivered token, until the next step is answered.
// Shapes:    moment k is after k answered steps.
// Units:     positions of DiskTrace.
// Requires:  FileCalls watches nothing else.
// Rejects:   none.
// Effects:   Check opens (and so changes) the directory that it is given.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_TESTS_CRASH_CRASH_STORY_H_
#define LETHE_TESTS_CRASH_CRASH_STORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"

#include "tests/crash/disk_trace.h"
#include "tests/server/durable_world.h"

namespace lethe::testing {

// On a directory of the caller's, under whatever origin its log has.
struct CrashWorld : DurableWorld {
  explicit CrashWorld(const std::string& data_path) : DurableWorld(data_path) { origin.clear(); }
};

struct WorldView {
  std::map<std::string, SessionView> sessions;  // by id
  uint64_t num_leaves = 0;
};

// What a step that is repeated on other ids and salts must bring about again.
struct WorldEssence {
  std::set<std::tuple<audit::Sha256Digest, std::vector<std::string>, int64_t, uint64_t>> sessions;
  uint64_t num_leaves = 0;
  bool operator==(const WorldEssence& other) const {
    return sessions == other.sessions && num_leaves == other.num_leaves;
  }
};
WorldEssence EssenceOf(const WorldView& view);
std::string Shortly(const WorldView& view);

struct StoryStep {
  std::string name;
  // Of an open world; run again it does nothing more (but a stream says that it is done).
  std::function<absl::Status(DurableWorld*)> run;
  bool is_stream = false;
};

// Sessions of both kinds are made, fed, certified, forgotten from, streamed into, started again, selected, deleted.
std::vector<StoryStep> WholeStory();

class CrashStory {
 public:
  // Plays the steps in a fresh directory.
  explicit CrashStory(const std::vector<StoryStep>& steps);

  const DiskTrace& trace() const { return *trace_; }
  // Where a crash is tried: before every sync, and right behind every answer.
  std::vector<size_t> Positions() const;
  // What is wrong with `directory`, in which a crash at `position` left its files. `killed`: the process died and the
  // machine did not. With `repeat` the client asks again.
  std::vector<std::string> Check(const std::string& directory, size_t position, bool killed,
                                 bool repeat) const;

 private:
  struct Moment {
    size_t position = 0;
    WorldView view;
    std::vector<std::string> destroyed_keys;  // until then
  };
  struct Delivery {
    size_t position = 0;
    size_t num_undelivered = 0;  // of the stream's tokens
  };

  size_t MomentBefore(size_t position) const;
  bool HasDelivered(const WorldView& view, size_t moment, size_t position) const;
  void CheckOpened(size_t position, bool killed, bool repeat, DurableWorld* world,
                   std::vector<std::string>* complaints) const;
  void CheckRepeat(size_t moment, DurableWorld* world, std::vector<std::string>* complaints) const;

  const std::vector<StoryStep> steps_;
  audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  std::unique_ptr<DiskTrace> trace_;
  std::vector<Moment> moments_;
  std::vector<Delivery> deliveries_;
};

WorldView ViewOf(DurableWorld* world);
// Whether `view`, of `world`, is `before` but for a session that has got a part of what `after` has more of.
bool IsBetween(const WorldView& view, const WorldView& before, const WorldView& after,
               DurableWorld* world);
// What is wrong with the store as such: sessions that do not come back, keys that open nothing, a frozen log.
std::vector<std::string> ComplaintsOf(DurableWorld* world);
// The 32 bytes of every key in the data key file.
std::vector<std::string> DataKeysIn(const std::string& data_path);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_CRASH_STORY_H_
