// lethe vectors create | read | list.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/option_checks.h"
#include "client/commands/progress.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/vector_calls.h"
#include "client/commands/vector_text.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// Numbers of a readout that the table shows.
constexpr int kShownNumbers = 4;
// types.proto.
constexpr uint64_t kDimMax = 65536;

struct CreateOptions {
  v1::CreateVectorSessionRequest request;
  std::optional<double> c;
  std::optional<double> box_mass;
  std::optional<double> nu;
  std::optional<int64_t> reference_size;
  std::optional<double> ridge;
  bool id_only = false;
};

struct ReadOptions {
  std::string session_id;
  std::string path;
};

absl::Status FillBox(const CreateOptions& options, v1::VectorOptions* vectors) {
  const int num_given = (options.c ? 1 : 0) + (options.box_mass ? 1 : 0) + (options.nu ? 1 : 0);
  if (num_given != 1 || options.nu.has_value() != options.reference_size.has_value()) {
    return absl::InvalidArgumentError(
        "say how much weight one key may have with exactly one of --c, --box-mass, and --nu with "
        "--reference-size");
  }
  if (options.c) {
    vectors->set_c(*options.c);
  } else if (options.box_mass) {
    vectors->set_box_mass(*options.box_mass);
  } else {
    vectors->mutable_nu()->set_nu(*options.nu);
    vectors->mutable_nu()->set_reference_size(*options.reference_size);
  }
  return absl::OkStatus();
}

absl::Status Create(Context& context, CreateOptions& options) {
  v1::VectorOptions* vectors = options.request.mutable_options();
  LETHE_RETURN_IF_ERROR(FillBox(options, vectors));
  if (options.ridge) {
    vectors->set_ridge(*options.ridge);
  }
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::CreateVectorSessionResponse response,
                         client->CreateVectorSession(options.request));
  const v1::Session& session = response.session();
  if (context.json()) {
    context.PrintJson(MessageToJson(session));
  } else if (options.id_only) {
    context.out() << session.session_id() << "\n" << std::flush;
  } else {
    context.out() << "Created vector session " << OneLine(session.session_id()) << ".\n";
    FieldTable table;
    AddVectorFields(session.vector_options(), &table);
    table.Print(context.out());
  }
  return absl::OkStatus();
}

// The answer's numbers are where its sizes say: a server is not trusted with that.
absl::Status CheckReads(const v1::ReadResponse& reads, int64_t num_queries) {
  const v1::Matrix& readouts = reads.readouts();
  if (reads.decisions_size() == num_queries && readouts.num_columns() >= 0 &&
      readouts.values_size() == num_queries * readouts.num_columns()) {
    return absl::OkStatus();
  }
  return absl::DataLossError("the server's answer has other sizes than the queries");
}

absl::StatusOr<v1::ReadResponse> ReadAll(Context& context, const std::string& session_id,
                                         const VectorMatrix& queries) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::GetSessionRequest get;
  get.set_session_id(session_id);
  LETHE_ASSIGN_OR_RETURN(const v1::GetSessionResponse session, client->GetSession(get));
  const int64_t rows_per_call = RowsPerCall(
      std::max<int64_t>(queries.num_columns, session.session().vector_options().value_dim() + 1));
  Progress progress(context.io(), "reading");
  v1::ReadRequest request;
  request.set_session_id(session_id);
  v1::ReadResponse all;
  for (int64_t first = 0; first < queries.num_rows; first += rows_per_call) {
    const int64_t count = std::min(rows_per_call, queries.num_rows - first);
    SetRows(queries, first, count, request.mutable_queries());
    LETHE_ASSIGN_OR_RETURN(const v1::ReadResponse response, client->Read(request));
    all.mutable_decisions()->MergeFrom(response.decisions());
    if (response.has_readouts()) {
      all.mutable_readouts()->set_num_columns(response.readouts().num_columns());
      all.mutable_readouts()->mutable_values()->MergeFrom(response.readouts().values());
    }
    progress.Update(absl::StrCat(first + count, " of ", queries.num_rows, " queries"));
  }
  LETHE_RETURN_IF_ERROR(CheckReads(all, queries.num_rows));
  return all;
}

// The readout of a query, without numbers where the session has no values.
std::vector<double> ReadoutOf(const v1::ReadResponse& reads, int row) {
  const auto width = static_cast<std::ptrdiff_t>(reads.readouts().num_columns());
  const auto begin = reads.readouts().values().begin() + row * width;
  return {begin, begin + width};
}

void PrintReads(Context& context, const v1::ReadResponse& reads) {
  RowTable table({"query", "decision", "side", "readout"});
  int64_t num_inside = 0;
  for (int row = 0; row < reads.decisions_size(); ++row) {
    const bool inside = reads.decisions(row) >= 0;
    num_inside += inside ? 1 : 0;
    const std::vector<double> readout = ReadoutOf(reads, row);
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(readout.size(), kShownNumbers); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : " ", FormatDouble(readout[i]));
    }
    if (readout.size() > kShownNumbers) {
      absl::StrAppend(&text, " and ", readout.size() - kShownNumbers, " more");
    }
    table.Add({absl::StrCat(row + 1), FormatDouble(reads.decisions(row)),
               inside ? "inside" : "outside", text});
  }
  table.Print(context.out());
  context.out() << num_inside << " of "
                << (reads.decisions_size() == 1 ? "1 query"
                                                : absl::StrCat(reads.decisions_size(), " queries"))
                << " inside (decision 0 or above).\n"
                << std::flush;
}

absl::Status Read(Context& context, const ReadOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const VectorMatrix queries, ReadVectors(context.io(), options.path));
  LETHE_ASSIGN_OR_RETURN(const v1::ReadResponse reads,
                         ReadAll(context, options.session_id, queries));
  if (!context.json()) {
    PrintReads(context, reads);
    return absl::OkStatus();
  }
  Json list = Json::array();
  for (int row = 0; row < reads.decisions_size(); ++row) {
    list.push_back(Json{{"decision", reads.decisions(row)},
                        {"inside", reads.decisions(row) >= 0},
                        {"readout", ReadoutOf(reads, row)}});
  }
  context.PrintJson(Json{{"reads", list}});
  return absl::OkStatus();
}

absl::Status List(Context& context, const std::string& session_id) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  return ListAllVectors(*client, session_id, [&](const v1::ListVectorsResponse& page) {
    for (const v1::VectorRow& row : page.rows()) {
      context.PrintJson(MessageToJson(row));
    }
    return context.out().good() ? absl::OkStatus() : OutputError();
  });
}

void AddCreate(CLI::App& vectors, Context& context) {
  CLI::App* command = vectors.add_subcommand("create", "Create an empty vector session");
  const auto options = std::make_shared<CreateOptions>();
  v1::VectorOptions* const vector_options = options->request.mutable_options();
  command
      ->add_option_function<int32_t>(
          "--key-dim", [vector_options](int32_t dim) { vector_options->set_key_dim(dim); },
          "Numbers of a key")
      ->check(WholeNumber(1, kDimMax))
      ->required();
  command
      ->add_option_function<int32_t>(
          "--value-dim", [vector_options](int32_t dim) { vector_options->set_value_dim(dim); },
          "Numbers of a value (default 0: keys alone)")
      ->check(WholeNumber(0, kDimMax));
  command
      ->add_option_function<double>(
          "--sigma", [vector_options](double sigma) { vector_options->set_sigma(sigma); },
          "Kernel width: exp(-|a - b|^2 / sigma^2). From a sample that is not the session (lethe "
          "sigma), for it outlives every Forget")
      ->check(Number("from 2^-20 to 2^20"))
      ->required();
  command->add_option("--c", options->c, "Most weight that one key may have, of 1 in all")
      ->check(Number("from 1/65536 to 1"));
  command->add_option("--box-mass", options->box_mass, "The same as 1/C")
      ->check(Number("from 1 to 65536"));
  command
      ->add_option("--nu", options->nu,
                   "The same as C = 1 / (nu n0): of n0 keys about the share nu may lie outside")
      ->check(Number("above 0, at most 1"));
  command->add_option("--reference-size", options->reference_size, "n0, with --nu")
      ->check(WholeNumber(1, std::numeric_limits<int64_t>::max()));
  command->add_option("--ridge", options->ridge, "Added to the kernel's diagonal (default 2^-11)")
      ->check(Number("from 1e-8 to 1"));
  command->add_flag_callback(
      "--selection", [vector_options] { vector_options->set_selection(true); },
      "Allow lethe vectors evict in this session");
  command->add_option("--name", *options->request.mutable_display_name(),
                      "Display name, shown in lists; no personal data here");
  command->add_option("--request-id", *options->request.mutable_request_id(),
                      "A repeat with the same id returns the first answer");
  command->add_flag("--id-only", options->id_only, "Print the session's id and nothing else");
  command->footer(
      "Example: V=$(lethe vectors create --key-dim 2 --value-dim 1 --sigma 1.5 --nu 0.1 "
      "--reference-size 200 --id-only)");
  command->callback([&context, options] { context.Finish(Create(context, *options)); });
}

}  // namespace

void AddVectorsCommands(CLI::App& app, Context& context) {
  CLI::App* vectors =
      app.add_subcommand("vectors",
                         "Vector sessions: a memory of your own vectors, without a model")
          ->require_subcommand(1);
  vectors->footer("Example: lethe vectors read $V queries.csv");
  AddCreate(*vectors, context);
  AddVectorsAppendCommand(*vectors, context);

  CLI::App* read = vectors->add_subcommand(
      "read", "What the memory says of each query: decision (0 or above: inside) and readout");
  const auto read_options = std::make_shared<ReadOptions>();
  read->add_option("SESSION", read_options->session_id, "Session id")->required();
  read->add_option("QUERIES", read_options->path,
                   "Queries, one vector a line, or .npy; - for standard input")
      ->required();
  read->footer("Example: lethe vectors read $V queries.csv");
  read->callback([&context, read_options] { context.Finish(Read(context, *read_options)); });

  CLI::App* list = vectors->add_subcommand(
      "list", "The keys and values held, one JSON object a line. They are content");
  const auto session_id = std::make_shared<std::string>();
  list->add_option("SESSION", *session_id, "Session id")->required();
  list->footer("Example: lethe vectors list $V > vectors.jsonl");
  list->callback([&context, session_id] { context.Finish(List(context, *session_id)); });

  AddVectorsEvictCommand(*vectors, context);
}

}  // namespace lethe::client
