// Goal: each check of `lethe doctor` tells the good setting from the bad one, by machines that are made up; the command says so
//   with its exit code.
// Method: proc/ and sys/ trees under a directory of the test's; data directories and models with real files.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "client/doctor/directory_checks.h"
#include "client/doctor/key_checks.h"
#include "client/doctor/machine_checks.h"
#include "client/doctor/model_checks.h"
#include "client/doctor/port_checks.h"
#include "client/doctor/sync_checks.h"
#include "gmock/gmock.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "audit/certificate/keys.h"
#include "audit/certificate/trust.h"
#include "tests/client/program_run.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    std::string directory = ::testing::TempDir() + "/doctor-XXXXXX";
    root_ = mkdtemp(directory.data());
    root_ = fs::canonical(root_);
    Put("proc/cpuinfo", "flags\t\t: fpu avx2 fma bmi1 bmi2 f16c\n");
    Put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
    Put("proc/sys/kernel/core_pattern", "|/bin/false\n");
    Put("proc/self/mountinfo", "26 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n");
  }
  ~DoctorTest() override { fs::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  SystemFiles files() const { return SystemFiles(root_.string()); }
  std::string data() const { return (root_ / "data").string(); }
  void MakeData() const {
    Put("data/keys/record.pem", "key");
    ASSERT_EQ(chmod((root_ / "data/keys/record.pem").c_str(), 0600), 0);
    ASSERT_EQ(chmod(data().c_str(), 0700), 0);
  }
  // As the line "verdict check" of one finding; "" when nothing was found under that name.
  static Finding Of(const Findings& findings, const std::string& check) {
    for (const Finding& finding : findings) {
      if (finding.check == check) return finding;
    }
    ADD_FAILURE() << "no finding " << check;
    return {};
  }

  fs::path root_;
};

TEST_F(DoctorTest, ASoundMachineHasNothingToMend) {
  for (const Finding& finding : CheckMachine(files())) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.check << ": " << finding.found;
    EXPECT_EQ(finding.remedy, "");
  }
}

TEST_F(DoctorTest, AProcessorWithoutFmaIsAnError) {
  Put("proc/cpuinfo", "flags\t\t: fpu avx2 bmi1 bmi2 f16c\n");
  const Finding finding = Of(CheckMachine(files()), "processor");
  EXPECT_EQ(finding.verdict, Verdict::kError);
  EXPECT_THAT(finding.found, HasSubstr("lacks fma"));
}

TEST_F(DoctorTest, SwapOnADiskIsAWarningAndInMemoryIsNot) {
  Put("proc/swaps", "Filename\tType\n/dev/zram0 partition 1 0 -2\n");
  EXPECT_EQ(Of(CheckMachine(files()), "swap").verdict, Verdict::kGood);
  Put("proc/swaps", "Filename\tType\n/dev/zram0 partition 1 0 -2\n/swapfile file 1 0 -2\n");
  const Finding finding = Of(CheckMachine(files()), "swap");
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.found, HasSubstr("/swapfile"));
}

TEST_F(DoctorTest, HibernationAndKernelDumpsAreWarnings) {
  Put("sys/power/state", "freeze mem disk\n");
  Put("sys/power/resume", "0:0\n");
  EXPECT_EQ(Of(CheckMachine(files()), "hibernation").verdict, Verdict::kGood);
  Put("sys/power/resume", "254:1\n");
  EXPECT_EQ(Of(CheckMachine(files()), "hibernation").verdict, Verdict::kWarning);
  Put("sys/kernel/kexec_crash_loaded", "1\n");
  EXPECT_EQ(Of(CheckMachine(files()), "kernel crash dumps").verdict, Verdict::kWarning);
}

TEST_F(DoctorTest, AClientsCoreDumpIsANote) {
  Put("proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P\n");
  const Finding piped = Of(CheckMachine(files()), "core pattern");
  EXPECT_EQ(piped.verdict, Verdict::kNote);
  EXPECT_THAT(piped.found, HasSubstr("whatever its limit"));
  Put("proc/sys/kernel/core_pattern", "core\n");
  EXPECT_THAT(Of(CheckMachine(files()), "core pattern").remedy, HasSubstr("ulimit -c 0"));
}

TEST_F(DoctorTest, TheGpusDriverIsNamed) {
  EXPECT_THAT(Of(CheckMachine(files()), "gpu").found, HasSubstr("no NVIDIA driver"));
  Put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX 580.65\nGCC version: 12\n");
  EXPECT_THAT(Of(CheckMachine(files()), "gpu").found,
              HasSubstr("NVRM version: NVIDIA UNIX 580.65;"));
}

TEST_F(DoctorTest, KeysThatAreMissingCutOrOthersAreSeen) {
  EXPECT_EQ(Of(CheckKeys(data()), "keys").verdict, Verdict::kNote);
  const auto keys = audit::ServerKeys::LoadOrCreate(data() + "/keys");
  ASSERT_TRUE(keys.ok()) << keys.status();
  const std::string trust = audit::WriteTrust(*keys->Trust("lethe.dev/audit/test"));
  Put("data/trust.txt", trust);
  for (const std::string name : {"data.keys", "ledger.key", "request.key"}) {
    Put("data/sessions/" + name, std::string(64, 'k'));
  }
  EXPECT_EQ(Of(CheckKeys(data()), "keys").verdict, Verdict::kGood);
  // The trust file of another server.
  Put("data/trust.txt",
      audit::WriteTrust(*audit::ServerKeys::Generate().Trust("lethe.dev/audit/test")));
  EXPECT_EQ(Of(CheckKeys(data()), "keys").verdict, Verdict::kWarning);
  Put("data/trust.txt", trust);
  for (const std::string name : {"keys/record.pem", "keys/log.pem", "keys/pseudonym.key",
                                 "sessions/ledger.key", "sessions/request.key"}) {
    const fs::path path = fs::path(data()) / name;
    std::ifstream file(path, std::ios::binary);
    const std::string whole(std::istreambuf_iterator<char>(file), {});
    fs::resize_file(path, whole.size() / 3);
    const Finding cut = Of(CheckKeys(data()), "keys");
    EXPECT_EQ(cut.verdict, Verdict::kError) << name;
    EXPECT_THAT(cut.found, HasSubstr(name));
    fs::remove(path);
    EXPECT_THAT(Of(CheckKeys(data()), "keys").found, HasSubstr(name + " is missing"));
    Put("data/" + name, whole);
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }
  EXPECT_EQ(Of(CheckKeys(data()), "keys").verdict, Verdict::kGood);
}

TEST_F(DoctorTest, APortThatAnotherProgramHoldsIsAnError) {
  const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(held, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(held, 1), 0);
  ASSERT_EQ(getsockname(held, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_EQ(CheckPort(name).verdict, Verdict::kError);
  EXPECT_THAT(CheckPort(name).found, HasSubstr("taken by another program"));
  // Nothing answers the doctor's call there either.
  const ProgramRun run = RunLethe({"doctor", "--server", "127.0.0.1:1", "--listen", name});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.out, HasSubstr("ERROR    port: " + name));
  close(held);
  EXPECT_THAT(CheckPort("192.0.2.1:7070").found, HasSubstr("no address of this machine"));
}

TEST_F(DoctorTest, SyncsAreMeasuredAndLeaveNothing) {
  fs::create_directories(data());
  EXPECT_THAT(Of(CheckSyncSpeed(data()), "sync speed").found, HasSubstr(" ms a sync"));
  EXPECT_TRUE(fs::is_empty(data()));
  EXPECT_EQ(JudgeSync(3).verdict, Verdict::kGood);
  EXPECT_EQ(JudgeSync(250).verdict, Verdict::kWarning);
  EXPECT_EQ(JudgeSync(0.001).verdict, Verdict::kNote);
}

TEST_F(DoctorTest, AServerThatCouldDumpOrWasSwappedIsAnError) {
  Put("proc/7/status", "Name:\tlethe-server\nVmSwap:\t       0 kB\n");
  Put("proc/7/limits",
      "Max core file size        0                    0                    bytes\n");
  for (const Finding& finding : CheckProcess(7, files())) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.check << ": " << finding.found;
  }
  Put("proc/7/status", "Name:\tlethe-server\nVmSwap:\t      12 kB\n");
  Put("proc/7/limits",
      "Max core file size        0                    unlimited            bytes\n");
  EXPECT_EQ(Of(CheckProcess(7, files()), "core dumps").verdict, Verdict::kError);
  EXPECT_EQ(Of(CheckProcess(7, files()), "swapped pages").verdict, Verdict::kError);
  Put("proc/7/status", "Name:\tbash\n");
  EXPECT_EQ(Of(CheckProcess(7, files()), "process").verdict, Verdict::kError);
  EXPECT_EQ(Of(CheckProcess(8, files()), "process").verdict, Verdict::kError);
}

TEST_F(DoctorTest, RightsOfOthersAreAnError) {
  MakeData();
  EXPECT_EQ(Of(CheckDataDirectory(data(), files()), "access rights").verdict, Verdict::kGood);
  ASSERT_EQ(chmod((root_ / "data/keys/record.pem").c_str(), 0640), 0);
  const Finding key = Of(CheckDataDirectory(data(), files()), "access rights");
  EXPECT_EQ(key.verdict, Verdict::kError);
  EXPECT_THAT(key.found, HasSubstr("keys/record.pem"));
  ASSERT_EQ(chmod(data().c_str(), 0750), 0);
  EXPECT_EQ(Of(CheckDataDirectory(data(), files()), "access rights").verdict, Verdict::kError);
}

TEST_F(DoctorTest, TheFileSystemIsJudgedByTheMountThatHoldsTheDirectory) {
  MakeData();
  const struct {
    const char* line;
    Verdict verdict;
  } cases[] = {
      {"ext4 /dev/vdb rw", Verdict::kGood},
      {"xfs /dev/vdb rw", Verdict::kGood},
      {"btrfs /dev/vdb rw", Verdict::kWarning},
      {"zfs pool/data rw", Verdict::kWarning},
      {"overlay overlay rw", Verdict::kWarning},
      {"ext4 /dev/vdb rw,data=journal", Verdict::kWarning},
      {"nfs4 host:/data rw", Verdict::kError},
      {"fuse.sshfs host:/data rw", Verdict::kError},
      {"tmpfs tmpfs rw", Verdict::kError},
  };
  for (const auto& [line, verdict] : cases) {
    Put("proc/self/mountinfo", "26 1 254:0 / / rw - ext4 /dev/vda rw\n30 26 254:16 / " + data() +
                                   " rw,relatime shared:1 - " + line + "\n31 26 254:32 / " +
                                   data() + "-of-another rw - tmpfs tmpfs rw\n");
    EXPECT_EQ(Of(CheckDataDirectory(data(), files()), "file system").verdict, verdict) << line;
  }
}

TEST_F(DoctorTest, AMountPointWithASpaceIsRead) {
  Put("proc/self/mountinfo", "30 26 254:16 / /srv/my\\040data rw - nfs host:/x rw\n");
  const absl::StatusOr<MountTable> mounts = MountTable::Read(files());
  ASSERT_TRUE(mounts.ok());
  ASSERT_NE(mounts->Of("/srv/my data/lethe"), nullptr);
  EXPECT_EQ(mounts->Of("/srv/my data/lethe")->type, "nfs");
  EXPECT_EQ(mounts->Of("/srv"), nullptr);
}

TEST_F(DoctorTest, AnEncryptedVolumeIsSeen) {
  MakeData();
  EXPECT_EQ(Of(CheckDataDirectory(data(), files()), "device").verdict, Verdict::kNote);
  Put("sys/dev/block/254:0/dm/uuid", "CRYPT-LUKS2-0123\n");
  EXPECT_EQ(Of(CheckDataDirectory(data(), files()), "device").verdict, Verdict::kGood);
}

TEST_F(DoctorTest, ADirectoryToBeIsJudgedByItsParent) {
  const Findings findings = CheckDataDirectory((root_ / "no/such").string(), files());
  EXPECT_EQ(Of(findings, "access rights").verdict, Verdict::kNote);
  EXPECT_EQ(Of(findings, "file system").verdict, Verdict::kGood);
}

TEST_F(DoctorTest, ALedgerInsideTheDataDirectoryIsAnError) {
  MakeData();
  EXPECT_EQ(Of(CheckLedger(data() + "/ledger", data()), "erasure ledger").verdict, Verdict::kError);
  EXPECT_EQ(Of(CheckLedger(data() + "-ledger", data()), "erasure ledger").verdict, Verdict::kNote);
}

TEST_F(DoctorTest, ALedgerIsJudgedBeforeEitherDirectoryExists) {
  const auto verdict = [](const std::string& ledger, const std::string& data) {
    return Of(CheckLedger(ledger, data), "erasure ledger").verdict;
  };
  // Neither exists, nor does what holds them.
  const std::string far = (root_ / "srv/lethe/data").string();
  EXPECT_EQ(verdict((root_ / "srv/lethe-ledger").string(), far), Verdict::kNote);
  EXPECT_EQ(verdict(data() + "-ledger", data()), Verdict::kNote);
  EXPECT_EQ(verdict("no-such-ledger", "no-such-data"), Verdict::kNote);
  EXPECT_EQ(verdict(far + "/../ledger", far), Verdict::kNote);
  EXPECT_EQ(verdict(far + "/ledger", far + "/"), Verdict::kError);
  EXPECT_EQ(verdict(far + "/", far), Verdict::kError);
  EXPECT_EQ(verdict((root_ / "srv/../srv/lethe/./data/ledger").string(), far), Verdict::kError);
  EXPECT_EQ(verdict("no-such-data/ledger", fs::absolute("no-such-data").string()), Verdict::kError);
  // One is there already, or a link leads to it.
  MakeData();
  EXPECT_EQ(verdict(far, data()), Verdict::kNote);
  fs::create_directory_symlink(data(), root_ / "link");
  EXPECT_EQ(verdict((root_ / "link/ledger").string(), data()), Verdict::kError);
}

TEST_F(DoctorTest, AShortWeightsFileIsAnError) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  file += header + "12345678";
  Put("model/config.json", R"({"format": "lethe-model/1"})");
  Put("model/model.safetensors", file);
  const std::string model = (root_ / "model").string();
  EXPECT_EQ(Of(CheckModel(model), "model").verdict, Verdict::kGood);
  Put("model/model.safetensors", file.substr(0, file.size() - 1));
  EXPECT_EQ(Of(CheckModel(model), "model").verdict, Verdict::kError);
  for (size_t size = 0; size < file.size(); ++size) {
    Put("model/model.safetensors", file.substr(0, size));
    EXPECT_EQ(Of(CheckModel(model), "model").verdict, Verdict::kError) << size;
  }
  Put("model/config.json", R"({"format": "another"})");
  EXPECT_EQ(Of(CheckModel(model), "model").verdict, Verdict::kError);
}

TEST_F(DoctorTest, TheProgramSaysItWithItsExitCode) {
  const ProgramRun bad =
      RunLethe({"doctor", "--server=127.0.0.1:1", "--model", (root_ / "no-model").string()});
  EXPECT_EQ(bad.exit_code, kExitVerificationFailed);
  EXPECT_THAT(bad.out, HasSubstr("ERROR    model: config.json cannot be read"));
  EXPECT_THAT(bad.out, HasSubstr("ok       versions: lethe "));
  EXPECT_THAT(bad.out, HasSubstr("note     server: none answers at 127.0.0.1:1"));
  // As $(pidof lethe-server) gives them where two run.
  const ProgramRun two = RunLethe({"doctor", "--pid", "1000000001", "1000000002"});
  EXPECT_EQ(two.exit_code, kExitVerificationFailed);
  EXPECT_THAT(two.out, HasSubstr("no process 1000000001 is to be seen"));
  EXPECT_THAT(two.out, HasSubstr("no process 1000000002 is to be seen"));
  EXPECT_THAT(RunLethe({"doctor", "--pid", "1", "x"}).err, HasSubstr("--pid: want a whole number"));
  const ProgramRun json = RunLethe({"doctor", "--json", "--server=127.0.0.1:1"});
  EXPECT_THAT(json.out, HasSubstr(R"({"check":"processor","verdict":"ok")"));
}

}  // namespace
}  // namespace lethe::client
