// Goal: sessions are found, paged and deleted whole; a repeated request has one effect; page tokens
// fit their listing only.
// Method: plain cases over a tiny model.
#include "server/session_registry/session_registry.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/error/error_info.h"
#include "server/session_registry/model_set.h"
#include "server/session_registry/page_token.h"
#include "server/session_registry/tenant_bytes.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

class NumberAnswer : public StoredAnswer {
 public:
  explicit NumberAnswer(int value) : number(value) {}
  void DropOpenings() override { opened = false; }
  const int number;
  bool opened = true;
};

TEST(RequestTableTest, AnswersARepeatAndRefusesOtherContent) {
  RequestTable table;
  EXPECT_EQ(*table.Find<NumberAnswer>(Key("a")), nullptr);
  table.Remember(Key("a"), std::make_shared<NumberAnswer>(1));
  ASSERT_OK_AND_ASSIGN(const auto answer, table.Find<NumberAnswer>(Key("a")));
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->number, 1);
  EXPECT_THAT(table.Find<NumberAnswer>(Key("a", "other")),
              StatusIs(absl::StatusCode::kInvalidArgument, "request_id"));
  table.Remove("a");
  EXPECT_EQ(*table.Find<NumberAnswer>(Key("a")), nullptr);
}

TEST(RequestTableTest, EmptyIdIsNeverRemembered) {
  RequestTable table;
  table.Remember(Key(""), std::make_shared<NumberAnswer>(1));
  EXPECT_EQ(*table.Find<NumberAnswer>(Key("")), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(RequestTableTest, KeepsTheNewestThousandAndTwentyFour) {
  RequestTable table;
  for (int i = 0; i < 1030; ++i) {
    table.Remember(Key(std::to_string(i)), std::make_shared<NumberAnswer>(i));
  }
  EXPECT_EQ(table.size(), RequestTable::kMaxRequests);
  EXPECT_EQ(*table.Find<NumberAnswer>(Key("5")), nullptr);
  EXPECT_NE(*table.Find<NumberAnswer>(Key("6")), nullptr);
}

TEST(RequestTableTest, KeepsWhatRunsWhateverItsAge) {
  class Running : public StoredAnswer {
    bool IsRunning() const override { return true; }
  };
  RequestTable table;
  table.Remember(Key("old"), std::make_shared<NumberAnswer>(0));
  table.Remember(Key("running"), std::make_shared<Running>());
  for (int i = 0; i < 1030; ++i) {
    table.Remember(Key(std::to_string(i)), std::make_shared<NumberAnswer>(i));
  }
  EXPECT_EQ(table.size(), RequestTable::kMaxRequests);
  EXPECT_EQ(*table.Find<NumberAnswer>(Key("old")), nullptr);
  EXPECT_NE(*table.Find<Running>(Key("running")), nullptr);
  table.Remember(Key("running"), std::make_shared<NumberAnswer>(1));  // it has ended
  table.Remember(Key("last"), std::make_shared<NumberAnswer>(2));
  EXPECT_EQ(*table.Find<NumberAnswer>(Key("running")), nullptr);
}

TEST(RequestTableTest, ForgetReachesEveryAnswer) {
  RequestTable table;
  table.Remember(Key("a"), std::make_shared<NumberAnswer>(1));
  table.AfterForget({});
  EXPECT_FALSE((*table.Find<NumberAnswer>(Key("a")))->opened);
}

TEST(RequestTableTest, ForgottenContentCannotBeGuessed) {
  class Input : public StoredAnswer {
    bool BroughtIn(absl::Span<const TokenIdRange> token_ids) const override {
      return !token_ids.empty() && token_ids[0].first == 7;
    }
  };
  RequestTable table;
  table.Remember(Key("a", "PIN 4711"), std::make_shared<Input>());
  table.AfterForget({{1, 2}});
  EXPECT_OK(table.Find<Input>(Key("a", "PIN 4711")));
  table.AfterForget({{7, 8}});
  const auto right = table.Find<Input>(Key("a", "PIN 4711")).status();
  EXPECT_THAT(right, StatusIs(absl::StatusCode::kAlreadyExists, "request_id"));
  EXPECT_EQ(right, table.Find<Input>(Key("a", "PIN 4712")).status());
  // Not by the end of the call either.
  table.Remember(Key("a", "PIN 4711"), std::make_shared<Input>());
  EXPECT_EQ(right, table.Find<Input>(Key("a", "PIN 4712")).status());
}

TEST(PageTokenTest, FitsItsListingOnly) {
  const std::string text = WritePageToken("ListInputs a", {3, 4, 5});
  ASSERT_OK_AND_ASSIGN(const PageToken token, ParsePageToken("ListInputs a", text));
  EXPECT_EQ(token.epoch, 3u);
  EXPECT_EQ(token.length, 4u);
  EXPECT_EQ(token.position, 5u);
  for (const std::string& bad :
       {std::string("x"), text + "00", text.substr(2), std::string(64, '0')}) {
    EXPECT_THAT(ParsePageToken("ListInputs a", bad),
                StatusIs(absl::StatusCode::kInvalidArgument, "page_token"));
  }
  EXPECT_THAT(ParsePageToken("ListInputs b", text),
              StatusIs(absl::StatusCode::kInvalidArgument, "page_token"));
}

TEST(PageTokenTest, SizesAreCoerced) {
  EXPECT_EQ(*PageSize(0, 100, 1000), 100);
  EXPECT_EQ(*PageSize(5, 100, 1000), 5);
  EXPECT_EQ(*PageSize(5000, 100, 1000), 1000);
  EXPECT_THAT(PageSize(-1, 100, 1000), StatusIs(absl::StatusCode::kInvalidArgument, "page_size"));
}

TEST(SessionRegistryTest, IdsAreRandomAndDistinct) {
  SessionRegistry registry(20);
  std::set<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    const std::string id = NewEntry(&registry)->session_id;
    EXPECT_EQ(id.size(), 26u);
    EXPECT_EQ(id.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567"), std::string::npos);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_THAT(registry.Create({TinyModel(), {}, ""}, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "20"));
  ASSERT_OK(registry.Delete(*ids.begin(), {}));
  EXPECT_OK(registry.Create({TinyModel(), {}, ""}, {}));
}

TEST(SessionRegistryTest, OneTenantsShareIsNotAnothers) {
  SessionRegistry registry(3);
  registry.LimitTenants(2);
  NewSession greedy{TinyModel(), {}, ""};
  greedy.tenant = "greedy";
  NewSession modest{TinyModel(), {}, ""};
  modest.tenant = "modest";
  EXPECT_OK(registry.Create(greedy, {}));
  ASSERT_OK_AND_ASSIGN(const auto second, registry.Create(greedy, {}));
  const absl::Status refused = registry.Create(greedy, {}).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ErrorInfoOf(refused).reason, "TOO_MANY_SESSIONS");
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("(--tenant-sessions 2)"));
  EXPECT_OK(registry.Create(modest, {}));
  const absl::Status full = registry.Create(modest, {}).status();
  EXPECT_THAT(std::string(full.message()), ::testing::HasSubstr("(--max-sessions 3)"));
  EXPECT_OK(registry.Delete("greedy", second->session_id, {}));
  EXPECT_OK(registry.Create(greedy, {}));
}

TEST(SessionRegistryTest, OneTenantsBytesAreNotAnothers) {
  SessionRegistry registry(3);
  NewSession wanted{TinyModel(), {}, ""};
  wanted.tenant = "a";
  ASSERT_OK_AND_ASSIGN(const auto entry, registry.Create(wanted, {}));
  const int64_t before = TenantBytes(registry, "a");
  {
    FairMutexLock lock(&entry->mutex);
    ASSERT_OK_AND_ASSIGN(Session * session, entry->LiveModelSession());
    ASSERT_OK(
        session->Append(TinyModel()->Tokenize(std::string(500, 'a')), "", InputKind::kAppended));
    entry->Publish();
  }
  EXPECT_GT(TenantBytes(registry, "a"), before);
  EXPECT_EQ(TenantBytes(registry, "b"), 0);
  EXPECT_OK(CheckTenantBytes(registry, "a", 0));
  EXPECT_OK(CheckTenantBytes(registry, "a", (TenantBytes(registry, "a") >> 20) + 1));
  EXPECT_OK(CheckTenantBytes(registry, "b", 1));
}

TEST(SessionRegistryTest, PagesById) {
  SessionRegistry registry(20);
  for (int i = 0; i < 7; ++i) NewEntry(&registry);
  std::vector<std::string> seen;
  std::string after;
  for (auto page = registry.List(after, 3); !page.empty(); page = registry.List(after, 3)) {
    for (const auto& entry : page) seen.push_back(entry->session_id);
    after = seen.back();
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(SessionRegistryTest, RepeatedCreateAndDeleteHaveOneEffect) {
  SessionRegistry registry(20);
  const NewSession wanted{TinyModel(), {}, "name"};
  ASSERT_OK_AND_ASSIGN(const auto first, registry.Create(wanted, Key("c")));
  ASSERT_OK_AND_ASSIGN(const auto second, registry.Create(wanted, Key("c")));
  EXPECT_EQ(first, second);
  EXPECT_EQ(registry.num_sessions(), 1);
  {
    FairMutexLock lock(&first->mutex);
    ASSERT_OK_AND_ASSIGN(Session * session, first->LiveModelSession());
    ASSERT_OK(session->Append(TinyModel()->Tokenize("abc"), "", InputKind::kAppended));
  }
  EXPECT_EQ(*registry.Delete(first->session_id, Key("d")), 3);
  EXPECT_EQ(*registry.Delete(first->session_id, Key("d")), 3);
  EXPECT_THAT(registry.Delete(first->session_id, {}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry.Find(first->session_id), StatusIs(absl::StatusCode::kNotFound));
  FairMutexLock lock(&first->mutex);
  EXPECT_THAT(first->LiveSession(), StatusIs(absl::StatusCode::kAborted));
}

TEST(SessionRegistryTest, ConcurrentCreatesWithOneRequestIdMakeOneSession) {
  SessionRegistry registry(20);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_OK(registry.Create({TinyModel(), {}, ""}, Key("same")));
      registry.List("", 10);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.num_sessions(), 1);
}

TEST(ModelSetTest, EmptyNameMeansTheOnlyModel) {
  ModelSet models;
  EXPECT_FALSE(models.Find("").ok());
  ASSERT_OK(models.Add(TinyModel()));
  EXPECT_OK(models.Find(""));
  EXPECT_OK(models.Find("tiny"));
  EXPECT_THAT(models.Find("other"), StatusIs(absl::StatusCode::kNotFound, "model"));
  EXPECT_THAT(models.Add(TinyModel()), StatusIs(absl::StatusCode::kAlreadyExists));
}

}  // namespace
}  // namespace lethe::testing
