// LongRun, IsLongTest: rounds of a test under one seed each: one round in `tests/run`, as many as fit with `tests/run --long LABEL
// --minutes M`, going on from the seed behind the last one that was done.
//
//   for (LongRun run("power_loss"); run.Next();) { … run.seed() … run.Count("images", n); }
//
// Equation:  none.
// Shapes:    LETHE_LONG_DIRECTORY/NAME.seed holds the next seed.
// Units:     LETHE_LONG_SECONDS; unset: one round, seed 1.
// Requires:  suites of such tests are called …Rounds: tests/run shares the time among them.
// Rejects:   none.
// Effects:   Next saves the seed of the round that it starts; the destructor prints the counts and how long it took.
//            A round that a failed assertion cut short is run again by the next run.
// Numerics:  none.
// Threads:   one thread.
#ifndef LETHE_TESTS_TESTING_LONG_RUN_H_
#define LETHE_TESTS_TESTING_LONG_RUN_H_

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

namespace lethe::testing {

// `tests/run --long`: everything where CI takes a sample.
inline bool IsLongTest() {
  const char* const value = std::getenv("LETHE_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

class LongRun {
 public:
  explicit LongRun(const std::string& name) : name_(name) {
    const char* const seconds = std::getenv("LETHE_LONG_SECONDS");
    const char* const directory = std::getenv("LETHE_LONG_DIRECTORY");
    if (seconds == nullptr || directory == nullptr) return;
    seconds_ = std::atof(seconds);
    seed_file_ = std::string(directory) + "/" + name + ".seed";
    std::ifstream(seed_file_) >> next_seed_;
  }
  ~LongRun() {
    std::cout << name_ << ": " << num_rounds_ << " rounds to seed " << seed_ << " in "
              << static_cast<int64_t>(Elapsed()) << " s";
    for (const auto& [what, count] : counts_) std::cout << ", " << count << " " << what;
    std::cout << "\n";
  }
  LongRun(const LongRun&) = delete;
  LongRun& operator=(const LongRun&) = delete;

  // Whether there is to be another round.
  bool Next() {
    if (num_rounds_ > 0 && Elapsed() >= seconds_) {
      Save(next_seed_);
      return false;
    }
    seed_ = next_seed_++;
    ++num_rounds_;
    Save(seed_);
    return true;
  }
  uint64_t seed() const { return seed_; }
  void Count(const std::string& what, int64_t count) { counts_[what] += count; }

 private:
  using Clock = std::chrono::steady_clock;
  double Elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void Save(uint64_t seed) const {
    if (!seed_file_.empty()) std::ofstream(seed_file_) << seed << "\n";
  }

  const std::string name_;
  const Clock::time_point start_ = Clock::now();
  double seconds_ = 0;
  std::string seed_file_;
  uint64_t next_seed_ = 1;
  uint64_t seed_ = 0;
  int64_t num_rounds_ = 0;
  std::map<std::string, int64_t> counts_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_LONG_RUN_H_
