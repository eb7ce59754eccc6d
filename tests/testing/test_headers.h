// The headers that nearly every test includes, precompiled (cmake/lethe.cmake, lethe_test_headers). Tests include what
// they use all the same: with LETHE_JOIN_FILES off, as in the preset clang-release, nothing is precompiled.
// Threads: none.
#ifndef LETHE_TESTS_TESTING_TEST_HEADERS_H_
#define LETHE_TESTS_TESTING_TEST_HEADERS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // LETHE_TESTS_TESTING_TEST_HEADERS_H_
