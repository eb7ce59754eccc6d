// GenerationPrinter: shows the events of a Generate stream as they come.
//
// Text goes to the output stream at once; notices and the summary go to the error stream. With --json
// each event is one line.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  events in the order of the stream; End once, after the last one.
// Rejects:   nothing.
// Effects:   on a terminal control characters of the text appear as "?"; elsewhere the bytes are exact.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_GENERATION_PRINTER_H_
#define LETHE_CLIENT_COMMANDS_GENERATION_PRINTER_H_

#include <string>

#include "client/commands/context.h"

#include "lethe/v1/generation.pb.h"

namespace lethe::client {

class GenerationPrinter {
 public:
  GenerationPrinter(Context& context, bool quiet) : context_(context), quiet_(quiet) {}

  void Print(const v1::GenerateResponse& event);
  // On the error stream, between two lines; nothing with --json.
  void Note(const std::string& text);
  void End();

 private:
  void PrintDelta(const v1::GenerationDelta& delta);
  void PrintFinished(const v1::GenerationFinished& finished);
  // Wipes the progress line, when one stands.
  void EndProgress();
  // Ends the line of text on the output stream, when one is open.
  void EndLine();

  Context& context_;
  const bool quiet_;
  uint64_t seed_ = 0;
  bool is_resumed_ = false;
  bool line_open_ = false;
  bool progress_shown_ = false;
  std::string logprob_lines_;
};

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_GENERATION_PRINTER_H_
