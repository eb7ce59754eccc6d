// The headers that nearly every library includes, precompiled (cmake/lethe.cmake, lethe_headers). Files include what they use all
// the same: with LETHE_JOIN_FILES off, as in the preset clang-release, nothing is precompiled.
// Threads: none.
#ifndef LETHE_CMAKE_LIBRARY_HEADERS_H_
#define LETHE_CMAKE_LIBRARY_HEADERS_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

#endif  // LETHE_CMAKE_LIBRARY_HEADERS_H_
