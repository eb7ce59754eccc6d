// Goal: every single-field mutation of envelope, proof file, checkpoint, opening and bundle is
// refused, and the check it belongs to is the one that fails.
// Method: one named test per mutation: by hand for the line formats, field by field
// (json_mutations.h) for the JSON ones. Bit flips over whole files come on top.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/verify.h"
#include "audit/crypto/encoding.h"
#include "audit/log/checkpoint.h"
#include "audit/log/tlog_proof.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/audit/certificate/json_mutations.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

constexpr size_t kRecord = CertificateWorld::kCertifyRecord;

struct Mutant {
  std::string name;
  CertificateFiles files;
  std::string check;
};

CertificateFiles Original() { return SharedWorld().Files(kRecord, true); }

void AddEnvelopeMutants(std::vector<Mutant>* mutants) {
  const CertificateFiles original = Original();
  const std::pair<const char*, const char*> rules[] = {
      {"payload change", "envelope|signature"},
      {"payloadType change", "payload type"},
      {"signatures[0].keyid change", "record key"},
      {"signatures[0].sig change", "envelope|signature"},
      {"*", "envelope"},
  };
  for (const JsonMutation& mutation : MutateJson(original.envelope)) {
    Mutant mutant{"envelope_" + mutation.Name(), original, ""};
    mutant.files.envelope = mutation.bytes;
    for (const auto& [pattern, check] : rules) {
      if (mutant.check.empty() && MatchesGlob(mutation.path + " " + mutation.kind, pattern)) {
        mutant.check = check;
      }
    }
    mutants->push_back(std::move(mutant));
  }
  const auto add = [&](const char* name, const DsseEnvelope& envelope, const char* check) {
    Mutant mutant{name, original, check};
    mutant.files.envelope = WriteEnvelope(envelope);
    mutants->push_back(std::move(mutant));
  };
  const DsseEnvelope envelope = ParseEnvelope(original.envelope).value();
  const Ed25519PrivateKey other = Ed25519PrivateKey::Generate();
  add("envelope_signed_by_another_key", SignEnvelope(kPayloadType, envelope.payload, other),
      "record key");
  DsseEnvelope forged = SignEnvelope(kPayloadType, envelope.payload, other);
  forged.key_id = envelope.key_id;
  add("envelope_signed_by_another_key_under_the_trusted_key_id", forged, "signature");
  add("envelope_signed_by_the_log_key",
      SignEnvelope(kPayloadType, envelope.payload, *SharedWorld().keys().log_key), "record key");
  add("envelope_same_key_other_payload",
      ParseEnvelope(SharedWorld().record(CertificateWorld::kForgetRecord).envelope).value(),
      "inclusion");
  add("envelope_other_payload_type_signed",
      SignEnvelope("text/plain", envelope.payload, *SharedWorld().keys().record_key),
      "payload type");
  DsseEnvelope lent = ParseEnvelope(SharedWorld().record(0).envelope).value();
  lent.payload = envelope.payload;
  add("envelope_signature_of_another_record", lent, "signature");
}

// Replaces line `index` of the proof file.
CertificateFiles WithLine(size_t index, const std::string& line) {
  CertificateFiles files = Original();
  std::vector<std::string> lines = absl::StrSplit(files.proof_file, '\n');
  lines[index] = line;
  files.proof_file = absl::StrJoin(lines, "\n");
  return files;
}

void AddProofMutants(std::vector<Mutant>* mutants) {
  const CertificateFiles original = Original();
  const TlogProof proof = ParseTlogProof(original.proof_file).value();
  const size_t num_hashes = proof.hashes.size();
  ASSERT_GT(num_hashes, 0u);
  const auto add = [&](const std::string& name, const CertificateFiles& files, const char* check) {
    mutants->push_back({"proof_" + name, files, check});
  };
  const auto with_proof = [&](const TlogProof& changed) {
    CertificateFiles files = original;
    files.proof_file = WriteTlogProof(changed);
    return files;
  };
  add("magic", WithLine(0, "c2sp.org/tlog-proof@v2"), "proof file");
  add("index_lower", WithLine(1, "index 1"), "inclusion");
  add("index_outside", WithLine(1, "index 3"), "inclusion");
  add("index_text", WithLine(1, "index two"), "proof file");
  for (size_t i = 0; i < num_hashes; ++i) {
    TlogProof changed = proof;
    changed.hashes[i][0] ^= 1;
    add("hash_" + std::to_string(i) + "_changed", with_proof(changed), "inclusion");
    changed = proof;
    changed.hashes.erase(changed.hashes.begin() + static_cast<std::ptrdiff_t>(i));
    add("hash_" + std::to_string(i) + "_missing", with_proof(changed), "inclusion");
    add("hash_" + std::to_string(i) + "_no_base64", WithLine(2 + i, "*"), "proof file");
  }
  TlogProof more = proof;
  more.hashes.push_back(more.hashes[0]);
  add("hash_added", with_proof(more), "inclusion");
  TlogProof extra = proof;
  extra.extra = "anything";
  add("extra_line", with_proof(extra), "proof file");
  CertificateFiles of_another = original;
  of_another.proof_file = SharedWorld().record(CertificateWorld::kForgetRecord).proof_file;
  add("of_another_record", of_another, "inclusion");
  CertificateFiles empty = original;
  empty.proof_file.clear();
  add("empty", empty, "proof file");
  CertificateFiles leaf = original;
  leaf.leaf = SharedWorld().log()->Leaf(0).value();
  add("leaf_of_another_record", leaf, "leaf binding");
}

void AddCheckpointMutants(std::vector<Mutant>* mutants) {
  const CertificateFiles original = Original();
  const TlogProof proof = ParseTlogProof(original.proof_file).value();
  const std::vector<std::string> lines = absl::StrSplit(original.proof_file, '\n');
  // magic, index, hashes, empty, origin, size, root, empty, signature, ""
  const size_t origin_line = 3 + proof.hashes.size();
  const auto add = [&](const std::string& name, const CertificateFiles& files, const char* check) {
    mutants->push_back({"proof_" + name, files, check});
  };
  const auto with_proof = [&](const TlogProof& changed) {
    CertificateFiles files = original;
    files.proof_file = WriteTlogProof(changed);
    return files;
  };
  add("checkpoint_origin", WithLine(origin_line, "test.example/lag"), "checkpoint");
  add("checkpoint_size", WithLine(origin_line + 1, "4"), "checkpoint");
  add("checkpoint_root", WithLine(origin_line + 2, Base64Encode(Sha256Of("another root"))),
      "checkpoint");
  const std::string& signature_line = lines[origin_line + 4];
  std::string other_name = signature_line;
  other_name.replace(other_name.find("log "), 3, "lag");
  add("checkpoint_signature_name", WithLine(origin_line + 4, other_name), "checkpoint");
  std::string other_key_id = signature_line;
  char& key_id = other_key_id[other_key_id.rfind(' ') + 1];
  key_id = key_id == 'A' ? 'B' : 'A';
  add("checkpoint_signature_key_id", WithLine(origin_line + 4, other_key_id), "checkpoint");
  std::string other_signature = signature_line;
  char& signature = other_signature[other_signature.size() - 10];
  signature = signature == 'A' ? 'B' : 'A';
  add("checkpoint_signature", WithLine(origin_line + 4, other_signature), "checkpoint");
  add("checkpoint_signature_missing", WithLine(origin_line + 4, ""), "checkpoint");
  TlogProof forked = proof;
  forked.checkpoint =
      SignCheckpoint({kTestOrigin, 3, Sha256Of("fork")}, *SharedWorld().keys().log_key);
  add("checkpoint_of_a_fork_by_the_trusted_key", with_proof(forked), "inclusion");
  TlogProof foreign = proof;
  const Checkpoint head = ParseCheckpointText(ParseNote(proof.checkpoint).value().text).value();
  foreign.checkpoint = SignCheckpoint(head, Ed25519PrivateKey::Generate());
  add("checkpoint_by_an_untrusted_key", with_proof(foreign), "checkpoint");
  foreign.checkpoint = SignCheckpoint(head, *SharedWorld().keys().record_key);
  add("checkpoint_by_the_record_key", with_proof(foreign), "checkpoint");
}

void AddOpeningMutants(std::vector<Mutant>* mutants) {
  const CertificateFiles original = SharedWorld().Files(CertificateWorld::kForgetRecord, false);
  const std::pair<const char*, const char*> rules[] = {
      {"{certSalt,stateDigest} change", "subject digest"},
      {"retained[?] duplicate", "opening"},
      {"forgotten[?] duplicate", "opening"},
      {"derivedKept[?] duplicate", "opening"},
      {"retained[?] remove", "retained set"},
      {"forgotten[?] remove", "forgotten set"},
      {"derivedKept[?] remove", "derived set"},
      {"retained[?][?] change", "opening|retained set"},
      {"forgotten[?][?] change", "opening|forgotten set"},
      {"derivedKept[?][?] change", "opening|derived set"},
      {"*", "opening"},
  };
  for (const JsonMutation& mutation : MutateJson(*original.opening)) {
    Mutant mutant{"opening_" + mutation.Name(), original, ""};
    mutant.files.opening = mutation.bytes;
    for (const auto& [pattern, check] : rules) {
      if (mutant.check.empty() && MatchesGlob(mutation.path + " " + mutation.kind, pattern)) {
        mutant.check = check;
      }
    }
    mutants->push_back(std::move(mutant));
  }
  Mutant other{"opening_of_another_record", original, "opening"};
  other.files.opening = SharedWorld().record(kRecord).opening;
  mutants->push_back(other);
  other.name = "opening_not_canonical";
  other.files.opening = *original.opening + "\n";
  mutants->push_back(other);
  Opening rebound = ParseOpening(SharedWorld().record(kRecord).opening).value();
  rebound.leaf_hash = SharedWorld().record(CertificateWorld::kForgetRecord).leaf_hash;
  other.name = "opening_of_another_record_under_this_leaf";
  other.files.opening = WriteOpening(rebound);
  other.check = "subject digest";
  mutants->push_back(other);
}

void AddBundleMutants(std::vector<Mutant>* mutants) {
  const CertificateFiles original = Original();
  const std::pair<const char*, const char*> rules[] = {
      {"parts[?]* {change,remove,duplicate}", "bundle|bundle path"},
      {"heads[?].{sigma,boxMass,ridge,rho} {up,down}", "bundle path"},
      {"heads[?].a[?] {up,down}", "bundle path|partition rows"},
      {"heads[?].classes change", "bundle|bundle path"},
      {"heads[?].keys[?] {change,up,down}", "bundle path"},
      {"heads[?].values[?] {change,up,down}", "bundle path"},
      {"heads[?].tail{Keys,Values}[?] {change,up,down,duplicate,remove}", "bundle|bundle path"},
      {"heads[?].witness remove", "evidence"},
      {"heads[?].witness.* {change,up,down,duplicate}", "bundle|evidence"},
      {"heads[?].witness.a[?] remove", "evidence"},
      {"heads[?].tokenIds[?]*", "bundle|partition rows"},
      {"*", "bundle"},
  };
  for (const JsonMutation& mutation : MutateJson(*original.bundle)) {
    Mutant mutant{"bundle_" + mutation.Name(), original, ""};
    mutant.files.bundle = mutation.bytes;
    for (const auto& [pattern, check] : rules) {
      if (mutant.check.empty() && MatchesGlob(mutation.path + " " + mutation.kind, pattern)) {
        mutant.check = check;
      }
    }
    mutants->push_back(std::move(mutant));
  }
  const auto add = [&](const char* name, const ProofBundle& bundle, const char* check) {
    Mutant mutant{name, original, check};
    mutant.files.bundle = WriteBundle(bundle).value();
    mutants->push_back(std::move(mutant));
  };
  ProofBundle bundle = SharedWorld().bundle();
  bundle.leaf_hash = SharedWorld().record(0).leaf_hash;
  add("bundle_of_another_record", bundle, "bundle");
  bundle = SharedWorld().bundle();
  std::swap(bundle.heads[0], bundle.heads[1]);
  add("bundle_heads_swapped", bundle, "bundle");
  bundle = SharedWorld().bundle();
  std::swap(bundle.parts[0], bundle.parts[1]);
  add("bundle_parts_swapped", bundle, "bundle path");
  bundle = SharedWorld().bundle();
  std::swap(bundle.heads[0].keys[0], bundle.heads[0].keys[3]);
  add("bundle_keys_exchanged", bundle, "bundle path");
  bundle = SharedWorld().bundle();
  bundle.heads[0].keys[0] = -bundle.heads[0].keys[0];
  add("bundle_key_sign", bundle, "bundle path");
}

std::vector<Mutant> AllMutants() {
  std::vector<Mutant> mutants;
  AddEnvelopeMutants(&mutants);
  AddProofMutants(&mutants);
  AddCheckpointMutants(&mutants);
  AddOpeningMutants(&mutants);
  AddBundleMutants(&mutants);
  return mutants;
}

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }

class RecordMutationTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(RecordMutationTest, IsRefusedByItsCheck) {
  const VerifyReport report =
      VerifyCertificate(GetParam().files, SharedWorld().trust(), {kTestNonce});
  EXPECT_FALSE(report.ok());
  ASSERT_NE(report.first_failure(), nullptr);
  const std::vector<std::string> want = absl::StrSplit(GetParam().check, '|');
  EXPECT_NE(std::find(want.begin(), want.end(), report.first_failure()->name), want.end())
      << "want " << GetParam().check << ", got " << report.first_failure()->name << ": "
      << report.first_failure()->detail;
  EXPECT_FALSE(report.first_failure()->detail.empty());
}

std::string MutantName(const ::testing::TestParamInfo<Mutant>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, RecordMutationTest, ::testing::ValuesIn(AllMutants()), MutantName);

TEST(RecordBitFlipTest, EveryFlippedBitOfEnvelopeAndProofFileIsRefused) {
  const CertificateFiles original = SharedWorld().Files(CertificateWorld::kForgetRecord, false);
  for (std::string CertificateFiles::*file :
       {&CertificateFiles::envelope, &CertificateFiles::proof_file}) {
    for (size_t bit = 0; bit < (original.*file).size() * 8; ++bit) {
      CertificateFiles flipped = original;
      char& byte = (flipped.*file)[bit / 8];
      byte = static_cast<char>(byte ^ (1 << (bit % 8)));
      ASSERT_FALSE(VerifyCertificate(flipped, SharedWorld().trust()).ok()) << bit;
    }
  }
}

// One bit of every byte: a bundle is long, and verifying it costs more.
TEST(RecordBitFlipTest, AFlippedBitInEachByteOfOpeningAndBundleIsRefused) {
  const CertificateFiles original = Original();
  for (std::optional<std::string> CertificateFiles::*file :
       {&CertificateFiles::opening, &CertificateFiles::bundle}) {
    for (size_t at = 0; at < (original.*file)->size(); ++at) {
      CertificateFiles flipped = original;
      char& byte = (*(flipped.*file))[at];
      byte = static_cast<char>(byte ^ (1 << (at % 8)));
      ASSERT_FALSE(VerifyCertificate(flipped, SharedWorld().trust()).ok()) << at;
    }
  }
}

TEST(RecordCutTest, EveryCutOfEveryFileIsRefused) {
  const CertificateFiles original = Original();
  for (size_t size = 0; size < original.envelope.size(); size += 7) {
    CertificateFiles cut = original;
    cut.envelope.resize(size);
    ASSERT_FALSE(VerifyCertificate(cut, SharedWorld().trust()).ok()) << size;
  }
  for (size_t size = 0; size < original.opening->size(); ++size) {
    CertificateFiles cut = original;
    cut.opening->resize(size);
    ASSERT_FALSE(VerifyCertificate(cut, SharedWorld().trust()).ok()) << size;
  }
  for (size_t size = 0; size < original.bundle->size(); size += 13) {
    CertificateFiles cut = original;
    cut.bundle->resize(size);
    ASSERT_FALSE(VerifyCertificate(cut, SharedWorld().trust()).ok()) << size;
  }
}

}  // namespace
}  // namespace lethe::audit
