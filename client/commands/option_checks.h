// WholeNumber, Number, CheckOptionTexts, CheckAddress, SplitEmptyValues: what CLI11 does not check.
//
// CLI11 lets negative numbers wrap around into unsigned ones, reads 010 as octal, and takes the next
// word as the value of `--option=`.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   the command line, with a sentence that names the option and what it accepts and repeats
//            nothing of what was typed. WholeNumber: a sign, a leading zero, anything but digits, and
//            numbers outside its range. Number: anything but a finite decimal number in its range.
//            CheckOptionTexts: text that is not UTF-8; an empty value where it would silently switch
//            a check, a file or a subject label off, as an unset variable of the shell does. CheckAddress: anything
//            but HOST:PORT with a port of 1 to 65535.
// Effects:   CheckOptionTexts adds UTF-8 checks to the options of `app` and of its commands whose
//            text goes into a `string` field of the API. Content may be any bytes.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_OPTION_CHECKS_H_
#define LETHE_CLIENT_COMMANDS_OPTION_CHECKS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lethe::client {

// The accepted range, ends included.
CLI::Validator WholeNumber(uint64_t min = 0, uint64_t max = std::numeric_limits<uint64_t>::max());
// For options that go into an int32 field; `max` names the upper end where only the server knows it.
CLI::Validator Int32FromZero(const std::string& max = "2147483647");
// `range` is the accepted range in words; what is outside min to max is refused here, the rest there.
CLI::Validator Number(const std::string& range, double min = std::numeric_limits<double>::lowest(),
                      double max = std::numeric_limits<double>::max());

void CheckOptionTexts(CLI::App& app);

absl::Status CheckAddress(absl::string_view option, const std::string& address);

// The words of a command line with `--option=` as the two words `--option` and "".
std::vector<std::string> SplitEmptyValues(const CLI::App& app,
                                          const std::vector<std::string>& arguments);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_OPTION_CHECKS_H_
