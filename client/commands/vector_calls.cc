#include "client/commands/vector_calls.h"

#include <algorithm>

#include "client/commands/append_report.h"
#include "client/commands/files.h"
#include "client/commands/request_parts.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr int64_t kNumbersPerCall = int64_t{1} << 18;
// memory.proto.
constexpr int64_t kRowsPerCallMax = 65536;
constexpr int kRowsPerPage = 65536;

}  // namespace

absl::StatusOr<VectorMatrix> ReadVectors(const Io& io, const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(const std::string bytes, ReadInput(path, io.in));
  return ParseVectors(path == "-" ? "standard input" : path, bytes);
}

void SetRows(const VectorMatrix& matrix, int64_t first, int64_t count, v1::Matrix* rows) {
  const auto begin = matrix.values.begin() + first * matrix.num_columns;
  rows->set_num_rows(static_cast<int32_t>(count));
  rows->set_num_columns(static_cast<int32_t>(matrix.num_columns));
  rows->mutable_values()->Clear();
  rows->mutable_values()->Add(begin, begin + count * matrix.num_columns);
}

int64_t RowsPerCall(int64_t numbers_per_row) {
  return std::clamp<int64_t>(kNumbersPerCall / std::max<int64_t>(numbers_per_row, 1), 1,
                             kRowsPerCallMax);
}

int64_t RowsPerCall(const VectorRows& rows) {
  return RowsPerCall(rows.keys.num_columns + rows.values.num_columns);
}

size_t NumParts(int64_t num_rows, int64_t rows_per_call) {
  return static_cast<size_t>((num_rows + rows_per_call - 1) / rows_per_call);
}

absl::Status AppendRows(Client& client, v1::AppendVectorsRequest request, const VectorRows& rows,
                        const std::function<void(int64_t num_done)>& progress,
                        v1::AppendVectorsResponse* appended) {
  const int64_t num_rows = rows.keys.num_rows;
  const int64_t rows_per_call = RowsPerCall(rows);
  const size_t num_parts = NumParts(num_rows, rows_per_call);
  const std::string request_id = request.request_id();
  for (size_t part = 0; part < num_parts; ++part) {
    const int64_t first = static_cast<int64_t>(part) * rows_per_call;
    const int64_t count = std::min(rows_per_call, num_rows - first);
    SetRows(rows.keys, first, count, request.mutable_keys());
    if (rows.values.num_columns > 0) {
      SetRows(rows.values, first, count, request.mutable_values());
    }
    request.set_request_id(PartId(request_id, part, num_parts));
    LETHE_ASSIGN_OR_RETURN(const v1::AppendVectorsResponse response, client.AppendVectors(request));
    MergeAppended(response, appended);
    progress(first + count);
  }
  return absl::OkStatus();
}

VectorInputs NoVectors(const v1::VectorOptions& options) {
  VectorInputs vectors{.options = options, .rows = {}};
  vectors.rows.keys.num_columns = options.key_dim();
  vectors.rows.values.num_columns = options.value_dim();
  return vectors;
}

absl::Status AddRow(const v1::VectorRow& row, VectorRows* rows) {
  if (row.key_size() != rows->keys.num_columns || row.value_size() != rows->values.num_columns) {
    return absl::DataLossError("the server's answer has rows of another width than its session");
  }
  ++rows->keys.num_rows;
  rows->keys.values.insert(rows->keys.values.end(), row.key().begin(), row.key().end());
  ++rows->values.num_rows;
  rows->values.values.insert(rows->values.values.end(), row.value().begin(), row.value().end());
  return absl::OkStatus();
}

absl::Status ListAllVectors(
    Client& client, const std::string& session_id,
    absl::FunctionRef<absl::Status(const v1::ListVectorsResponse&)> on_page) {
  v1::ListVectorsRequest request;
  request.set_session_id(session_id);
  request.set_page_size(kRowsPerPage);
  do {
    LETHE_ASSIGN_OR_RETURN(const v1::ListVectorsResponse page, client.ListVectors(request));
    LETHE_RETURN_IF_ERROR(on_page(page));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

}  // namespace lethe::client
