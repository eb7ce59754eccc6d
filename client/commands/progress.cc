#include "client/commands/progress.h"

#include <chrono>
#include <utility>

namespace lethe::client {
namespace {

constexpr std::chrono::seconds kQuietTime(2);
constexpr std::chrono::milliseconds kRedrawTime(500);
constexpr char kWipeLine[] = "\r\033[K";

}  // namespace

Progress::Progress(const Io& io, std::string label) : err_(io.err), label_(std::move(label)) {
  if (io.err_is_terminal) {
    thread_ = std::thread([this] { Draw(); });
  }
}

Progress::~Progress() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  stopped_changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Progress::Update(std::string detail) {
  const std::lock_guard<std::mutex> lock(mutex_);
  detail_ = std::move(detail);
}

void Progress::Draw() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_changed_.wait_for(lock, kQuietTime, [this] { return stopped_; })) {
    return;
  }
  do {
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
    err_ << kWipeLine << label_ << (detail_.empty() ? "" : ": ") << detail_ << " ... "
         << elapsed.count() << " s" << std::flush;
  } while (!stopped_changed_.wait_for(lock, kRedrawTime, [this] { return stopped_; }));
  err_ << kWipeLine << std::flush;
}

}  // namespace lethe::client
