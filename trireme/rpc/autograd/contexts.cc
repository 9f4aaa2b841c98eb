// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/contexts.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/process/quiet_thread.h"

namespace trireme::rpc::autograd {
namespace {

constexpr size_t kOverKept = 4096;
// For calls that nobody waits for.
constexpr Duration kSoon = std::chrono::seconds(60);

}  // namespace

Contexts::~Contexts() {
  std::map<ContextId, std::shared_ptr<LocalContext>> contexts;
  contexts.swap(contexts_);
  for (const auto& [id, context] : contexts) context->end();
  for (Helper& helper : helpers_) {
    if (helper.thread.get_id() == std::this_thread::get_id())
      helper.thread.detach();
    else
      helper.thread.join();
  }
}

void Contexts::joined(const std::string& name, int64_t member,
                      const std::shared_ptr<rpc::detail::Executor>& executor) {
  std::lock_guard lock(mutex_);
  check<UsageError>(
      member_ == 0,
      "rpc::init: workers '{}' and '{}' were given one rpc::autograd::offer(): call it "
      "for each",
      name_, name);
  name_ = name;
  member_ = member;
  executor_ = executor;
}

Contexts::Arrived Contexts::arrived(const rpc::wire::Context& said,
                                    const std::shared_ptr<rpc::detail::Line>& from) {
  const ContextId id{said.member, said.number};
  std::shared_ptr<LocalContext> context;
  {
    std::lock_guard lock(mutex_);
    auto place = contexts_.find(id);
    if (place == contexts_.end()) {
      check<UsageError>(!over_.contains(id) && id.member != member_, "context {} is over",
                        shown(id));
      place = contexts_.emplace(id, std::make_shared<LocalContext>(id, name_, member_)).first;
    }
    context = place->second;
  }
  auto crossing = context->arrived(said, from);
  if (!from->open()) lost(*from);  // it may have been told before this was noted
  return {std::move(context), std::move(crossing)};
}

std::shared_ptr<LocalContext> Contexts::begin() {
  std::lock_guard lock(mutex_);
  check<UsageError>(member_ != 0, "a context begins on a worker, after rpc::init()");
  const ContextId id{member_, ++begun_};
  auto context = std::make_shared<LocalContext>(id, name_, member_);
  contexts_.emplace(id, context);
  return context;
}

std::shared_ptr<LocalContext> Contexts::find(const ContextId& id) const {
  std::lock_guard lock(mutex_);
  const auto place = contexts_.find(id);
  check<UsageError>(place != contexts_.end(),
                    "worker '{}' has no context {}: it is over, or no call came within it", name_,
                    shown(id));
  return place->second;
}

std::shared_ptr<LocalContext> Contexts::take(const ContextId& id) {
  std::lock_guard lock(mutex_);
  if (over_.insert(id).second) {
    over_in_order_.push_back(id);
    if (over_in_order_.size() > kOverKept) {
      over_.erase(over_in_order_.front());
      over_in_order_.pop_front();
    }
  }
  const auto place = contexts_.find(id);
  if (place == contexts_.end()) return nullptr;
  auto context = std::move(place->second);
  contexts_.erase(place);
  return context;
}

void Contexts::end(const ContextId& id) {
  const auto context = take(id);
  if (!context) return;
  const rpc::detail::ContextScope none(nullptr);
  for (const auto& line : context->called())
    if (line->member() != context->member())
      rpc::detail::Access::make(line, kSoon).async<ContextEnded>(id).consume([](auto&) {});
  context->end();
}

void Contexts::lost(const rpc::detail::Line& line) {
  std::vector<std::shared_ptr<LocalContext>> all;
  std::shared_ptr<rpc::detail::Executor> executor;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, context] : contexts_) all.push_back(context);
    executor = executor_.lock();
  }
  for (const auto& context : all) {
    if (!context->lost(&line)) continue;
    if (executor)
      executor->post([self = weak_from_this(), id = context->id()] {
        if (const auto contexts = self.lock()) contexts->end(id);
      });
    else
      end(context->id());
  }
}

int64_t Contexts::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(contexts_.size());
}

std::shared_ptr<rpc::detail::Executor> Contexts::executor() const {
  std::lock_guard lock(mutex_);
  auto executor = executor_.lock();
  check<Aborted>(executor != nullptr, "worker '{}' has shut down", name_);
  return executor;
}

void Contexts::spawn(std::function<void()> task) {
  std::list<Helper> ended;
  std::lock_guard lock(mutex_);
  for (auto helper = helpers_.begin(); helper != helpers_.end();) {
    const auto here = helper++;
    if (*here->done) ended.splice(ended.end(), helpers_, here);
  }
  for (Helper& helper : ended) helper.thread.join();
  auto done = std::make_shared<std::atomic<bool>>(false);
  helpers_.push_back({quiet_thread([task = std::move(task), done]() mutable {
                        task();
                        task = nullptr;
                        *done = true;
                      }),
                      done});
}

std::vector<Found> Contexts::look(const ContextId& id, uint64_t backward, bool accumulate,
                                  const std::vector<Pair>& sent) {
  return find(id)->part(backward, accumulate, executor())->look_behind(sent);
}

Future<void> Contexts::run(rpc::Call& call, const ContextId& id, uint64_t backward,
                           const BackwardKind& kind, const std::vector<PassOrder>& passes) {
  const auto part = find(id)->part(backward);
  auto over = part->begin(passes, kind.retain_graph, call.deadline(),
                          [this](std::function<void()> task) { spawn(std::move(task)); });
  part->stop_with(call.stop_token());
  return over;
}

void Contexts::came(rpc::Call& call, const ContextId& id, uint64_t backward, const Pair& pair,
                    const std::vector<at::Tensor>& gradients) {
  find(id)->part(backward)->came(pair, gradients, call.caller());
}

void Contexts::give_up(const ContextId& id, uint64_t backward, const std::string& why) {
  find(id)->part(backward)->fail(std::make_exception_ptr(Aborted(why)));
}

}  // namespace trireme::rpc::autograd
