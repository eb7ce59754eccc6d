#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lethe::testing {
namespace {

namespace fs = std::filesystem;

bool Skipped(const std::string& path) {
  for (const char* folder : {"build", ".git", ".gpu", ".cache", "models", "tests/testdata"}) {
    if (path == folder || StartsWith(path, std::string(folder) + "/")) return true;
  }
  return path.find("__pycache__") != std::string::npos;
}

}  // namespace

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

std::vector<SourceFile> LoadSourceTree(const std::string& root) {
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string path = fs::relative(it->path(), root).generic_string();
    if (Skipped(path)) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    SourceFile file;
    file.path = path;
    std::ifstream stream(it->path(), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    file.text = text.str();
    std::istringstream split(file.text);
    for (std::string line; std::getline(split, line);) file.lines.push_back(line);
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

std::vector<std::string> Includes(const SourceFile& file) {
  std::vector<std::string> names;
  for (const std::string& line : file.lines) {
    if (!StartsWith(line, "#include ")) continue;
    const size_t begin = line.find_first_of("<\"");
    if (begin == std::string::npos) continue;
    const size_t end = line.find_first_of(">\"", begin + 1);
    if (end == std::string::npos) continue;
    names.push_back(line.substr(begin + 1, end - begin - 1));
  }
  return names;
}

}  // namespace lethe::testing
