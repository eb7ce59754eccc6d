// Goal: who may do what: files of credentials are read strictly and again when they change, a call is who it says by itself,
// and what is wrong with a credential is never told.
// Method: parsed texts, files put in place of each other, a clock of the test's own.
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "server/error/error_info.h"
#include "server/identity/authenticator.h"
#include "server/identity/method_access.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;
using ::testing::HasSubstr;

std::string Hex(absl::string_view token) {
  return absl::BytesToHexString(audit::AsStringView(audit::Sha256Of(token)));
}

std::string Line(absl::string_view token, absl::string_view roles = "user",
                 absl::string_view expires = "never", absl::string_view tenant = "clinic-a",
                 absl::string_view name = "anna") {
  return absl::StrCat(tenant, " ", name, " ", roles, " ", expires, " ", Hex(token), "\n");
}

// As whoever rotates credentials should: never half a file.
void Replace(const std::string& path, absl::string_view text) {
  {
    std::ofstream file(path + ".new", std::ios::binary);
    file << text;
  }
  ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
}

TEST(CredentialsTest, ALineSaysWhoseWhatAndUntilWhen) {
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Credential> credentials,
      ParseCredentials(absl::StrCat("# people\n\n", Line("one", "user,eraser"),
                                    Line("two", "auditor", "2027-01-31T00:00:00Z", "b", "c-1"))));
  ASSERT_EQ(credentials.size(), 2u);
  EXPECT_EQ(credentials[0].principal.tenant, "clinic-a");
  EXPECT_EQ(credentials[0].principal.name, "anna");
  EXPECT_TRUE(credentials[0].principal.Has(Role::kUser));
  EXPECT_TRUE(credentials[0].principal.Has(Role::kEraser));
  EXPECT_FALSE(credentials[0].principal.Has(Role::kAuditor));
  EXPECT_EQ(credentials[1].expires_s, 1801353600);
  EXPECT_EQ(credentials[1].digest, audit::Sha256Of("two"));
  EXPECT_TRUE(ParseCredentials("")->empty());
}

TEST(CredentialsTest, WhatIsWrongIsNamedByItsLineAndNotRepeated) {
  const std::string good = Line("one");
  const std::string hash = Hex("two");
  struct Case {
    std::string line;
    std::string message;
  };
  for (const Case& bad : std::vector<Case>{
           {"clinic-a anna user never\n", "want TENANT NAME ROLES EXPIRES SHA256"},
           {"clinic-a anna user never " + hash + " more\n", "want TENANT NAME"},
           {"Clinic anna user never " + hash + "\n", "TENANT: want 1 to 63 of a-z"},
           {"-a anna user never " + hash + "\n", "TENANT: want"},
           {std::string(64, 'a') + " anna user never " + hash + "\n", "TENANT: want"},
           {"a an/na user never " + hash + "\n", "NAME: want"},
           {"a anna root never " + hash + "\n", "ROLES: want one or more of user,eraser"},
           {"a anna user, never " + hash + "\n", "ROLES: want"},
           {"a anna user tomorrow " + hash + "\n", "EXPIRES: want never or a time like"},
           {"a anna user infinite-future " + hash + "\n", "EXPIRES: want"},
           {"a anna user never " + hash.substr(1) + "\n", "SHA256: want 64 hex digits"},
           {"a anna user never zz" + hash.substr(2) + "\n", "SHA256: want 64 hex digits"},
           {Line("one", "eraser"), "SHA256: stands in line 1 already"},
           {"a anna user never " + hash, "want a newline at its end"}}) {
    const absl::Status status = ParseCredentials(good + bad.line).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, bad.message)) << bad.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2: ")) << bad.line;
    EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("anna")));
  }
}

TEST(CredentialsTest, ThereIsAMost) {
  std::string text;
  for (size_t i = 0; i <= kCredentialsMax; ++i) {
    if (i == kCredentialsMax) {
      EXPECT_OK(ParseCredentials(text).status());
    }
    text += Line(absl::StrCat(i));
  }
  EXPECT_THAT(ParseCredentials(text).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 10001: want at most 10000"));
}

class AuthenticatorTest : public ::testing::Test {
 protected:
  AuthenticatorTest() : path_(directory_.path() + "/tokens") {}

  void Open(const AuthenticatorOptions& options) {
    absl::StatusOr<std::unique_ptr<Authenticator>> opened =
        Authenticator::Open(options, [this] { return now_s_; });
    ASSERT_OK(opened.status());
    authenticator_ = *std::move(opened);
  }
  // The name of who calls with this token; "" for nobody.
  std::string WhoHas(const std::string& token) {
    const std::string value = "Bearer " + token;
    return Who({{value}, {}, std::nullopt});
  }
  std::string Who(const CallCredentials& credentials) {
    const absl::StatusOr<Principal> principal = authenticator_->Authenticate(credentials);
    if (principal.ok()) return principal->tenant + "/" + principal->name;
    refusals_.insert(principal.status().ToString());
    EXPECT_EQ(principal.status().code(), absl::StatusCode::kUnauthenticated);
    return "";
  }

  audit::TempDirectory directory_;
  const std::string path_;
  int64_t now_s_ = 1'800'000'000;
  std::unique_ptr<Authenticator> authenticator_;
  std::set<std::string> refusals_;
};

TEST_F(AuthenticatorTest, EveryRefusalIsTheSame) {
  Replace(path_, Line("good") + Line("old", "user", "2020-01-01T00:00:00Z"));
  Open({path_, "", std::nullopt});
  EXPECT_EQ(WhoHas("good"), "clinic-a/anna");
  EXPECT_EQ(WhoHas("bad"), "");
  EXPECT_EQ(WhoHas("old"), "");
  EXPECT_EQ(WhoHas(""), "");
  EXPECT_EQ(WhoHas(std::string(257, 'x')), "");
  EXPECT_EQ(Who({}), "");
  EXPECT_EQ(Who({{"good"}, {}, std::nullopt}), "");
  EXPECT_EQ(Who({{"Basic good"}, {}, std::nullopt}), "");
  EXPECT_EQ(Who({{"Bearer good", "Bearer good"}, {}, std::nullopt}), "");
  EXPECT_EQ(Who({{"bearer good"}, {}, std::nullopt}), "clinic-a/anna");
  // The hash is no token.
  EXPECT_EQ(WhoHas(Hex("good")), "");
  EXPECT_EQ(refusals_.size(), 1u);
}

TEST_F(AuthenticatorTest, ATokenEndsAtItsTime) {
  Replace(path_, Line("good", "user", "2027-01-31T00:00:00Z"));
  Open({path_, "", std::nullopt});
  now_s_ = 1801353599;
  EXPECT_EQ(WhoHas("good"), "clinic-a/anna");
  now_s_ = 1801353600;
  EXPECT_EQ(WhoHas("good"), "");
}

TEST_F(AuthenticatorTest, AChangedFileHoldsFromTheNextCallOn) {
  Replace(path_, Line("one"));
  Open({path_, "", std::nullopt});
  EXPECT_EQ(WhoHas("one"), "clinic-a/anna");
  // Of the same size, at once, in place and by another's place.
  Replace(path_, Line("two"));
  EXPECT_EQ(WhoHas("one"), "");
  EXPECT_EQ(WhoHas("two"), "clinic-a/anna");
  {
    std::ofstream file(path_, std::ios::binary | std::ios::in);
    file << Line("six");
  }
  EXPECT_EQ(WhoHas("two"), "");
  EXPECT_EQ(WhoHas("six"), "clinic-a/anna");
}

TEST_F(AuthenticatorTest, ABadFileIsRefusedAtStartAndLaterChangesNothing) {
  const AuthenticatorOptions options = {path_, "", std::nullopt};
  EXPECT_THAT(Authenticator::Open(options).status(),
              StatusIs(absl::StatusCode::kNotFound, "--tokens: cannot read "));
  Replace(path_, "nonsense\n");
  EXPECT_THAT(Authenticator::Open(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ": line 1: want TENANT"));
  Replace(path_, Line("one"));
  Open(options);
  for (const std::string& bad : {std::string("nonsense\n"), Line("two") + "half"}) {
    Replace(path_, bad);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(WhoHas("one"), "clinic-a/anna");
    EXPECT_EQ(WhoHas("two"), "");
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("line "));
    EXPECT_THAT(log, HasSubstr("the credentials read before stay in force"));
    EXPECT_EQ(log.find("stay in force"), log.rfind("stay in force")) << "said once";
  }
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  EXPECT_EQ(WhoHas("one"), "clinic-a/anna");
  Replace(path_, Line("two"));
  EXPECT_EQ(WhoHas("one"), "");
  EXPECT_EQ(WhoHas("two"), "clinic-a/anna");
}

TEST_F(AuthenticatorTest, ACertificateIsWhoTheFileSays) {
  Replace(path_, Line("der of anna") + Line("der of ben", "user", "never", "clinic-b", "ben"));
  const audit::Sha256Digest edge = audit::Sha256Of("der of the edge");
  Open({"", path_, edge});
  const std::string ben = Hex("der of ben");
  const std::string upper = absl::AsciiStrToUpper(ben);
  EXPECT_EQ(Who({{}, {}, audit::Sha256Of("der of anna")}), "clinic-a/anna");
  EXPECT_EQ(Who({{}, {}, audit::Sha256Of("der of nobody")}), "");
  // A header from anybody but the edge changes nothing, and alone is nothing.
  EXPECT_EQ(Who({{}, {ben}, audit::Sha256Of("der of anna")}), "clinic-a/anna");
  EXPECT_EQ(Who({{}, {ben}, std::nullopt}), "");
  // The edge speaks for others and is nobody.
  EXPECT_EQ(Who({{}, {ben}, edge}), "clinic-b/ben");
  EXPECT_EQ(Who({{}, {upper}, edge}), "clinic-b/ben");
  EXPECT_EQ(Who({{}, {}, edge}), "");
  EXPECT_EQ(Who({{}, {ben, ben}, edge}), "");
  EXPECT_EQ(Who({{}, {"x"}, edge}), "");
  // A token decides where there is one, right or wrong.
  EXPECT_EQ(Who({{"Bearer wrong"}, {}, audit::Sha256Of("der of anna")}), "");
  EXPECT_EQ(refusals_.size(), 1u);
}

TEST(MethodAccessTest, EachRoleMayWhatItIsFor) {
  const auto may = [](Role role, absl::string_view method) {
    return CheckRole(method, {"t", "n", static_cast<uint8_t>(role)}).ok();
  };
  EXPECT_TRUE(may(Role::kUser, "Generate"));
  EXPECT_FALSE(may(Role::kUser, "Forget"));
  EXPECT_TRUE(may(Role::kEraser, "Forget"));
  EXPECT_FALSE(may(Role::kEraser, "ListInputs"));
  EXPECT_TRUE(may(Role::kAuditor, "GetCertificate"));
  for (const char* content :
       {"ListPartition", "ExportSession", "Generate", "Read", "Certify", "Append"}) {
    EXPECT_FALSE(may(Role::kAuditor, content)) << content;
    EXPECT_FALSE(may(Role::kOperator, content)) << content;
  }
  // Of a state that was disclosed: server/certification/disclosure.h.
  for (const char* content : {"ListInputs", "GetStateDigest", "ListVectors"}) {
    EXPECT_TRUE(may(Role::kAuditor, content)) << content;
    EXPECT_FALSE(may(Role::kOperator, content)) << content;
  }
  EXPECT_TRUE(may(Role::kOperator, "GetLog"));
  EXPECT_FALSE(may(Role::kOperator, "ListSessions"));
  for (const MethodAccess& access : AllMethodAccess()) {
    EXPECT_NE(access.roles, 0) << access.method;
    EXPECT_OK(CheckRole(access.method, LocalPrincipal()));
  }
  const absl::Status unknown = CheckRole("NoSuchMethod", LocalPrincipal());
  EXPECT_EQ(unknown.code(), absl::StatusCode::kPermissionDenied);
  const absl::Status denied = CheckRole("Forget", {"t", "n", static_cast<uint8_t>(Role::kUser)});
  EXPECT_EQ(GetErrorInfo(denied)->reason, "ROLE_REQUIRED");
  EXPECT_THAT(std::string(denied.message()), HasSubstr("eraser"));
}

}  // namespace
}  // namespace lethe
