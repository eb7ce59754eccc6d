#include "tests/crash/crash_story.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "tests/crash/file_calls.h"
#include "tests/server/store_testing.h"

namespace lethe::testing {
namespace {

constexpr char kModelName[] = "notes";
constexpr char kVectorName[] = "vectors";

std::string DataPath(const std::string& directory) { return directory + "/data"; }

absl::StatusOr<std::string> IdOf(const std::string& name, DurableWorld* world) {
  for (const auto& entry : world->registry().List("", 100)) {
    if (entry->display_name == name) return entry->session_id;
  }
  return absl::NotFoundError("no such session");
}

using OnSession = std::function<absl::Status(DurableWorld*, const std::string& id)>;

StoryStep Step(const std::string& name, const char* session, OnSession work) {
  return {name, [session, work = std::move(work)](DurableWorld* world) -> absl::Status {
            LETHE_ASSIGN_OR_RETURN(const std::string id, IdOf(session, world));
            return work(world, id);
          }};
}

StoryStep Start(const std::string& name) {
  return {name, [](DurableWorld* world) { return world->Open(); }};
}

StoryStep CreateModelSession() {
  return {"create a model's session", [](DurableWorld* world) {
            return world->registry()
                .Create({TinyModel(), {}, kModelName}, Key("create-model"))
                .status();
          }};
}

StoryStep CreateVectorSession() {
  return {"create a vector session", [](DurableWorld* world) {
            return world->registry()
                .Create({nullptr, {}, kVectorName, SmallVectors()}, Key("create-vectors"))
                .status();
          }};
}

StoryStep Append(const char* text, const char* subject, const char* request) {
  return Step(absl::StrCat("append ", request), kModelName,
              [=](DurableWorld* world, const std::string& id) {
                return world->Append(id, text, subject, request).status();
              });
}

StoryStep AppendRows(int64_t count, const char* subject, const char* request) {
  return Step(absl::StrCat("append rows ", request), kVectorName,
              [=](DurableWorld* world, const std::string& id) {
                return world->AppendRows(id, count, static_cast<unsigned>(count), subject, request)
                    .status();
              });
}

StoryStep Stream(const char* prompt, const char* request, int64_t count) {
  StoryStep step = Step(absl::StrCat("stream ", request), kModelName,
                        [=](DurableWorld* world, const std::string& id) {
                          return world->Generate(id, prompt, request, count);
                        });
  step.is_stream = true;
  return step;
}

StoryStep Forget(const char* session, const char* subject, const char* request) {
  return Step(absl::StrCat("forget ", request), session,
              [=](DurableWorld* world, const std::string& id) {
                return world->Forget(id, subject, request).status();
              });
}

StoryStep Certify(const char* session, const char* request) {
  return Step(absl::StrCat("certify ", request), session,
              [=](DurableWorld* world, const std::string& id) {
                return world->RunCertify(id, request).status();
              });
}

bool AreEqual(const WorldView& a, const WorldView& b) {
  return a.num_leaves == b.num_leaves && a.sessions == b.sessions;
}

// As `before` has them, ids that the step under way had reserved and not used.
WorldView WithoutReserved(const WorldView& view, const WorldView& before, const WorldView& after) {
  WorldView without = view;
  for (auto& [id, session] : without.sessions) {
    const auto first = before.sessions.find(id);
    const auto last = after.sessions.find(id);
    if (first == before.sessions.end() || last == after.sessions.end()) continue;
    const bool is_between = session.next_token_id >= first->second.next_token_id &&
                            session.next_token_id <= last->second.next_token_id;
    if (is_between) session.next_token_id = first->second.next_token_id;
  }
  return without;
}

}  // namespace

WorldEssence EssenceOf(const WorldView& view) {
  WorldEssence essence;
  essence.num_leaves = view.num_leaves;
  for (const auto& [id, session] : view.sessions) {
    std::vector<std::string> inputs;
    for (const std::string& input : session.inputs) inputs.push_back(input.substr(input.find(' ')));
    essence.sessions.insert(
        {session.digest, inputs, session.info.num_forgotten, session.info.audit_seq});
  }
  return essence;
}

std::string Shortly(const WorldView& view) {
  std::string text = absl::StrCat(view.num_leaves, " leaves");
  for (const auto& [id, session] : view.sessions) {
    absl::StrAppend(&text, "; ", session.inputs.size(), " inputs, ", session.info.num_forgotten,
                    " forgotten, ", session.certificates.size(), " records");
  }
  return text;
}

WorldView ViewOf(DurableWorld* world) {
  WorldView view;
  view.num_leaves = world->data->log()->num_leaves();
  for (const auto& entry : world->registry().List("", 100)) {
    view.sessions[entry->session_id] = world->View(entry->session_id);
  }
  return view;
}

bool IsBetween(const WorldView& view, const WorldView& before, const WorldView& after,
               DurableWorld* world) {
  if (view.num_leaves != before.num_leaves || view.sessions.size() != before.sessions.size()) {
    return false;
  }
  for (const auto& [id, session] : view.sessions) {
    const auto first = before.sessions.find(id);
    const auto last = after.sessions.find(id);
    if (first == before.sessions.end() || last == after.sessions.end()) return false;
    const std::vector<std::string>& whole = last->second.inputs;
    const size_t count = session.inputs.size();
    if (count < first->second.inputs.size() || count > whole.size()) return false;
    if (!std::equal(session.inputs.begin(), session.inputs.end(), whole.begin())) return false;
    if (count == first->second.inputs.size()) {
      if (session.digest != first->second.digest) return false;
    } else if (session.digest != FreshDigest(HistoryOf(world->Find(id)))) {
      return false;
    }
  }
  return true;
}

std::vector<std::string> ComplaintsOf(DurableWorld* world) {
  std::vector<std::string> complaints;
  if (const absl::Status frozen = world->data->log()->frozen(); !frozen.ok()) {
    complaints.push_back(frozen.ToString());
  }
  if (world->summary.num_quarantined + world->summary.num_waiting > 0) {
    complaints.push_back("a session is damaged");
  }
  const auto rows = world->data->store()->AllRows();
  if (!rows.ok()) return {rows.status().ToString()};
  std::set<DataKeyRef> used;
  for (const auto& [session, of_session] : *rows) {
    for (const StoredRow& row : of_session) used.insert(row.key);
  }
  if (world->data->store()->num_keys() != used.size()) {
    complaints.push_back("keys are left that open nothing");
  }
  return complaints;
}

std::vector<std::string> DataKeysIn(const std::string& data_path) {
  constexpr size_t kHeaderBytes = 4096;
  constexpr size_t kSlotBytes = 64;
  const std::string file = audit::ReadFile(data_path + "/sessions/data.keys");
  std::vector<std::string> keys;
  for (size_t slot = kHeaderBytes; slot + kSlotBytes <= file.size(); slot += kSlotBytes) {
    const std::string key = file.substr(slot + 8, 32);
    if (key.find_first_not_of('\0') != std::string::npos) keys.push_back(key);
  }
  return keys;
}

std::vector<StoryStep> WholeStory() {
  std::vector<StoryStep> steps;
  steps.push_back(Start("first start"));
  steps.push_back(CreateModelSession());
  steps.push_back(CreateVectorSession());
  steps.push_back(Append("the first visit", "", "a1"));
  steps.push_back(Append("patient 17", "patient", "a2"));
  steps.push_back(AppendRows(12, "", "r1"));
  steps.push_back(AppendRows(3, "patient", "r2"));
  steps.push_back(Stream("and", "g1", 4));
  steps.push_back(Certify(kModelName, "c1"));
  steps.push_back(Forget(kModelName, "patient", "f1"));
  steps.push_back(Forget(kVectorName, "patient", "f2"));
  steps.push_back(Start("a new start"));
  steps.push_back(Append("more", "", "a3"));
  steps.push_back(Certify(kVectorName, "c2"));
  steps.push_back(Step("select e1", kVectorName, [](DurableWorld* world, const std::string& id) {
    return world->Evict(id, 2, "e1").status();  // c2's record
  }));
  steps.push_back(Stream("", "g2", 3));
  steps.push_back(Forget(kModelName, "answers", "f3"));
  // Its repeat finds no session by that name, and does not need to.
  auto id = std::make_shared<std::string>();
  steps.push_back({"delete d1", [id](DurableWorld* world) -> absl::Status {
                     const absl::StatusOr<std::string> found = IdOf(kVectorName, world);
                     if (found.ok()) *id = *found;
                     return world->registry().Delete(*id, Key("d1")).status();
                   }});
  return steps;
}

CrashStory::CrashStory(const std::vector<StoryStep>& steps)
    : steps_(steps), trace_(std::make_unique<DiskTrace>(directory_.path())) {
  FileCalls::Watch(directory_.path(), trace_.get());
  CrashWorld world(DataPath(directory_.path()));
  moments_.push_back({});
  for (const StoryStep& step : steps) {
    const std::vector<std::string> before = DataKeysIn(world.data_path());
    std::vector<size_t> sent;  // positions, token by token
    world.on_token = [&] { sent.push_back(trace_->num_operations()); };
    const absl::Status status = step.run(&world);
    LETHE_CHECK(status.ok());
    for (size_t i = 0; i < sent.size(); ++i) deliveries_.push_back({sent[i], sent.size() - 1 - i});
    Moment moment = {trace_->num_operations(), ViewOf(&world), moments_.back().destroyed_keys};
    const std::vector<std::string> after = DataKeysIn(world.data_path());
    for (const std::string& key : before) {
      const bool is_gone = std::find(after.begin(), after.end(), key) == after.end();
      if (is_gone) moment.destroyed_keys.push_back(key);
    }
    moments_.push_back(std::move(moment));
  }
  FileCalls::StopWatching();
}

std::vector<size_t> CrashStory::Positions() const {
  std::vector<size_t> positions = trace_->SyncPoints();
  for (const Moment& moment : moments_) positions.push_back(moment.position);
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

size_t CrashStory::MomentBefore(size_t position) const {
  size_t moment = 0;
  while (moment + 1 < moments_.size() && moments_[moment + 1].position <= position) ++moment;
  return moment;
}

bool CrashStory::HasDelivered(const WorldView& view, size_t moment, size_t position) const {
  size_t num_undelivered = SIZE_MAX;
  for (const Delivery& delivery : deliveries_) {
    const bool is_of_step = delivery.position > moments_[moment].position;
    if (is_of_step && delivery.position <= position) num_undelivered = delivery.num_undelivered;
  }
  if (num_undelivered == SIZE_MAX) return true;
  const WorldView& after = moments_[moment + 1].view;
  return std::all_of(view.sessions.begin(), view.sessions.end(), [&](const auto& session) {
    const size_t whole = after.sessions.at(session.first).inputs.size();
    return session.second.inputs.size() + num_undelivered >= whole;
  });
}

void CrashStory::CheckRepeat(size_t moment, DurableWorld* world,
                             std::vector<std::string>* complaints) const {
  const absl::Status status = steps_[moment].run(world);
  if (!status.ok()) {
    complaints->push_back(absl::StrCat("a repeat fails: ", status.ToString()));
    return;
  }
  const WorldView view = ViewOf(world);
  if (!(EssenceOf(view) == EssenceOf(moments_[moment + 1].view))) {
    complaints->push_back(absl::StrCat("a repeat ends elsewhere: ", Shortly(view)));
  }
}

void CrashStory::CheckOpened(size_t position, bool killed, bool repeat, DurableWorld* world,
                             std::vector<std::string>* complaints) const {
  const size_t moment = MomentBefore(position);
  const bool is_last = moment + 1 == moments_.size();
  const std::vector<std::string> of_store = ComplaintsOf(world);
  complaints->insert(complaints->end(), of_store.begin(), of_store.end());
  if (!of_store.empty()) return;
  const WorldView view = ViewOf(world);
  const WorldView& before = moments_[moment].view;
  const WorldView& after = moments_[moment + (is_last ? 0 : 1)].view;
  bool fits = AreEqual(WithoutReserved(view, before, after), before) || AreEqual(view, after);
  const bool may_repeat = fits && !is_last && !steps_[moment].is_stream;
  // A stream's tokens are in the hands of the operating system until the next step is answered.
  if (!fits && !killed && moment > 0 && steps_[moment - 1].is_stream) {
    fits = IsBetween(view, moments_[moment - 1].view, before, world);
  }
  if (!is_last && steps_[moment].is_stream) {
    fits = fits || IsBetween(view, before, after, world);
    if (killed) fits = fits && HasDelivered(view, moment, position);
  }
  if (!fits) {
    complaints->push_back(absl::StrCat("is ", Shortly(view), "; before: ", Shortly(before),
                                       "; after: ", Shortly(after)));
  }
  if (repeat && may_repeat) CheckRepeat(moment, world, complaints);
}

std::vector<std::string> CrashStory::Check(const std::string& directory, size_t position,
                                           bool killed, bool repeat) const {
  std::vector<std::string> complaints;
  const size_t moment = MomentBefore(position);
  const std::string data_path = DataPath(directory);
  if (std::filesystem::exists(data_path) &&
      CountFound(FileBytes(data_path), moments_[moment].destroyed_keys) > 0) {
    complaints.push_back("a key is there that an answered call destroyed");
  }
  CrashWorld world(data_path);
  if (const absl::Status status = world.Open(); !status.ok()) {
    complaints.push_back(absl::StrCat("does not start: ", status.ToString()));
  } else {
    // A session whose inputs make no sense comes as an exception of its StatusOr.
    try {
      CheckOpened(position, killed, repeat, &world, &complaints);
    } catch (const std::exception& error) {
      complaints.push_back(absl::StrCat("a session cannot be evaluated: ", error.what()));
    }
  }
  for (std::string& complaint : complaints) {
    const bool is_last = moment + 1 == moments_.size();
    absl::StrAppend(&complaint, " [position ", position, ", ",
                    is_last ? "behind the last step" : steps_[moment].name, "]");
  }
  return complaints;
}

}  // namespace lethe::testing
