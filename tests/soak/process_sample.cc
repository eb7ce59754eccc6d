#include "tests/soak/process_sample.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include <unistd.h>

namespace lethe::soak {
namespace {

std::filesystem::path ProcPath(pid_t process, const char* file) {
  return absl::StrCat("/proc/", process, "/", file);
}

}  // namespace

ProcessSample SampleProcess(pid_t process) {
  ProcessSample sample;
  int64_t num_pages = 0;
  std::ifstream(ProcPath(process, "statm")) >> num_pages >> num_pages;
  sample.resident_bytes = num_pages * sysconf(_SC_PAGESIZE);
  std::error_code error;
  const auto count = [&](const char* directory) {
    const std::filesystem::directory_iterator entries(ProcPath(process, directory), error);
    return error ? 0 : std::distance(begin(entries), end(entries));
  };
  sample.num_descriptors = count("fd");
  sample.num_threads = count("task");
  return sample;
}

std::string DescribeDescriptors(pid_t process) {
  std::map<std::string, int> counts;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(ProcPath(process, "fd"), error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    ++counts[target.substr(0, target.find('['))];
  }
  std::string text;
  for (const auto& [target, count] : counts) absl::StrAppend(&text, count, " ", target, ", ");
  return text;
}

}  // namespace lethe::soak
