// lethe sigma: the kernel width of the median rule, from a sample on this side. No server needed.
#include <memory>
#include <string>

#include "client/commands/commands.h"
#include "client/commands/option_checks.h"
#include "client/commands/report.h"
#include "client/commands/vector_calls.h"
#include "client/median_sigma.h"

#include "kernels/base/number_text.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// 64 MiB of distances.
constexpr uint64_t kRowsMax = 4096;

struct SigmaOptions {
  std::string path;
  int64_t rows = 1024;
};

absl::Status Sigma(Context& context, const SigmaOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const VectorMatrix sample, ReadVectors(context.io(), options.path));
  LETHE_ASSIGN_OR_RETURN(const MedianWidth width, MedianSigma(sample, options.rows));
  if (context.json()) {
    context.PrintJson(Json{{"sigma", width.sigma},
                           {"num_rows", width.num_rows},
                           {"num_rows_in_file", sample.num_rows},
                           {"num_columns", sample.num_columns}});
    return absl::OkStatus();
  }
  context.out() << NumberText(width.sigma) << "\n" << std::flush;
  context.err() << "lethe: from " << FormatCount(width.num_pairs, "pair") << " of "
                << FormatCount(width.num_rows, "row") << " (the file has " << sample.num_rows
                << ", of " << FormatCount(sample.num_columns, "number") << ")\n";
  return absl::OkStatus();
}

}  // namespace

void AddSigmaCommand(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "sigma",
      "The kernel width of the median rule, sigma^2 = median of |a - b|^2 over the pairs of a "
      "sample's rows. The sample must be other vectors than those that the session will hold: a "
      "width computed from these would keep a trace of each, also after it is forgotten");
  const auto options = std::make_shared<SigmaOptions>();
  command
      ->add_option("FILE", options->path,
                   "Sample, one vector a line, or .npy; - for standard input")
      ->required();
  command->add_option("--rows", options->rows, "Rows to take at most, evenly spread over the file")
      ->check(WholeNumber(2, kRowsMax))
      ->capture_default_str();
  command->footer("Example: lethe sigma last-year.csv");
  command->callback([&context, options] { context.Finish(Sigma(context, *options)); });
}

}  // namespace lethe::client
