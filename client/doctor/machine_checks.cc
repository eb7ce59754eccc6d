#include "client/doctor/machine_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lethe::client {
namespace {

Finding CheckProcessor(const SystemFiles& files) {
  Finding finding{Verdict::kGood, "processor", "", ""};
  const absl::StatusOr<std::string> flags = files.Field("/proc/cpuinfo", "flags\t\t:");
  if (!flags.ok()) {
    return {Verdict::kNote, finding.check, "what the processor can do is not to be read here", ""};
  }
  const std::vector<absl::string_view> has = absl::StrSplit(*flags, ' ');
  std::vector<absl::string_view> missing;
  for (const absl::string_view wanted : {"avx2", "fma", "bmi1", "bmi2", "f16c"}) {
    if (std::find(has.begin(), has.end(), wanted) == has.end()) missing.push_back(wanted);
  }
  if (missing.empty()) {
    finding.found = "has what x86-64-v3 asks for";
    return finding;
  }
  return {
      Verdict::kError, finding.check,
      absl::StrCat("lacks ", absl::StrJoin(missing, ", "), " of x86-64-v3"),
      "use a processor of 2015 or later (Haswell, Zen), or a virtual machine that shows its flags"};
}

// Swap areas that end up on a disk; zram compresses into memory.
Finding CheckSwap(const SystemFiles& files) {
  const Finding good{Verdict::kGood, "swap", "no page can be written to a disk", ""};
  const absl::StatusOr<std::string> text = files.Read("/proc/swaps");
  if (!text.ok()) return {Verdict::kNote, good.check, "swap areas are not to be read here", ""};
  std::vector<std::string> areas;
  const std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(lines[i], absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (!fields.empty() && !absl::StartsWith(fields[0], "/dev/zram")) {
      areas.emplace_back(fields[0]);
    }
  }
  if (areas.empty()) return good;
  return {Verdict::kWarning, good.check,
          absl::StrCat("the server's memory may be written to ", absl::StrJoin(areas, ", "),
                       ", which no Forget reaches"),
          "swapoff -a, or MemorySwapMax=0 for the service, or swap encrypted under a random key"};
}

Finding CheckHibernation(const SystemFiles& files) {
  const Finding good{Verdict::kGood, "hibernation", "the machine is not set up for it", ""};
  const absl::StatusOr<std::string> state = files.Read("/sys/power/state");
  const absl::StatusOr<std::string> resume = files.Read("/sys/power/resume");
  const bool possible = state.ok() && absl::StrContains(*state, "disk") && resume.ok() &&
                        absl::StripAsciiWhitespace(*resume) != "0:0";
  if (!possible) return good;
  return {Verdict::kWarning, good.check,
          "the machine can write all its memory to disk and go to sleep",
          "systemctl mask hibernate.target hybrid-sleep.target suspend-then-hibernate.target"};
}

Finding CheckKernelDumps(const SystemFiles& files) {
  const Finding good{Verdict::kGood, "kernel crash dumps", "none is loaded", ""};
  const absl::StatusOr<std::string> loaded = files.Read("/sys/kernel/kexec_crash_loaded");
  if (!loaded.ok() || absl::StripAsciiWhitespace(*loaded) != "1") return good;
  return {Verdict::kWarning, good.check,
          "a crash of the kernel writes the machine's memory to disk",
          "systemctl disable --now kdump-tools, or keep user pages out (makedumpfile -d 31)"};
}

// lethe-server forbids its own; programs that call it hold prompts and answers too.
Finding CheckCorePattern(const SystemFiles& files) {
  const Finding good{Verdict::kGood, "core pattern", "no program leaves a core dump", ""};
  const absl::StatusOr<std::string> pattern = files.Read("/proc/sys/kernel/core_pattern");
  if (!pattern.ok()) return {Verdict::kNote, good.check, "it is not to be read here", ""};
  const absl::string_view target = absl::StripAsciiWhitespace(*pattern);
  if (target.empty() || target == "|/bin/false" || target == "/dev/null") return good;
  return {
      Verdict::kNote, good.check,
      absl::StrCat("lethe-server forbids its own core dumps; a client that crashes leaves one, ",
                   target[0] == '|' ? "whatever its limit, with the program in core_pattern"
                                    : "where its limit allows it"),
      target[0] == '|' ? "Storage=none in coredump.conf, or kernel.core_pattern=|/bin/false"
                       : "ulimit -c 0 (LimitCORE=0 of a service) for what talks to the server"};
}

Finding CheckGpu(const SystemFiles& files) {
  const absl::StatusOr<std::string> driver = files.Read("/proc/driver/nvidia/version");
  if (!driver.ok()) {
    return {Verdict::kGood, "gpu", "no NVIDIA driver; the server computes on the processor", ""};
  }
  const std::vector<absl::string_view> lines = absl::StrSplit(*driver, '\n');
  return {Verdict::kGood, "gpu",
          absl::StrCat("driver: ", absl::StripAsciiWhitespace(lines[0]),
                       "; kernels for it are measured by lethe bench kernels, the server computes "
                       "on the processor"),
          ""};
}

Finding CheckCoreLimit(const std::string& process, const SystemFiles& files) {
  const Finding good{Verdict::kGood, "core dumps", "the process cannot leave one", ""};
  const absl::StatusOr<std::string> limit =
      files.Field(absl::StrCat(process, "/limits"), "Max core file size");
  if (!limit.ok()) return {Verdict::kNote, good.check, "its limits are not to be read here", ""};
  const std::vector<absl::string_view> fields = absl::StrSplit(*limit, ' ', absl::SkipEmpty());
  if (fields.size() >= 2 && fields[0] == "0" && fields[1] == "0") return good;
  return {Verdict::kError, good.check, "a crash would write the server's memory into a file",
          "the server sets this limit itself: is the process an old or a changed one?"};
}

Finding CheckSwapped(const std::string& process, const SystemFiles& files) {
  const Finding good{Verdict::kGood, "swapped pages", "none of the process's memory is swapped",
                     ""};
  const absl::StatusOr<std::string> swapped =
      files.Field(absl::StrCat(process, "/status"), "VmSwap:");
  if (!swapped.ok()) return {Verdict::kNote, good.check, "not to be read here", ""};
  if (absl::StartsWith(*swapped, "0 ")) return good;
  return {Verdict::kError, good.check,
          absl::StrCat(*swapped, " of the process's memory are in swap"),
          "stop the server, swapoff -a, overwrite the swap area, start the server"};
}

}  // namespace

Findings CheckMachine(const SystemFiles& files) {
  return {CheckProcessor(files),   CheckSwap(files),        CheckHibernation(files),
          CheckKernelDumps(files), CheckCorePattern(files), CheckGpu(files)};
}

Findings CheckProcess(int64_t pid, const SystemFiles& files) {
  const std::string process = absl::StrCat("/proc/", pid);
  const absl::StatusOr<std::string> name = files.Field(absl::StrCat(process, "/status"), "Name:");
  if (!name.ok()) {
    return {{Verdict::kError, "process", absl::StrCat("no process ", pid, " is to be seen"),
             "give the process id of lethe-server (pidof lethe-server)"}};
  }
  if (*name != "lethe-server") {
    return {{Verdict::kError, "process", absl::StrCat("process ", pid, " is not lethe-server"),
             "give the process id of lethe-server (pidof lethe-server)"}};
  }
  return {{Verdict::kGood, "process", absl::StrCat("process ", pid, " is lethe-server"), ""},
          CheckCoreLimit(process, files),
          CheckSwapped(process, files)};
}

}  // namespace lethe::client
