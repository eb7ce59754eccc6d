// lethe token new: a bearer token, and the line by which a server knows it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"

#include "audit/crypto/key_file.h"
#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct TokenOptions {
  std::string tenant;
  std::string name;
  std::string roles = "user";
  std::string expires = "never";
  std::string path;
};

// So that scanners of published files find one that leaked.
constexpr char kTokenPrefix[] = "lethe_";

CLI::Validator NameOf() {
  return CLI::Validator(
      [](const std::string& text) {
        const auto is_end = [](char c) {
          return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                 absl::ascii_isdigit(static_cast<unsigned char>(c));
        };
        const bool ok =
            !text.empty() && text.size() <= 63 && is_end(text.front()) && is_end(text.back()) &&
            std::all_of(text.begin(), text.end(), [&](char c) { return c == '-' || is_end(c); });
        return ok ? "" : "want 1 to 63 of a-z, 0-9 and '-', beginning and ending with no '-'";
      },
      "");
}

CLI::Validator Roles() {
  return CLI::Validator(
      [](const std::string& text) {
        for (const absl::string_view role : absl::StrSplit(text, ',')) {
          if (role != "user" && role != "eraser" && role != "auditor" && role != "operator") {
            return "want one or more of user,eraser,auditor,operator";
          }
        }
        return "";
      },
      "");
}

CLI::Validator Expiry() {
  return CLI::Validator(
      [](const std::string& text) {
        absl::Time time;
        std::string error;
        const bool ok =
            text == "never" || absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", text, &time, &error);
        return ok ? "" : "want never or a time like 2027-01-31T00:00:00Z";
      },
      "");
}

absl::Status NewToken(Context& context, const TokenOptions& options) {
  std::array<uint8_t, 32> bytes{};
  audit::RandomBytes(absl::MakeSpan(bytes));
  std::string token =
      absl::StrCat(kTokenPrefix, absl::WebSafeBase64Escape(audit::AsStringView(bytes)));
  audit::SecureWipe(bytes.data(), bytes.size());
  const std::string line =
      absl::StrCat(options.tenant, " ", options.name, " ", options.roles, " ", options.expires, " ",
                   absl::BytesToHexString(audit::AsStringView(audit::Sha256Of(token))));
  if (!options.path.empty()) {
    const absl::Status written = audit::WriteKeyFile(options.path, absl::StrCat(token, "\n"));
    audit::SecureWipe(&token);
    LETHE_RETURN_IF_ERROR(written);
  }
  if (context.json()) {
    Json object{{"line", line}};
    if (!token.empty()) object["token"] = token;
    context.PrintJson(object);
  } else if (token.empty()) {
    context.out() << line << "\n" << std::flush;
  } else {
    context.out() << "Token, shown this once:\n"
                  << token << "\n"
                  << "Line for the file of lethe-server's --tokens:\n"
                  << line << "\n"
                  << std::flush;
  }
  audit::SecureWipe(&token);
  return absl::OkStatus();
}

}  // namespace

void AddTokenCommands(CLI::App& app, Context& context) {
  CLI::App* token = app.add_subcommand("token", "Bearer tokens for a server that asks for them");
  token->require_subcommand(1);
  token->footer("Example: lethe token new clinic-a anna --roles user,eraser --out anna.token");
  CLI::App* make = token->add_subcommand("new", "Make a token of 256 random bits");
  const auto options = std::make_shared<TokenOptions>();
  make->add_option("TENANT", options->tenant, "Whose sessions it reaches")
      ->check(NameOf())
      ->required();
  make->add_option("NAME", options->name, "What the token is called; no person's name")
      ->check(NameOf())
      ->required();
  make->add_option("--roles", options->roles, "One or more of user,eraser,auditor,operator")
      ->check(Roles())
      ->capture_default_str();
  make->add_option("--expires", options->expires, "never, or a time like 2027-01-31T00:00:00Z")
      ->check(Expiry())
      ->capture_default_str();
  make->add_option("--out", options->path,
                   "New file for the token, its owner's alone; then only the line is printed")
      ->type_name("FILE");
  make->footer(
      "The server keeps the token's SHA-256 alone. Needs no server.\n"
      "Example: lethe token new clinic-a anna --roles user,eraser --out anna.token >> tokens");
  make->callback([&context, options] { context.Finish(NewToken(context, *options)); });
}

}  // namespace lethe::client
