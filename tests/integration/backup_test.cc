// Goal: deploy/backup and deploy/restore do what deploy/OPERATIONS.md says: a backup is noise without its key, nothing is unpacked from
// a damaged one, a running server's directory is not copied, and a restored directory comes back with what was kept and
// without what was forgotten since.
// Method: the two scripts and the program lethe-server, as an operator runs them.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/audit/temp_directory.h"
#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"
#include "tests/integration/vectors_testing.h"
#include "tests/server/store_testing.h"

namespace lethe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKept[] = "the second visit";
constexpr char kForgotten[] = "SENTINEL-91c4";

// Exit status of a shell command, whose output goes to a file.
int Shell(const std::string& command, const std::string& output = "/dev/null") {
  const int status = std::system(absl::StrCat(command, " >", output, " 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class BackupTest : public ::testing::Test {
 protected:
  BackupTest() {
    WriteTinyModel(path_ + "/model", "tiny");
    for (const char* const name : {"backup", "other"}) {
      EXPECT_EQ(Shell(absl::StrCat(
                    "openssl req -x509 -newkey rsa:3072 -nodes -days 2 -subj /CN=", name,
                    " -keyout ", path_, "/", name, ".key -out ", path_, "/", name, ".crt")),
                0);
    }
  }

  void Start() {
    program_ = std::make_unique<Program>(Arguments({"--listen", "127.0.0.1:0"}), log_);
    const std::string address = program_->ReadAddress();
    ASSERT_NE(address, "") << audit::ReadFile(log_);
    stubs_ = std::make_unique<Stubs>(ConnectTo(address));
  }
  void Stop() {
    program_->Signal(SIGTERM);
    EXPECT_EQ(program_->Wait(), 0);
  }
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--model", path_ + "/model",   "--data",
                                          data_,     "--erasure-ledger", path_ + "/ledger"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  int Backup() {
    return Shell(absl::StrCat(kScripts, "backup ", data_, " ", path_, "/backup.crt ", copy_),
                 said_);
  }
  int Restore(const std::string& copy, const std::string& key) {
    return Shell(absl::StrCat(kScripts, "restore ", copy, " ", path_, "/", key, ".crt ", path_, "/",
                              key, ".key ", data_),
                 said_);
  }
  std::string Said() const { return audit::ReadFile(said_); }

  std::string CreateSession() {
    Context context;
    v1::CreateSessionResponse created;
    const grpc::Status status = stubs_->session->CreateSession(&context, {}, &created);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return created.session().session_id();
  }
  void Append(const std::string& id, const std::string& text, const std::string& subject) {
    Context context;
    v1::AppendRequest request;
    request.set_session_id(id);
    request.mutable_input()->set_text(text);
    request.set_subject(subject);
    v1::AppendResponse response;
    const grpc::Status status = stubs_->session->Append(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  void Forget(const std::string& id, const std::string& subject) {
    Context context;
    v1::ForgetRequest request;
    request.set_session_id(id);
    request.mutable_selection()->set_subject(subject);
    request.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
    v1::ForgetResponse response;
    const grpc::Status status = stubs_->forgetting->Forget(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  std::string Digest(const std::string& id) {
    Context context;
    v1::GetStateDigestRequest request;
    request.set_session_id(id);
    v1::GetStateDigestResponse response;
    const grpc::Status status = stubs_->session->GetStateDigest(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.digest().sha256();
  }
  std::string Text(const std::string& id) {
    Context context;
    v1::ListInputsRequest request;
    request.set_session_id(id);
    request.set_include_content(true);
    v1::ListInputsResponse response;
    const grpc::Status status = stubs_->session->ListInputs(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::string text;
    for (const v1::Input& input : response.inputs()) absl::StrAppend(&text, input.text());
    return text;
  }

  static constexpr char kScripts[] = LETHE_SOURCE_DIR "/deploy/";
  audit::TempDirectory directory_;
  const std::string path_ = directory_.path();
  const std::string data_ = path_ + "/data";
  const std::string copy_ = path_ + "/copy.cms";
  const std::string log_ = path_ + "/stderr";
  const std::string said_ = path_ + "/said";
  std::unique_ptr<Program> program_;
  std::unique_ptr<Stubs> stubs_;
};

TEST_F(BackupTest, ARestoredDirectoryForgetsAgain) {
  Start();
  const std::string id = CreateSession();
  Append(id, kKept, "");
  Append(id, kForgotten, "patient");
  Stop();
  ASSERT_EQ(Backup(), 0) << Said();
  Start();
  Forget(id, "patient");
  const std::string digest = Digest(id);
  Stop();

  fs::rename(data_, path_ + "/lost");
  ASSERT_EQ(Restore(copy_, "backup"), 0) << Said();
  // The log of the copy is older than heads that were signed: what is forgotten again needs a record in the next one.
  {
    Program early(Arguments({"--listen", "127.0.0.1:0"}), path_ + "/early");
    EXPECT_EQ(early.Wait(), 1);
    EXPECT_THAT(audit::ReadFile(path_ + "/early"),
                HasSubstr("first begin the next log with --restore-log"));
  }
  Program change(Arguments({"--restore-log", "lethe.test/audit/2"}), log_);
  ASSERT_EQ(change.Wait(), 0) << audit::ReadFile(log_);
  Start();
  EXPECT_EQ(Digest(id), digest);
  EXPECT_THAT(Text(id), HasSubstr(kKept));
  EXPECT_THAT(Text(id), Not(HasSubstr(kForgotten)));
  Stop();
}

TEST_F(BackupTest, WithoutTheLedgerARestoredDirectoryIsNotServed) {
  Start();
  Append(CreateSession(), kForgotten, "patient");
  Stop();
  ASSERT_EQ(Backup(), 0) << Said();
  fs::rename(data_, path_ + "/lost");
  fs::remove_all(path_ + "/ledger");
  ASSERT_EQ(Restore(copy_, "backup"), 0) << Said();
  Program program(Arguments({"--listen", "127.0.0.1:0"}), log_);
  EXPECT_EQ(program.ReadAddress(), "");
  EXPECT_NE(program.Wait(), 0);
  EXPECT_THAT(audit::ReadFile(log_), HasSubstr("ledger"));
}

TEST_F(BackupTest, ARunningServersDirectoryIsNotCopied) {
  Start();
  EXPECT_EQ(Backup(), 1);
  EXPECT_THAT(Said(), HasSubstr("a server is running"));
  EXPECT_FALSE(fs::exists(copy_));
  Stop();
  EXPECT_EQ(Backup(), 0) << Said();
}

TEST_F(BackupTest, ADamagedBackupOrAnotherKeyUnpacksNothing) {
  Start();
  Append(CreateSession(), kForgotten, "patient");
  Stop();
  ASSERT_EQ(Backup(), 0) << Said();
  fs::rename(data_, path_ + "/lost");
  EXPECT_EQ(Restore(copy_, "other"), 3);
  EXPECT_FALSE(fs::exists(data_));

  const std::string backup = audit::ReadFile(copy_);
  for (const size_t part : {size_t{2}, size_t{3}, size_t{9}}) {
    std::string damaged = backup;
    damaged[backup.size() * (part - 1) / part] ^= 1;
    std::ofstream(path_ + "/damaged.cms", std::ios::binary) << damaged;
    EXPECT_EQ(Restore(path_ + "/damaged.cms", "backup"), 3) << part;
    EXPECT_FALSE(fs::exists(data_));
  }
  std::ofstream(path_ + "/cut.cms", std::ios::binary) << backup.substr(0, backup.size() / 2);
  EXPECT_EQ(Restore(path_ + "/cut.cms", "backup"), 3);
  EXPECT_FALSE(fs::exists(data_));
  EXPECT_FALSE(fs::exists(data_ + ".restoring"));

  // And nothing that is there already is overwritten.
  ASSERT_EQ(Restore(copy_, "backup"), 0) << Said();
  EXPECT_EQ(Restore(copy_, "backup"), 2);
}

}  // namespace
}  // namespace lethe::testing
