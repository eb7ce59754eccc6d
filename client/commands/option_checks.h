// WholeNumber, RequireUtf8: what CLI11 does not check itself.
//
// CLI11 lets negative numbers wrap around into unsigned ones and reads 010 as octal.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   the command line, with a sentence that names the option and what it accepts and repeats
//            nothing of what was typed. WholeNumber: a sign, a leading zero, anything but digits, and
//            numbers outside its range. RequireUtf8: text that is not UTF-8.
// Effects:   RequireUtf8 adds the check to every option of `app` and of its commands whose text goes
//            into a `string` field of the API. Content may be any bytes.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_OPTION_CHECKS_H_
#define LETHE_CLIENT_COMMANDS_OPTION_CHECKS_H_

#include <cstdint>
#include <limits>

#include "CLI/CLI.hpp"

namespace lethe::client {

// The accepted range, ends included.
CLI::Validator WholeNumber(uint64_t min = 0, uint64_t max = std::numeric_limits<uint64_t>::max());
// For options that go into an int32 field; the server knows the narrower range.
CLI::Validator Int32FromZero();

void RequireUtf8(CLI::App& app);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_OPTION_CHECKS_H_
