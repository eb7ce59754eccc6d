// lethe session export, lethe session import.
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/progress.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include <fcntl.h>
#include <unistd.h>

#include "audit/crypto/key_file.h"
#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/write_all.h"

namespace lethe::client {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kPieceBytes = size_t{1} << 20;

struct ExportOptions {
  v1::ExportSessionRequest request;
  std::string key_path;
  std::string path;
};

struct ImportOptions {
  v1::ImportHeader header;
  std::string key_path;
  std::string path;
};

absl::Status FileError(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(std::string key, audit::ReadKeyFile(path));
  if (key.size() != kKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": want a key file of 32 bytes"));
  }
  return key;
}

absl::StatusOr<std::string> MakeKey(const std::string& path) {
  std::array<uint8_t, kKeyBytes> bytes{};
  audit::RandomBytes(absl::MakeSpan(bytes));
  std::string key(bytes.begin(), bytes.end());
  LETHE_RETURN_IF_ERROR(audit::WriteKeyFile(path, key));
  return key;
}

// The file appears under its name when it is whole. Errors name it so, not as it is called until then.
absl::Status WriteExport(Context& context, const ExportOptions& options, int64_t* num_bytes) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  std::error_code error;
  const std::string unfinished = absl::StrCat(options.path, ".part");
  std::filesystem::remove(unfinished, error);
  // A new file that its owner alone can read.
  const int descriptor = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return FileError(options.path);
  absl::Status status;
  {
    Progress progress(context.io(), "exporting");
    status = client->ExportSession(options.request, [&](const std::string& data) {
      *num_bytes += static_cast<int64_t>(data.size());
      progress.Update(FormatByteCount(*num_bytes));
      return WriteAll(descriptor, data) ? absl::OkStatus() : FileError(options.path);
    });
  }
  if (status.ok() && fsync(descriptor) != 0) status = FileError(options.path);
  close(descriptor);
  if (status.ok()) {
    std::filesystem::rename(unfinished, options.path, error);
    if (error) {
      status = absl::InvalidArgumentError(absl::StrCat(options.path, ": ", error.message()));
    }
  }
  if (!status.ok()) std::filesystem::remove(unfinished, error);
  return status;
}

absl::Status Export(Context& context, ExportOptions& options) {
  std::error_code error;
  if (std::filesystem::exists(options.path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(options.path, ": exists already"));
  }
  const bool has_key = std::filesystem::exists(options.key_path, error);
  LETHE_ASSIGN_OR_RETURN(*options.request.mutable_key(),
                         has_key ? ReadKey(options.key_path) : MakeKey(options.key_path));
  int64_t num_bytes = 0;
  if (const absl::Status status = WriteExport(context, options, &num_bytes); !status.ok()) {
    // A key that was made for a file which did not come to be opens nothing.
    if (!has_key) audit::DestroyKeyFile(options.key_path).IgnoreError();
    return status;
  }
  if (context.json()) {
    context.PrintJson(Json{{"session_id", options.request.session_id()},
                           {"file", options.path},
                           {"key_file", options.key_path},
                           {"num_bytes", num_bytes}});
  } else {
    context.out() << "Exported session " << OneLine(options.request.session_id()) << " to "
                  << OneLine(options.path) << " (" << FormatByteCount(num_bytes)
                  << "); whoever has it and " << OneLine(options.key_path)
                  << " has the session.\nA later forget does not reach this copy.\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

void PrintImported(Context& context, const v1::ImportSessionResponse& response) {
  context.out() << "Imported as session " << OneLine(response.session().session_id()) << ".\n";
  FieldTable table;
  table.Add("inputs", absl::StrCat(response.session().num_inputs()));
  table.Add("state digest", FormatHex(response.digest().sha256()));
  table.Add("exported with", response.reevaluated()
                                 ? absl::StrCat(FormatHex(response.exported_digest().sha256()),
                                                ", under other numerics: evaluated anew here")
                                 : "the same digest");
  table.Print(context.out());
}

absl::Status Import(Context& context, ImportOptions& options) {
  LETHE_ASSIGN_OR_RETURN(*options.header.mutable_key(), ReadKey(options.key_path));
  LETHE_ASSIGN_OR_RETURN(const std::string file, ReadFile(options.path));
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  size_t done = 0;
  absl::StatusOr<v1::ImportSessionResponse> response = absl::UnknownError("");
  {
    Progress progress(context.io(), "importing");
    response = client->ImportSession(options.header, [&]() -> absl::StatusOr<std::string> {
      std::string piece = file.substr(done, kPieceBytes);
      done += piece.size();
      // The server reads it all before it evaluates.
      progress.Update(piece.empty()
                          ? "verifying"
                          : absl::StrCat(FormatByteCount(static_cast<int64_t>(done)), " of ",
                                         FormatByteCount(static_cast<int64_t>(file.size()))));
      return piece;
    });
  }
  LETHE_RETURN_IF_ERROR(response.status());
  if (context.json()) {
    context.PrintJson(MessageToJson(*response));
  } else {
    PrintImported(context, *response);
  }
  return absl::OkStatus();
}

}  // namespace

void AddSessionTransferCommands(CLI::App& session, Context& context) {
  CLI::App* command = session.add_subcommand(
      "export", "Write a session to an encrypted file, which a later forget does not reach");
  const auto export_options = std::make_shared<ExportOptions>();
  command->add_option("SESSION", *export_options->request.mutable_session_id(), "Session id")
      ->required();
  command->add_option("--out", export_options->path, "The file; must not exist")->required();
  command
      ->add_option("--key", export_options->key_path,
                   "Key file of 32 bytes; made at random when it does not exist")
      ->required();
  command->footer("Example: lethe session export $S --out session.export --key export.key");
  command->callback(
      [&context, export_options] { context.Finish(Export(context, *export_options)); });

  // Not `import`, which clang-format takes for a statement.
  CLI::App* importing = session.add_subcommand(
      "import", "Make a session from such a file, once all of it was verified");
  const auto import_options = std::make_shared<ImportOptions>();
  importing->add_option("FILE", import_options->path, "The file")->required();
  importing->add_option("--key", import_options->key_path, "Its key file")->required();
  importing->add_option_function<std::string>(
      "--replace",
      [import_options](const std::string& session_id) {
        import_options->header.set_session_id(session_id);
        import_options->header.set_replace(true);
      },
      "Session of the same kind whose content is replaced (default: a new session)");
  importing->add_option("--name", *import_options->header.mutable_display_name(),
                        "Display name (default: that of the exported session)");
  importing->add_option("--request-id", *import_options->header.mutable_request_id(),
                        "A repeat with the same id and file returns the same session");
  importing->footer("Example: lethe session import session.export --key export.key");
  importing->callback(
      [&context, import_options] { context.Finish(Import(context, *import_options)); });
}

}  // namespace lethe::client
