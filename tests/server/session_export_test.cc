// Goal: a session that is exported and imported has the same digest and goes on with the same tokens; a file that is not
// whole and unchanged, or not of this server's model, changes nothing; an import over a session replaces all or nothing.
// Method: model sessions with every memory kind and vector sessions on a data directory; every bit and every length of a
// small file, splices of two, a kill at every point of an import.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "server/session_export/export_stream.h"
#include "server/session_export/session_transfer.h"
#include "tests/server/store_testing.h"
#include "tests/server/subject_world.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;

const audit::Secret32& ExportKey() {
  static const auto* key = new audit::Secret32(audit::Secret32::Random());
  return *key;
}

struct ExportWorld : SubjectWorld {
  absl::StatusOr<std::string> Export(const std::string& id,
                                     const audit::Secret32& key = ExportKey()) {
    std::string file;
    const FakeCall call;
    LETHE_RETURN_IF_ERROR(
        ExportSession(key, call, world.scheduler(), world.Find(id), [&](std::string piece) {
          file += piece;
          return absl::OkStatus();
        }));
    return file;
  }
  absl::StatusOr<ImportReceipt> Import(const std::string& file, const std::string& replaced = "",
                                       const std::string& request_id = "",
                                       const ModelSet* loaded = nullptr) {
    ExportOpener opener(ExportKey());
    LETHE_RETURN_IF_ERROR(opener.Add(file));
    LETHE_ASSIGN_OR_RETURN(const std::string plain, opener.Finish());
    return ImportPlain(plain, replaced, request_id, loaded);
  }
  absl::StatusOr<ImportReceipt> ImportPlain(const std::string& plain,
                                            const std::string& replaced = "",
                                            const std::string& request_id = "",
                                            const ModelSet* loaded = nullptr) {
    LETHE_ASSIGN_OR_RETURN(ExportedSession exported, DecodeExport(plain));
    ImportTools tools = {&world.registry(), world.scheduler(), loaded};
    if (loaded == nullptr) tools.models = &models;
    const FakeCall call;
    return ImportSession(std::move(exported), {replaced, "", Key(request_id)}, call, tools);
  }
  std::string Plain(const std::string& file) {
    ExportOpener opener(ExportKey());
    EXPECT_OK(opener.Add(file));
    return opener.Finish().value();
  }

  ModelSet models;
};

class SessionExportTest : public ::testing::Test {
 protected:
  SessionExportTest() {
    EXPECT_OK(world_.Open());
    EXPECT_OK(world_.models.Add(TinyModel()));
  }
  std::string ModelSession() {
    const std::string id = world_.world.NewModelSession()->session_id;
    EXPECT_OK(world_.world.Append(id, "the first visit", "", ""));
    EXPECT_OK(world_.world.Append(id, "takes zelvim", kLabel, ""));
    EXPECT_OK(world_.world.Generate(id, "and then", "g1", 90));
    EXPECT_OK(world_.world.Append(id, "more", "a label\twith\x01 bytes", ""));
    return id;
  }
  std::string VectorSession() {
    const std::string id = world_.world.NewVectorSession()->session_id;
    EXPECT_OK(world_.world.AppendRows(id, 40, 1, "", ""));
    EXPECT_OK(world_.world.AppendRows(id, 7, 2, kLabel, ""));
    return id;
  }
  // Inputs and digest, without what belongs to the session's place.
  struct Content {
    std::vector<std::string> inputs;
    audit::Sha256Digest digest{};
    uint64_t next_token_id = 0;
    bool operator==(const Content& other) const {
      return inputs == other.inputs && digest == other.digest &&
             next_token_id == other.next_token_id;
    }
  };
  Content ContentOf(const std::string& id) {
    const SessionView view = world_.world.View(id);
    return {view.inputs, view.digest, view.next_token_id};
  }
  // The same without token_ids: an import in place of a session moves them.
  static std::vector<std::string> WithoutIds(std::vector<std::string> inputs) {
    for (std::string& input : inputs) input.erase(0, input.find(' '));
    return inputs;
  }
  int64_t num_sessions() { return world_.world.registry().num_sessions(); }

  ExportWorld world_;
};

TEST_F(SessionExportTest, AModelSessionGoesOnWithTheSameTokens) {
  const std::string id = ModelSession();
  ASSERT_OK(world_.world.Forget(id, kLabel, ""));  // leaves gaps and derived tokens
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  EXPECT_EQ(CountFound({{"file", file}}, {"zelvim", "visit", kLabel, "a label", id}), 0);
  ASSERT_OK_AND_ASSIGN(const ImportReceipt receipt, world_.Import(file));
  const std::string copy = receipt.entry->session_id;
  EXPECT_NE(copy, id);
  EXPECT_FALSE(receipt.reevaluated);
  EXPECT_EQ(receipt.digest, receipt.exported_digest);
  EXPECT_TRUE(ContentOf(copy) == ContentOf(id));
  EXPECT_EQ(receipt.entry->display_name, "a name");
  EXPECT_EQ(receipt.entry->Info().audit_seq, 0u);
  EXPECT_EQ(world_.world.Find(id)->Info().num_exports, 1);
  // The same seed draws the same; the copies are apart.
  ASSERT_OK(world_.world.Generate(id, "", "g2", 30));
  ASSERT_OK(world_.world.Generate(copy, "", "g2", 30));
  EXPECT_TRUE(ContentOf(copy) == ContentOf(id));
  ASSERT_OK(world_.world.Append(copy, "apart", "", ""));
  const Content after = ContentOf(copy);
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(ContentOf(copy) == after);
  EXPECT_EQ(world_.world.Find(id)->Info().num_exports, 1);
  ASSERT_OK(world_.world.Forget(copy, "answers", "f1"));
  EXPECT_EQ(world_.Digest(copy), world_.Fresh(copy));
}

TEST_F(SessionExportTest, AVectorSessionComesBackWithItsSelection) {
  const std::string id = VectorSession();
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt certified, world_.world.RunCertify(id, ""));
  ASSERT_OK(world_.world.Evict(id, certified.certificate.ref.seq, ""));
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  ASSERT_OK_AND_ASSIGN(const ImportReceipt receipt, world_.Import(file));
  EXPECT_TRUE(ContentOf(receipt.entry->session_id) == ContentOf(id));
  FairMutexLock lock(&receipt.entry->mutex);
  EXPECT_TRUE(receipt.entry->LiveVectorSession().value()->selected());
}

TEST_F(SessionExportTest, AnEmptySessionToo) {
  for (const bool vectors : {false, true}) {
    const std::string id = vectors ? world_.world.NewVectorSession()->session_id
                                   : world_.world.NewModelSession()->session_id;
    ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
    ASSERT_OK_AND_ASSIGN(const ImportReceipt receipt, world_.Import(file));
    EXPECT_TRUE(ContentOf(receipt.entry->session_id) == ContentOf(id));
  }
}

TEST_F(SessionExportTest, ASpilledSessionIsExportedAsItIs) {
  const std::string id = ModelSession();
  const Content before = ContentOf(id);
  ASSERT_OK(world_.Open());
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  ASSERT_OK_AND_ASSIGN(const ImportReceipt receipt, world_.Import(file));
  EXPECT_TRUE(ContentOf(receipt.entry->session_id) == before);
}

TEST_F(SessionExportTest, EveryBitAndEveryLengthCounts) {
  const std::string id = world_.world.NewModelSession()->session_id;
  ASSERT_OK(world_.world.Append(id, "ab", "x", ""));
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  ASSERT_LT(file.size(), 1000u);
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string changed = file;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    const absl::Status status = world_.Import(changed).status();
    EXPECT_THAT(ReasonOf(status), AnyOf(Eq("EXPORT_NOT_AUTHENTIC"), Eq("EXPORT_FORMAT"))) << bit;
  }
  for (size_t size = 0; size < file.size(); ++size) {
    const absl::Status status = world_.Import(file.substr(0, size)).status();
    EXPECT_THAT(ReasonOf(status), AnyOf(Eq("EXPORT_NOT_AUTHENTIC"), Eq("EXPORT_FORMAT"))) << size;
  }
  EXPECT_EQ(ReasonOf(world_.Import(file + "x").status()), "EXPORT_NOT_AUTHENTIC");
  EXPECT_EQ(num_sessions(), 1);
}

TEST_F(SessionExportTest, WhatIsNoSessionOfThisServerIsRefused) {
  const std::string id = ModelSession();
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  const std::string plain = world_.Plain(file);
  const ModelSet none;
  EXPECT_EQ(ReasonOf(world_.Import(file, "", "", &none).status()), "MODEL_NOT_LOADED");
  const auto changed = [&](const std::function<void(ExportedSession*)>& change) {
    ExportedSession exported = DecodeExport(plain).value();
    change(&exported);
    return ReasonOf(
        world_.ImportPlain(EncodeExport(exported, exported.history.inputs, {})).status());
  };
  EXPECT_EQ(changed([](ExportedSession* s) { s->state_digest[7] ^= 1; }), "DIGEST_MISMATCH");
  EXPECT_EQ(changed([](ExportedSession* s) { s->next_token_id = 3; }), "EXPORT_CONTENT");
  EXPECT_EQ(changed([](ExportedSession* s) { s->next_token_id = ~uint64_t{0}; }), "EXPORT_CONTENT");
  EXPECT_EQ(changed([](ExportedSession* s) { s->display_name = std::string(200, 'n'); }),
            "EXPORT_CONTENT");
  EXPECT_EQ(changed([](ExportedSession* s) { s->display_name = "\xff"; }), "EXPORT_CONTENT");
  EXPECT_EQ(changed([](ExportedSession* s) { s->model->memory.ovq_slots = 1 << 30; }),
            "EXPORT_CONTENT");
  EXPECT_EQ(changed([](ExportedSession* s) { s->model->memory.sv_sigma = -1; }), "EXPORT_CONTENT");
  const auto with_input = [&](const Input& input, const std::string& label) {
    return changed([&](ExportedSession* s) { s->history.inputs.AppendStored(input, label); });
  };
  Input input;
  input.token_id = DecodeExport(plain)->next_token_id - 1;
  input.token_id += 1;  // not below next_token_id
  EXPECT_EQ(with_input(input, ""), "EXPORT_CONTENT");
  // Nothing of this left a session, and an export whose digest no machine of this kind made is evaluated anew.
  EXPECT_EQ(num_sessions(), 1);
  ExportedSession moved = DecodeExport(plain).value();
  moved.numerics_id[0] ^= 1;
  moved.state_digest[0] ^= 1;
  ASSERT_OK_AND_ASSIGN(const ImportReceipt receipt,
                       world_.ImportPlain(EncodeExport(moved, moved.history.inputs, {})));
  EXPECT_TRUE(receipt.reevaluated);
  EXPECT_EQ(receipt.digest, world_.Digest(id));
}

TEST_F(SessionExportTest, AnImportInPlaceOfASessionKeepsItsKind) {
  const std::string model = ModelSession();
  const std::string vectors = VectorSession();
  ASSERT_OK_AND_ASSIGN(const std::string model_file, world_.Export(model));
  ASSERT_OK_AND_ASSIGN(const std::string vectors_file, world_.Export(vectors));
  const Content model_before = ContentOf(model);
  const Content vectors_before = ContentOf(vectors);
  for (const bool empty : {false, true}) {
    const std::string model_target = empty ? world_.world.NewModelSession()->session_id : model;
    const std::string vectors_target =
        empty ? world_.world.NewVectorSession()->session_id : vectors;
    EXPECT_EQ(ReasonOf(world_.Import(model_file, vectors_target).status()), "WRONG_SESSION_KIND");
    EXPECT_EQ(ReasonOf(world_.Import(vectors_file, model_target).status()), "WRONG_SESSION_KIND");
  }
  EXPECT_TRUE(ContentOf(model) == model_before);
  EXPECT_TRUE(ContentOf(vectors) == vectors_before);
  // A session that waits on disk too.
  ASSERT_OK(world_.Open());
  EXPECT_EQ(ReasonOf(world_.Import(model_file, vectors).status()), "WRONG_SESSION_KIND");
  EXPECT_OK(world_.Import(vectors_file, vectors).status());
}

TEST_F(SessionExportTest, AnImportInPlaceOfASessionKeepsItsNumbering) {
  const std::string id = ModelSession();
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  const Content exported = ContentOf(id);
  const std::string target = world_.world.NewModelSession()->session_id;
  ASSERT_OK(world_.world.Append(target, "goes away", "other", "a1"));
  ASSERT_OK(world_.world.Forget(target, "other", "f1"));
  ASSERT_OK(world_.world.Append(target, "goes too", "", "a2"));
  const uint64_t given_out = ContentOf(target).next_token_id;
  const std::shared_ptr<SessionEntry> old = world_.world.Find(target);
  EXPECT_EQ(ReasonOf(world_.Import(file, "no-such-session").status()), "SESSION_NOT_FOUND");
  {
    FairMutexLock lock(&old->mutex);
    ASSERT_OK(old->BeginWrite());
  }
  EXPECT_EQ(ReasonOf(world_.Import(file, target).status()), "SESSION_BUSY");
  {
    FairMutexLock lock(&old->mutex);
    old->EndWrite();
  }
  ASSERT_OK_AND_ASSIGN(const ImportReceipt receipt, world_.Import(file, target, "i1"));
  EXPECT_EQ(receipt.entry->session_id, target);
  const Content replaced = ContentOf(target);
  EXPECT_EQ(replaced.digest, exported.digest);
  EXPECT_EQ(WithoutIds(replaced.inputs), WithoutIds(exported.inputs));
  // No id that the session gave out before stands for another input now.
  EXPECT_EQ(replaced.next_token_id, exported.next_token_id + given_out - 1);
  EXPECT_EQ(replaced.inputs.front().substr(0, replaced.inputs.front().find(' ')),
            absl::StrCat(given_out));
  EXPECT_EQ(num_sessions(), 2);
  {
    FairMutexLock lock(&old->mutex);
    EXPECT_EQ(ReasonOf(old->LiveSession().status()), "SESSION_DELETED");
  }
  // Its records go on from the one before; that opens nothing any more.
  const FakeCall call;
  ASSERT_OK_AND_ASSIGN(const FetchedCertificate before,
                       GetCertificate(1, false, call, world_.world.scheduler(),
                                      *world_.world.trail(), receipt.entry));
  EXPECT_EQ(before.certificate.opening, "");
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt forgotten, world_.world.Forget(target, kLabel, "f2"));
  EXPECT_EQ(forgotten.record->seq, 2u);
  const Content after = ContentOf(target);
  ASSERT_OK_AND_ASSIGN(const ImportReceipt again, world_.Import(file, target, "i1"));
  EXPECT_TRUE(ContentOf(again.entry->session_id) == after);  // the repeat did nothing
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(ContentOf(target) == after);
  EXPECT_EQ(num_sessions(), 2);
}

TEST_F(SessionExportTest, AnImportUnderALabelThatIsBeingForgottenIsRefused) {
  const std::string id = ModelSession();
  ASSERT_OK_AND_ASSIGN(const std::string file, world_.Export(id));
  const std::shared_ptr<SessionEntry> entry = world_.world.Find(id);
  entry->mutex.Lock();
  ASSERT_OK_AND_ASSIGN(const SubjectProgress job, world_.Start());
  EXPECT_EQ(ReasonOf(world_.Import(file).status()), "SUBJECT_BEING_FORGOTTEN");
  entry->mutex.Unlock();
  EXPECT_EQ(world_.WaitFor(job.job_id).stage, JobStage::kDone);
  EXPECT_EQ(num_sessions(), 1);
  EXPECT_OK(world_.Import(file).status());
}

TEST_F(SessionExportTest, AKillAtEveryPointOfAnImportLeavesTheOldSessionOrTheNewOne) {
  int num_before = 0;
  int num_after = 0;
  for (int n = 1;; ++n) {
    ExportWorld world;
    ASSERT_OK(world.Open());
    ASSERT_OK(world.models.Add(TinyModel()));
    const std::string id = world.world.NewModelSession()->session_id;
    ASSERT_OK(world.world.Append(id, "the new content", "", ""));
    ASSERT_OK_AND_ASSIGN(const std::string file, world.Export(id));
    const SessionView exported = world.world.View(id);
    const std::string target = world.world.NewModelSession()->session_id;
    ASSERT_OK(world.world.Append(target, "the old content", "", ""));
    const SessionView old = world.world.View(target);
    world.Close();
    const pid_t child = fork();
    if (child == 0) {
      if (!world.Open().ok()) _exit(1);
      CrashAtPoint(n);
      _exit(world.Import(file, target, "i1").ok() ? 0 : 2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_THAT(WEXITSTATUS(status), AnyOf(0, kCrashExit));
    ASSERT_OK(world.Open());
    ASSERT_EQ(world.world.summary.num_sessions, 2) << n;
    ASSERT_EQ(world.world.summary.num_quarantined, 0) << n;
    const SessionView view = world.world.View(target);
    const bool is_old = view.inputs == old.inputs && view.digest == old.digest;
    EXPECT_TRUE(is_old || (WithoutIds(view.inputs) == WithoutIds(exported.inputs) &&
                           view.digest == exported.digest))
        << n;
    ++(is_old ? num_before : num_after);
    // Two sessions, two keys each, and the registry's: what was replaced has none.
    EXPECT_EQ(world.world.data->store()->num_keys(), 5u) << n;
    ASSERT_OK(world.Import(file, target, "i1").status());
    EXPECT_EQ(world.Digest(target), exported.digest) << n;
    if (WEXITSTATUS(status) == 0) break;
  }
  EXPECT_GE(num_before, 1);
  EXPECT_GE(num_after, 3);
}

// The two worlds of an erasure test: what was forgotten leaves nothing in an export but other ids.
TEST_F(SessionExportTest, CanonicalContentIsThatOfASessionNeverTold) {
  const std::string told = world_.world.NewModelSession()->session_id;
  const std::string never_told = world_.world.NewModelSession()->session_id;
  for (const std::string& id : {told, never_told}) {
    ASSERT_OK(world_.world.Append(id, "the first visit", "", ""));
    if (id == told) {
      ASSERT_OK(world_.world.Append(id, "takes zelvim", kLabel, ""));
    }
    ASSERT_OK(world_.world.Append(id, "the second visit", "somebody else", ""));
  }
  const auto canonical = [&](const std::string& id) {
    return CanonicalContent(DecodeExport(world_.Plain(world_.Export(id).value())).value());
  };
  EXPECT_NE(canonical(told), canonical(never_told));
  ASSERT_OK(world_.world.Forget(told, kLabel, ""));
  EXPECT_EQ(canonical(told), canonical(never_told));
  EXPECT_NE(world_.Plain(world_.Export(told).value()),
            world_.Plain(world_.Export(never_told).value()));
}

}  // namespace
}  // namespace lethe::testing
