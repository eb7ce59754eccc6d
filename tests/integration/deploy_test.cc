// Goal: what deploy/ ships is what it says: the systemd unit verifies, is hardened, and the server runs in its sandbox; the options in
//   the unit's configuration, the image and the compose file are lethe-server's own; the containers have what the unit has.
// Method: systemd's own checker; lethe-server --check with the very words, on other directories; the server started with nothing else
//   writable, no capabilities, a /proc of its processes only and no memory that may become code, as the unit's sandbox does it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include <unistd.h>

#include "tests/testing/shell.h"

namespace lethe::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kSource[] = LETHE_SOURCE_DIR;
constexpr char kPrograms[] = LETHE_BINARY_DIR "/bin";

std::string Read(const std::string& path) {
  std::ifstream file(absl::StrCat(kSource, "/", path), std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class DeployTest : public ::testing::Test {
 protected:
  DeployTest() {
    std::string pattern = ::testing::TempDir() + "lethe-deploy-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~DeployTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Put(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  // Paths of an installation as those of this test.
  std::string Moved(const std::string& text) const {
    const std::string models = absl::StrCat(kSource, "/models/");
    return absl::StrReplaceAll(text, {{"/usr/local/bin/", absl::StrCat(kPrograms, "/")},
                                      {"/usr/local/share/lethe/models/", models},
                                      {"/usr/share/lethe/models/", models},
                                      {"/var/lib/lethe-ledger", Path("ledger")},
                                      {"/var/lib/lethe", Path("data")},
                                      {"/etc/lethe/lethe-server.conf", Path("lethe-server.conf")},
                                      // Another program may hold the port of the test's machine.
                                      {"127.0.0.1:7070", "127.0.0.1:0"}});
  }
  // The server reads these options, and what is stored, and ends.
  ShellRun Check(const std::string& options) const {
    return RunShell(
        absl::StrCat(kPrograms, "/lethe-server ", Moved(options), " --check 2>&1 </dev/null"));
  }
  std::string directory_;
};

// "Key=value" lines of the unit's [Service] section.
std::multiset<std::string> ServiceLines() {
  const std::string unit = Read("deploy/systemd/lethe-server.service");
  const size_t begin = unit.find("[Service]");
  const std::vector<std::string> lines =
      absl::StrSplit(unit.substr(begin, unit.find("[Install]") - begin), '\n');
  return {lines.begin(), lines.end()};
}

bool Has(const std::string& program) {
  return RunShell("command -v " + program + " >/dev/null").exit_code == 0;
}

TEST_F(DeployTest, TheUnitVerifiesAndIsHardened) {
  for (const char* line :
       {"User=lethe", "NoNewPrivileges=yes", "LimitCORE=0", "MemorySwapMax=0", "UMask=0077",
        "MemoryDenyWriteExecute=yes", "ProtectSystem=strict", "ProtectHome=yes",
        "StateDirectory=lethe lethe-ledger", "StateDirectoryMode=0700", "CapabilityBoundingSet="}) {
    EXPECT_EQ(ServiceLines().count(line), 1u) << line;
  }
  if (!Has("systemd-analyze")) GTEST_SKIP() << "no systemd-analyze (apt-get install systemd)";
  Put("lethe-server.service", Moved(Read("deploy/systemd/lethe-server.service")));
  const ShellRun verified =
      RunShell("systemd-analyze verify " + Path("lethe-server.service") + " 2>&1");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  EXPECT_EQ(verified.output, "");
  // In tenths: 0 is a service that can do nothing, 96 one without a sandbox.
  const ShellRun exposed = RunShell("systemd-analyze security --offline=true --threshold=15 " +
                                    Path("lethe-server.service") + " 2>&1");
  EXPECT_EQ(exposed.exit_code, 0) << exposed.output;
}

TEST_F(DeployTest, TheServiceStopsBeforeItIsKilled) {
  const auto number = [](const std::string& text, const std::string& key) {
    const size_t at = text.find(key);
    EXPECT_NE(at, std::string::npos) << key;
    return std::atoi(text.c_str() + at + key.size());
  };
  constexpr int kSpillSeconds = 10;  // server/main.cc, SpillAtEnd
  const std::string compose = Read("deploy/compose.yaml");
  EXPECT_GT(number(Read("deploy/systemd/lethe-server.service"), "\nTimeoutStopSec="),
            number(Read("deploy/systemd/lethe-server.conf"), "\ndrain-seconds = ") + kSpillSeconds);
  EXPECT_GT(number(compose, "stop_grace_period: "),
            number(compose, "\"--drain-seconds\", \"") + kSpillSeconds);
}

TEST_F(DeployTest, TheServiceConfigurationIsTheServers) {
  EXPECT_EQ(ServiceLines().count(
                "ExecStart=/usr/local/bin/lethe-server --config /etc/lethe/lethe-server.conf"),
            1u);
  Put("lethe-server.conf", Moved(Read("deploy/systemd/lethe-server.conf")));
  const ShellRun good = Check("--config /etc/lethe/lethe-server.conf");
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_THAT(good.output, HasSubstr("the configuration is valid"));
  Put("lethe-server.conf", Moved(Read("deploy/systemd/lethe-server.conf") + "no-such = 1\n"));
  const ShellRun bad = Check("--config /etc/lethe/lethe-server.conf");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.output, HasSubstr("no-such"));
}

TEST_F(DeployTest, TheImagesCommandIsTheServers) {
  const std::string file = Read("Dockerfile");
  EXPECT_THAT(file, HasSubstr("\nUSER 10001:10001\n"));
  EXPECT_THAT(file, HasSubstr("\nENTRYPOINT [\"lethe-server\"]\n"));
  const size_t begin = file.find("\nCMD [") + 5;
  const auto words = nlohmann::json::parse(file.substr(begin, file.find('\n', begin) - begin))
                         .get<std::vector<std::string>>();
  const ShellRun run = Check(absl::StrJoin(words, " "));
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST_F(DeployTest, TheComposedServerIsTheServersAndHardened) {
  if (RunShell("/usr/bin/python3 -c 'import yaml' 2>&1").exit_code != 0) {
    GTEST_SKIP() << "no YAML parser (apt-get install python3-yaml)";
  }
  const ShellRun parsed =
      RunShell(absl::StrCat("/usr/bin/python3 -c 'import json,sys,yaml; "
                            "print(json.dumps(yaml.safe_load(open(sys.argv[1]))))' ",
                            kSource, "/deploy/compose.yaml 2>&1"));
  ASSERT_EQ(parsed.exit_code, 0) << parsed.output;
  const nlohmann::json compose = nlohmann::json::parse(parsed.output);
  for (const auto& [name, service] : compose["services"].items()) {
    EXPECT_EQ(service.value("read_only", false), true) << name;
    EXPECT_EQ(service["cap_drop"], nlohmann::json({"ALL"})) << name;
    EXPECT_EQ(service["security_opt"], nlohmann::json({"no-new-privileges:true"})) << name;
    EXPECT_EQ(service["ulimits"]["core"], 0) << name;
    EXPECT_EQ(service["mem_limit"], service["memswap_limit"]) << name;  // no swap
    EXPECT_FALSE(service.contains("privileged")) << name;
  }
  const nlohmann::json& server = compose["services"]["server"];
  EXPECT_EQ(server["user"], "10001:10001");
  const auto words = server["command"].get<std::vector<std::string>>();
  EXPECT_THAT(words, Contains("127.0.0.1:7070"));
  const ShellRun run = Check(absl::StrJoin(words, " "));
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

// What the unit asks of systemd, asked of the kernel. Only SystemCallFilter is left out.
constexpr char kSandbox[] = R"(set -e
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$1"
install -d -o 65534 -g 65534 -m 0700 "$1/data" "$1/ledger"
mount -t proc -o subset=pid,hidepid=invisible proc /proc
while read -r _ point _; do
  case $point in /proc* | /dev* | /sys* | "$1") ;; *) mount -o remount,bind,ro "$point" ;; esac
done < <(cat /proc/self/mounts)
if touch "$2" 2>/dev/null; then echo 'the root is writable'; exit 1; fi
cat > "$1/start" <<'END'
import ctypes, os, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, where the kernel has it (6.3)
os.execv(sys.argv[1], sys.argv[1:])
END
as_lethe=(setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all --)
"${as_lethe[@]}" prlimit --core=0 --nofile=16384 -- /usr/bin/python3 "$1/start" "$3/lethe-server" \
  --config "$1.conf" --listen 127.0.0.1:0 > >(tee "$1/out") 2>&1 &
server=$!
until grep -q '^lethe-server listening on ' "$1/out" 2>/dev/null; do
  kill -0 $server || { cat "$1/out"; exit 1; }
  sleep 0.1
done
export LETHE_SERVER=$(sed -n 's/^lethe-server listening on //p' "$1/out")
cd "$1"
session=$("${as_lethe[@]}" "$3/lethe" session create --id-only)
"${as_lethe[@]}" "$3/lethe" append "$session" --text 'The night was quiet.' --subject patient-17
"${as_lethe[@]}" "$3/lethe" generate "$session" --max-tokens 8 --quiet
"${as_lethe[@]}" "$3/lethe" forget "$session" --subject patient-17 --derived forget
kill -TERM $server
wait $server
echo 'ended well'
)";

TEST_F(DeployTest, TheServerRunsInTheUnitsSandbox) {
  if (geteuid() != 0 || RunShell("unshare --mount --pid --fork true 2>&1").exit_code != 0) {
    GTEST_SKIP() << "needs root, to make namespaces";
  }
  Put("sandbox", kSandbox);
  std::filesystem::create_directory(Path("state"));
  Put("state.conf", absl::StrReplaceAll(Moved(Read("deploy/systemd/lethe-server.conf")),
                                        {{Path("data"), Path("state/data")},
                                         {Path("ledger"), Path("state/ledger")}}));
  // Whoever the server runs as must get here.
  RunShell("chmod 755 " + directory_);
  const ShellRun run =
      RunShell(absl::StrCat("unshare --mount --pid --fork --kill-child bash ", Path("sandbox"), " ",
                            Path("state"), " ", Path("written"), " ", kPrograms, " 2>&1"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("Forgot "));
  EXPECT_THAT(run.output, HasSubstr("ended well"));
}

}  // namespace
}  // namespace lethe::testing
