// Goal: the fuzz targets of parsers and solver hold on their seeds and on simple mutations of them, in every build.
// Method: corpus_replay.h.
#include "tests/fuzz/corpus_replay.h"

#include "gtest/gtest.h"

#include "tests/fuzz/fuzz_targets.h"
#include "tests/testing/long_run.h"

namespace lethe::fuzz {
namespace {

constexpr int kMutants = 1600;

// Of targets whose inputs take milliseconds.
int FewMutants() { return testing::IsLongTest() ? 20'000 : 200; }

TEST(CorpusReplayTest, Note) { Replay("note", FuzzNote, kMutants); }
TEST(CorpusReplayTest, TlogProof) { Replay("tlog_proof", FuzzTlogProof, kMutants); }
TEST(CorpusReplayTest, Dsse) { Replay("dsse", FuzzDsse, kMutants); }
TEST(CorpusReplayTest, Statement) { Replay("statement", FuzzStatement, kMutants); }
TEST(CorpusReplayTest, Bundle) { Replay("bundle", FuzzBundle, kMutants); }
TEST(CorpusReplayTest, LogFiles) { Replay("log_files", FuzzLogFiles, kMutants); }
TEST(CorpusReplayTest, Export) { Replay("export", FuzzExport, kMutants); }
TEST(CorpusReplayTest, VectorText) { Replay("vector_text", FuzzVectorText, kMutants); }
TEST(CorpusReplayTest, Npy) { Replay("npy", FuzzNpy, kMutants); }
TEST(CorpusReplayTest, Safetensors) { Replay("safetensors", FuzzSafetensors, kMutants); }
TEST(CorpusReplayTest, ClientText) { Replay("client_text", FuzzClientText, kMutants); }
TEST(CorpusReplayTest, AnswerText) { Replay("answer_text", FuzzAnswerText, kMutants); }
TEST(CorpusReplayTest, ModelConfig) { Replay("model_config", FuzzModelConfig, FewMutants()); }
TEST(CorpusReplayTest, Svdd) { Replay("svdd", FuzzSvdd, FewMutants()); }
TEST(CorpusReplayTest, Import) { Replay("import", FuzzImport, FewMutants()); }

}  // namespace
}  // namespace lethe::fuzz
