// Goal: matrices come out of text and .npy files exactly; every refusal names the file, the place and
// what is accepted, and repeats nothing of the file; the median rule is that of its definition.
// Method: literal files, .npy bytes built here; the median by
// sorting all pairs.
#include "client/vector_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/median_sigma.h"
#include "gmock/gmock.h"

#include "tests/client/program_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::lethe::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string NpyWithHeader(const std::string& dictionary, const std::string& data, int major = 1) {
  std::string header = dictionary + "\n";
  std::string bytes = "\x93NUMPY";
  bytes.push_back(static_cast<char>(major));
  bytes.push_back('\0');
  for (size_t i = 0; i < (major == 1 ? 2u : 4u); ++i) {
    bytes.push_back(static_cast<char>(header.size() >> (8 * i)));
  }
  return bytes + header + data;
}

template <typename T>
std::string Bytes(const std::vector<T>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

std::string Npy(const std::string& descr, const std::string& shape, const std::string& data) {
  return NpyWithHeader(
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }"),
      data);
}

TEST(VectorTextTest, ReadsCommasBlanksCommentsAndBlankLines) {
  ASSERT_OK_AND_ASSIGN(const VectorMatrix matrix,
                       ParseVectors("f", "# x, y\n1, 2.5\r\n\n  -3e-2\t+4 # end\n5 , -0\n"));
  EXPECT_EQ(matrix.num_rows, 3);
  EXPECT_EQ(matrix.num_columns, 2);
  EXPECT_THAT(matrix.values, ElementsAre(1, 2.5, -0.03, 4, 5, 0));
  EXPECT_TRUE(std::signbit(matrix.values[5]));
  ASSERT_OK_AND_ASSIGN(const VectorMatrix one, ParseVectors("f", "\xef\xbb\xbf.5"));
  EXPECT_THAT(one.values, ElementsAre(0.5));
}

TEST(VectorTextTest, ReadsTheNearestDouble) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  std::string text;
  std::vector<double> numbers;
  for (int i = 0; i < 1000; ++i) {
    numbers.push_back(std::ldexp(normal(random), static_cast<int>(random() % 700) - 320));
    char word[40];
    std::snprintf(word, sizeof word, "%.17g\n", numbers.back());
    text += word;
  }
  ASSERT_OK_AND_ASSIGN(const VectorMatrix matrix, ParseVectors("f", text));
  EXPECT_EQ(matrix.values, numbers);
}

TEST(VectorTextTest, RefusalsNameThePlaceAndWhatIsAccepted) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& bad : std::vector<Case>{
           {"", "f: holds no numbers; want one row of numbers a line"},
           {"# only\n \n", "f: holds no numbers"},
           {"zelvim,y\n1,2\n", "f: line 1, column 1: want a decimal number"},
           {"1 2\n3 zelvim\n", "f: line 2, column 2: want a decimal number"},
           {"1,,2\n", "f: line 1, column 2: want a decimal number"},
           {",1\n", "f: line 1, column 1: want a decimal number"},
           {"1,2,\n", "f: line 1, column 3: want a decimal number"},
           {"1;2\n", "f: line 1, column 1: want a decimal number"},
           {"0x10\n", "f: line 1, column 1: want a decimal number"},
           {"1\nnan\n", "f: line 2, column 1: want a decimal number"},
           {"1 inf\n", "f: line 1, column 2: want a decimal number"},
           {"1e999\n", "f: line 1, column 1: want a number of at most 2^400 in magnitude"},
           {"1\n\n-3e120 \n", "f: line 3, column 1: want a number of at most 2^400"},
           {"1e5e5\n", "f: line 1, column 1: want a decimal number"},
           {"1 2\n\n1 2 3\n", "f: line 3: want 2 numbers like the first row, got 3"},
           {"1 2\n1\n", "f: line 2: want 2 numbers like the first row, got 1"}}) {
    const absl::Status status = ParseVectors("f", bad.text).status();
    EXPECT_THAT(status, StatusIs(kInvalid, bad.message)) << bad.text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("zelvim")));
  }
  EXPECT_THAT(ParseVectors("f", std::string("1\0", 2)), StatusIs(kInvalid, "line 1, column 1"));
}

TEST(VectorNpyTest, ReadsBothDtypesAndVersionsAndOneRow) {
  const std::vector<double> doubles = {1, -2.5, 0x1.fffffffffffffp-3, -0.0, 0x1p400, 5e-324};
  ASSERT_OK_AND_ASSIGN(const VectorMatrix f8,
                       ParseVectors("f", Npy("<f8", "(2, 3)", Bytes(doubles))));
  EXPECT_EQ(f8.num_rows, 2);
  EXPECT_EQ(f8.num_columns, 3);
  EXPECT_EQ(Bytes(f8.values), Bytes(doubles));
  const std::vector<float> floats = {0.1F, -3e38F};
  ASSERT_OK_AND_ASSIGN(const VectorMatrix f4,
                       ParseVectors("f", Npy("<f4", "(2, 1)", Bytes(floats))));
  EXPECT_EQ(f4.num_rows, 2);
  EXPECT_THAT(f4.values, ElementsAre(double{0.1F}, double{-3e38F}));
  ASSERT_OK_AND_ASSIGN(const VectorMatrix row,
                       ParseVectors("f", Npy("<f4", "(2,)", Bytes(floats))));
  EXPECT_EQ(row.num_rows, 1);
  EXPECT_EQ(row.num_columns, 2);
  // Any order of the keys, no comma at the end, version 2.
  ASSERT_OK(ParseVectors("f", NpyWithHeader("{'shape': (1,1), 'fortran_order':False,'descr':'<f4'}",
                                            Bytes(std::vector<float>{1}), 2)));
}

TEST(VectorNpyTest, RefusalsSayWhichPart) {
  const std::string two = Bytes(std::vector<double>{1, 2});
  const auto dictionary = [](const std::string& text) { return NpyWithHeader(text, ""); };
  struct Case {
    std::string bytes;
    std::string message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const Case& bad : std::vector<Case>{
           {Npy(">f8", "(1, 2)", two), "dtype: want '<f8' or '<f4'"},
           {Npy("<i8", "(1, 2)", two), "dtype: want"},
           {dictionary("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1, 2)}"),
            "dtype: want"},
           {dictionary("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2)}"), "C order"},
           {Npy("<f8", "(1, 2, 1)", two), "shape: want a 2-d array"},
           {Npy("<f8", "()", Bytes(std::vector<double>{1})), "shape: want a 2-d array"},
           {Npy("<f8", "(0, 2)", ""), "shape: the array is empty"},
           {Npy("<f8", "(3, 0)", ""), "shape: the array is empty"},
           {Npy("<f8", "(2, 2)", two), "want 32 bytes of data after the header, got 16"},
           {Npy("<f8", "(1, 1)", two), "want 8 bytes of data after the header, got 16"},
           {Npy("<f8", "(4294967296, 4294967296)", two), "want at most 134217728 numbers"},
           {Npy("<f8", "(9223372036854775807, 9)", two), "want at most 134217728 numbers"},
           {Npy("<f8", "(18446744073709551617,)", two), "damaged header"},
           {Npy("<f8", "(-1, 2)", two), "damaged header"},
           {Npy("<f8", "(1 2)", two), "damaged header"},
           {Npy("<f8", "(1, 2)", Bytes(std::vector<double>{1, nan})), "f: row 1, column 2: want a"},
           {Npy("<f8", "(2, 1)", Bytes(std::vector<double>{1, -inf})),
            "f: row 2, column 1: want a"},
           {NpyWithHeader("{}", "", 3), "version: want 1 or 2"},
           {dictionary("{'descr': '<f8', 'shape': (1, 2)}"), "damaged header"},
           {dictionary("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)} x"), "damaged"},
           {dictionary("{'descr': '<f8' 'fortran_order': False, 'shape': (1, 2)}"), "damaged"},
           {dictionary("{'other': '<f8', 'fortran_order': False, 'shape': (1, 2)}"), "damaged"},
           {std::string("\x93NUMPY"), "damaged header"},
           {std::string("\x93NUMPY\x01\0\xff\xff{", 11), "damaged header"}}) {
    const absl::Status status = ParseVectors("f", bad.bytes).status();
    EXPECT_THAT(status, StatusIs(kInvalid, bad.message));
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("f: "));
  }
}

double MedianBySorting(const VectorMatrix& sample) {
  std::vector<double> squares;
  for (int64_t i = 0; i < sample.num_rows; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < sample.num_columns; ++c) {
        const auto at = [&](int64_t row) {
          return sample.values[static_cast<size_t>(row * sample.num_columns + c)];
        };
        sum += (at(i) - at(j)) * (at(i) - at(j));
      }
      squares.push_back(sum);
    }
  }
  std::sort(squares.begin(), squares.end());
  const size_t half = squares.size() / 2;
  return squares.size() % 2 == 1 ? squares[half] : (squares[half - 1] + squares[half]) / 2;
}

VectorMatrix RandomSample(int64_t num_rows) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  VectorMatrix sample{.num_rows = num_rows, .num_columns = 3, .values = {}};
  for (int64_t i = 0; i < 3 * num_rows; ++i) sample.values.push_back(normal(random));
  return sample;
}

TEST(MedianSigmaTest, IsTheMedianOverPairs) {
  for (const int64_t num_rows : {2, 3, 4, 5, 30, 31}) {
    const VectorMatrix sample = RandomSample(num_rows);
    ASSERT_OK_AND_ASSIGN(const MedianWidth width, MedianSigma(sample, 1024));
    EXPECT_EQ(width.sigma, std::sqrt(MedianBySorting(sample))) << num_rows;
    EXPECT_EQ(width.num_pairs, num_rows * (num_rows - 1) / 2);
  }
}

TEST(MedianSigmaTest, TakesEvenlySpreadRowsOfALargeSample) {
  const VectorMatrix sample = RandomSample(100);
  VectorMatrix every_fourth{.num_rows = 25, .num_columns = 3, .values = {}};
  for (size_t row = 0; row < 100; row += 4) {
    for (size_t c = 0; c < 3; ++c) every_fourth.values.push_back(sample.values[row * 3 + c]);
  }
  ASSERT_OK_AND_ASSIGN(const MedianWidth width, MedianSigma(sample, 25));
  EXPECT_EQ(width.num_rows, 25);
  EXPECT_EQ(width.sigma, std::sqrt(MedianBySorting(every_fourth)));
}

TEST(MedianSigmaTest, RefusesWhatIsNoWidth) {
  EXPECT_THAT(MedianSigma(RandomSample(1), 10), StatusIs(kInvalid, "at least 2 rows"));
  const VectorMatrix equal{.num_rows = 4, .num_columns = 1, .values = {1, 1, 1, 1}};
  EXPECT_THAT(MedianSigma(equal, 10), StatusIs(kInvalid, "without repeats"));
  const VectorMatrix far{.num_rows = 2, .num_columns = 1, .values = {0, 0x1p21}};
  EXPECT_THAT(MedianSigma(far, 10), StatusIs(kInvalid, "2^-20 to 2^20"));
}

TEST(SigmaCommandTest, PrintsTheWidthAloneOnStandardOutput) {
  const ProgramRun run = RunLethe({"sigma", "-"}, "0 0\n3 4\n# end\n");
  EXPECT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_EQ(run.out, "5\n");
  EXPECT_THAT(run.err, HasSubstr("1 pair of 2 rows"));
  const ProgramRun json = RunLethe({"sigma", "-", "--rows", "2", "--json"}, "0\n8\n1\n9\n");
  EXPECT_EQ(json.out, "{\"sigma\":1.0,\"num_rows\":2,\"num_rows_in_file\":4,\"num_columns\":1}\n");
  const ProgramRun bad = RunLethe({"sigma", "-"}, "x y\n1 2\n");
  EXPECT_EQ(bad.exit_code, kExitUsage);
  EXPECT_THAT(bad.err, HasSubstr("standard input: line 1, column 1: want a decimal number"));
  EXPECT_THAT(RunLethe({"sigma", "--help"}).out, HasSubstr("after it is forgotten"));
}

}  // namespace
}  // namespace lethe::client
