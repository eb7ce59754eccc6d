// proof_bench: what a certificate of one support-vector head costs: the server's witness and proof, the
// bundle, and the verifier's whole work.
//
//   proof_bench [num_keys]             prints the figures
//   proof_bench [num_keys] DIRECTORY   and writes the certificate of the first shape with trust.txt there,
//                                      for `lethe verify DIRECTORY --trust DIRECTORY/trust.txt`
//
// Keys: unit vectors of 64 f32 components whose direction has `dims` degrees of freedom, in clusters or
// not; nu = 0.1, sigma = 1, ridge 2^-11; values of 64 components, 63 inputs in the tail. CPU milliseconds
// of one thread: median (least..greatest) of the runs. "verify" is everything that `lethe verify` computes:
// signatures, log, opening, bundle and proof.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "audit/certificate/bundle.h"
#include "audit/certificate/head_proof.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "audit/log/audit_log.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/witness.h"

namespace lethe::audit {
namespace {

constexpr size_t kDim = 64;
constexpr size_t kTail = 63;
constexpr char kOrigin[] = "bench.example/log";
constexpr int kRuns = 5;

struct KeySource {
  const char* name;
  size_t dims;
  size_t num_clusters;
  double spread;
};

// Of f32, widened.
std::vector<double> MakeKeys(const KeySource& source, size_t num_keys, std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  std::vector<double> basis(source.dims * kDim);
  for (double& x : basis) x = normal(*random);
  std::vector<double> centres(source.num_clusters * source.dims);
  for (double& x : centres) x = normal(*random);
  std::vector<double> keys;
  for (size_t i = 0; i < num_keys; ++i) {
    const size_t cluster = (*random)() % source.num_clusters;
    std::vector<double> key(kDim);
    for (size_t j = 0; j < source.dims; ++j) {
      const double weight = centres[cluster * source.dims + j] + source.spread * normal(*random);
      for (size_t c = 0; c < kDim; ++c) key[c] += weight * basis[j * kDim + c];
    }
    double norm = 0.0;
    for (const double x : key) norm += x * x;
    for (const double x : key) keys.push_back(static_cast<float>(x / std::sqrt(norm)));
  }
  return keys;
}

// Of this thread, so that other work on the machine does not count.
double CpuMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

std::string Time(const std::function<void()>& work) {
  std::vector<double> milliseconds;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = CpuMilliseconds();
    work();
    milliseconds.push_back(CpuMilliseconds() - begin);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  char text[80];
  std::snprintf(text, sizeof text, "%.1f ms (%.1f..%.1f)", milliseconds[kRuns / 2],
                milliseconds.front(), milliseconds.back());
  return text;
}

BundleHead MakeHead(const KeySource& source, size_t num_keys) {
  std::mt19937_64 random(7);
  BundleHead head;
  head.sigma = 1.0;
  head.box_mass = std::max(1.0, 0.1 * static_cast<double>(num_keys));
  head.ridge = 0x1.0p-11;
  head.key_dim = head.value_dim = kDim;
  head.keys = MakeKeys(source, num_keys, &random);
  head.values = MakeKeys(source, num_keys, &random);
  head.tail = BundleTail{MakeKeys(source, kTail, &random), MakeKeys(source, kTail, &random)};
  for (uint64_t id = 1; id <= num_keys; ++id) head.token_ids.push_back(id);
  const svdd::Params params = svdd::MakeParams(head.sigma, head.box_mass, head.ridge, kDim).value();
  const svdd::Solution solution = svdd::SolveCanonical(params, head.keys).value();
  head.rho = solution.rho;
  head.a = solution.a;
  for (const svdd::Partition place : solution.classes) {
    head.classes.push_back(place == svdd::Partition::kMargin  ? KeyClass::kMargin
                           : place == svdd::Partition::kError ? KeyClass::kError
                                                              : KeyClass::kReserve);
  }
  const svdd::ReportedSolution reported{solution.classes, solution.a, solution.rho, nullptr};
  const std::string witness =
      Time([&] { head.witness = svdd::RefineWitness(params, head.keys, reported); });
  std::printf(
      "%-10s n %zu d %zu M %.1f: S %zu E %zu\n  witness %s\n", source.name, num_keys, kDim,
      head.box_mass,
      static_cast<size_t>(std::count(head.classes.begin(), head.classes.end(), KeyClass::kMargin)),
      static_cast<size_t>(std::count(head.classes.begin(), head.classes.end(), KeyClass::kError)),
      witness.c_str());
  return head;
}

StateParts MakeParts(const BundleHead& head) {
  StateParts parts;
  const Sha256Digest zeros{};
  parts.Add("model", AsStringView(zeros));
  parts.Add("numerics", AsStringView(zeros));
  parts.Add("device", "cpu");
  parts.Add("options", "");
  ByteWriter count;
  count.U64(head.token_ids.size() + kTail);
  parts.Add("tokens", count.bytes());
  parts.Add(SupportPartName(0, 0, 0), SupportStateBytes(HeadSupportState(head)));
  ByteWriter memory;
  AppendHeadMemory(head, &memory);
  parts.Add(MemoryPartName(0, 0), memory.bytes());
  return parts;
}

RecordDraft MakeDraft(const BundleHead& head, const StateParts& parts,
                      const svdd::OptimalityBounds& bounds) {
  RecordDraft draft;
  draft.kind = RecordKind::kCertify;
  draft.session_id = "session";
  draft.nonce = "0123456789abcdef";
  draft.request_id = "request";
  draft.issued_at = "2026-09-20T12:34:56Z";
  draft.engine.build = "bench";
  draft.engine.algorithm = "bench";
  draft.engine.device_kind = "cpu";
  draft.digest_after = parts.Digest();
  draft.retained = head.token_ids;
  for (size_t i = 0; i < kTail; ++i) draft.retained.push_back(draft.retained.back() + 1);
  draft.layers = {{0, "svdd", LayerMethod::kUnchanged}};
  draft.proves_optimality = true;
  MemoryDraft memory;
  memory.token_ids = head.token_ids;
  memory.classes = head.classes;
  memory.a = head.a;
  memory.smallest_margin = bounds.smallest_margin;
  memory.partition_proved = bounds.partition_proved;
  memory.deviation = ToDeviation(bounds);
  memory.part_hash = parts.parts()[5].hash;
  memory.witness_hash = WitnessHash(head.witness);
  draft.memories.push_back(std::move(memory));
  return draft;
}

void WriteFiles(const std::string& directory, const CertificateFiles& files,
                const TrustStore& trust) {
  const std::pair<const char*, const std::string*> contents[] = {{"envelope.json", &files.envelope},
                                                                 {"proof.tlog", &files.proof_file},
                                                                 {"opening.json", &*files.opening},
                                                                 {"bundle.json", &*files.bundle}};
  for (const auto& [name, bytes] : contents) std::ofstream(directory + "/" + name) << *bytes;
  std::ofstream(directory + "/trust.txt") << WriteTrust(trust);
}

void Run(const KeySource& source, size_t num_keys, const std::string& directory) {
  const BundleHead head = MakeHead(source, num_keys);
  std::optional<svdd::OptimalityBounds> bounds;
  const std::string prove = Time([&] { bounds = ProveHead(head).value(); });
  std::printf("  proof   %s, partition %s\n", prove.c_str(),
              bounds->partition_proved ? "proved" : "not proved");
  std::printf("  bounds: sum %.3g, alpha %.3g, rho %.3g, f %.3g, o %.3g\n",
              bounds->kernel_sum_bound, bounds->alpha_bound, bounds->rho_bound,
              bounds->decision_bound, bounds->readout_bound);
  const ServerKeys keys = ServerKeys::Generate();
  const std::string log_path =
      (std::filesystem::temp_directory_path() / "lethe-proof-bench").string();
  std::filesystem::remove_all(log_path);
  auto log = AuditLog::Open({log_path, kOrigin, keys.log_key}).value();
  Recorder recorder(keys, log.get());
  SessionRecords records;
  const StateParts parts = MakeParts(head);
  const FinishedRecord record = recorder.Record(MakeDraft(head, parts, *bounds), &records).value();
  CertificateFiles files{record.envelope, record.proof_file, std::nullopt, record.opening, {}};
  const std::string write = Time([&] {
    files.bundle = WriteBundle({record.leaf_hash, parts.parts(), {head}}).value();
  });
  const TrustStore trust = keys.Trust(kOrigin).value();
  const std::string verify = Time([&] { LETHE_CHECK(VerifyCertificate(files, trust).ok()); });
  std::printf("  bundle  %s, %.2f MB\n  verify  %s\n", write.c_str(),
              static_cast<double>(files.bundle->size()) * 1e-6, verify.c_str());
  std::fflush(stdout);
  if (!directory.empty()) WriteFiles(directory, files, trust);
  log.reset();
  std::filesystem::remove_all(log_path);
}

std::string MachineName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace
}  // namespace lethe::audit

int main(int argc, char** argv) {
  const size_t num_keys = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4096;
  std::printf("%s, one thread, %d runs\n", lethe::audit::MachineName().c_str(),
              lethe::audit::kRuns);
  lethe::audit::Run({"clusters", 12, 40, 0.4}, num_keys, argc > 2 ? argv[2] : "");
  lethe::audit::Run({"smooth 6", 6, 1, 1.0}, num_keys, "");
  lethe::audit::Run({"random", 64, 1, 1.0}, num_keys, "");
  return 0;
}
