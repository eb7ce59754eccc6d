#include "server/bench/report.h"

#include <algorithm>
#include <fstream>
#include <thread>

namespace lethe::bench {

double Samples::Median() const {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double Samples::Min() const { return *std::min_element(values.begin(), values.end()); }
double Samples::Max() const { return *std::max_element(values.begin(), values.end()); }

std::string MachineName() {
  std::string name = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  }
  return name + ", " + std::to_string(std::thread::hardware_concurrency()) + " processors";
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<int32_t> SampleText(int64_t num_bytes, uint64_t seed) {
  static constexpr const char* kWords[] = {
      "the",   "night",  "ward",  "was",    "quiet",   "and",     "nurse", "walked", "from",
      "room",  "to",     "with",  "a",      "lamp",    "while",   "rain",  "fell",   "on",
      "roofs", "of",     "town",  "she",    "wrote",   "every",   "name",  "in",     "book",
      "that",  "doctor", "would", "read",   "morning", "before",  "tea",   "came",   "up",
      "old",   "stairs", "he",    "asked",  "for",     "nothing", "more",  "than",   "letter",
      "which", "had",    "been",  "thirty", "years",   "late",    "again", "no",     "answer"};
  std::vector<int32_t> text;
  uint64_t state = seed;
  while (static_cast<int64_t>(text.size()) < num_bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;  // Knuth's MMIX generator
    const std::string word = kWords[(state >> 33) % (sizeof(kWords) / sizeof(kWords[0]))];
    for (const char c : word) text.push_back(static_cast<unsigned char>(c));
    text.push_back((state >> 60) == 0 ? '.' : ' ');
  }
  text.resize(static_cast<size_t>(num_bytes));
  return text;
}

}  // namespace lethe::bench
