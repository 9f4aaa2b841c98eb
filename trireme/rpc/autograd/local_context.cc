// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/local_context.h"

#include "trireme/base/check.h"
#include "trireme/rpc/autograd/backward_part.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc::autograd {
namespace {

// Whoever has it takes part in contexts.
constexpr const char* kTakesPart = "trireme.autograd.run";

/// The tensors of one call, at one of its ends.
class TensorsOfCall final : public rpc::detail::TensorCrossing {
 public:
  TensorsOfCall(std::shared_ptr<LocalContext> context, std::shared_ptr<rpc::detail::Line> line,
                int64_t caller, uint64_t message, bool called)
      : context_(std::move(context)),
        line_(std::move(line)),
        leaving_{caller, message, called},
        coming_{caller, message, !called} {}

  rpc::wire::Context said() const override {
    return {context_->id().member, context_->id().number, leaving_.message};
  }
  void leaves(const at::Tensor& tensor) override {
    if (!sent_) sent_ = context_->new_sent(leaving_, line_);
    if (sent_) sent_->add(tensor);
  }
  void comes(at::Tensor& tensor) override {
    if (!received_) received_ = Received::make(coming_, line_, context_->id(), context_);
    Received::add(received_, tensor);
  }

 private:
  const std::shared_ptr<LocalContext> context_;
  const std::shared_ptr<rpc::detail::Line> line_;
  const Pair leaving_, coming_;
  NodeOf<Sent> sent_;
  NodeOf<Received> received_;
};

}  // namespace

LocalContext::~LocalContext() = default;

std::shared_ptr<rpc::detail::Crossing> LocalContext::leaving(const LinePtr& to) {
  if (!to->offers(kTakesPart)) return nullptr;
  uint64_t message = 0;
  {
    std::lock_guard lock(mutex_);
    check<UsageError>(!ended_, "context {} is over", shown(id_));
    message = ++messages_;
    to_.emplace(to.get(), to);
  }
  return std::make_shared<TensorsOfCall>(shared_from_this(), to, member_, message, false);
}

std::shared_ptr<rpc::detail::Crossing> LocalContext::arrived(const rpc::wire::Context& said,
                                                             const LinePtr& from) {
  {
    std::lock_guard lock(mutex_);
    check<UsageError>(!ended_, "context {} is over", shown(id_));
    from_.emplace(from.get(), std::pair(from->member(), std::weak_ptr(from)));
  }
  return std::make_shared<TensorsOfCall>(shared_from_this(), from, from->member(), said.message,
                                         true);
}

NodeOf<Sent> LocalContext::new_sent(const Pair& pair, const LinePtr& line) {
  auto node = Sent::make(pair, line);
  std::lock_guard lock(mutex_);
  if (ended_) return {};
  check<Corrupt>(sent_.emplace(pair, node).second,
                 "worker '{}' has made two calls of one number within context {}", line->peer(),
                 shown(id_));
  return node;
}

NodeOf<Sent> LocalContext::sent(const Pair& pair) {
  std::lock_guard lock(mutex_);
  check<UsageError>(!let_go_.contains(pair),
                    "an earlier backward() of context {} has let go of the graph on worker '{}': "
                    "pass retain_graph to all but the last",
                    shown(id_), worker_);
  const auto found = sent_.find(pair);
  check<UsageError>(found != sent_.end(),
                    "worker '{}' has sent no tensors that context {} would have a gradient for",
                    worker_, shown(id_));
  return found->second;
}

void LocalContext::let_go(const std::vector<Pair>& pairs) {
  std::vector<NodeOf<Sent>> nodes;  // destroyed outside of the lock: they hold graphs
  std::lock_guard lock(mutex_);
  for (const Pair& pair : pairs) {
    const auto found = sent_.find(pair);
    if (found == sent_.end()) continue;
    nodes.push_back(std::move(found->second));
    sent_.erase(found);
    let_go_.insert(pair);
  }
}

LocalContext::Gradients LocalContext::gradients() const {
  std::lock_guard lock(mutex_);
  return gradients_;
}

at::Tensor LocalContext::gradient(const at::Tensor& parameter) const {
  std::lock_guard lock(mutex_);
  const auto place = places_.find(parameter.unsafeGetTensorImpl());
  return place == places_.end() ? at::Tensor() : gradients_[place->second].second;
}

void LocalContext::add_gradient(const at::Tensor& parameter, at::Tensor gradient) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  const auto [place, first] = places_.emplace(parameter.unsafeGetTensorImpl(), gradients_.size());
  if (first)
    gradients_.emplace_back(parameter, std::move(gradient));
  else
    gradients_[place->second].second = gradients_[place->second].second + gradient;
}

void LocalContext::clear_gradients() {
  std::lock_guard lock(mutex_);
  gradients_.clear();
  places_.clear();
}

std::shared_ptr<BackwardPart> LocalContext::part(
    uint64_t number, bool accumulate, const std::shared_ptr<rpc::detail::Executor>& executor) {
  std::shared_ptr<BackwardPart> old, now;
  {
    std::lock_guard lock(mutex_);
    check<UsageError>(!ended_, "context {} is over", shown(id_));
    if (part_ && part_->number() == number) return part_;
    check<UsageError>(number > last_backward_, "backward {} of context {} is over", number,
                      shown(id_));
    last_backward_ = number;
    old = std::exchange(
        part_, std::make_shared<BackwardPart>(shared_from_this(), number, accumulate, executor));
    now = part_;
  }
  if (old)
    old->fail(std::make_exception_ptr(
        Aborted(fmt::format("context {} has begun another backward", shown(id_)))));
  return now;
}

uint64_t LocalContext::next_backward() {
  std::lock_guard lock(mutex_);
  check<UsageError>(!ended_, "context {} is over", shown(id_));
  check<UsageError>(!part_, "another backward of context {} is under way", shown(id_));
  return last_backward_ + 1;
}

std::shared_ptr<BackwardPart> LocalContext::part(uint64_t number) const {
  std::lock_guard lock(mutex_);
  check<UsageError>(part_ && part_->number() == number,
                    "backward {} of context {} is not under way on worker '{}'", number, shown(id_),
                    worker_);
  return part_;
}

std::shared_ptr<BackwardPart> LocalContext::part_now() const {
  std::lock_guard lock(mutex_);
  return part_;
}

void LocalContext::end_part(const BackwardPart* part) {
  std::shared_ptr<BackwardPart> ended;  // destroyed outside of the lock
  std::lock_guard lock(mutex_);
  if (part_.get() == part) ended = std::exchange(part_, nullptr);
}

std::vector<LocalContext::LinePtr> LocalContext::called() const {
  std::lock_guard lock(mutex_);
  std::vector<LinePtr> lines;
  for (const auto& [pointer, weak] : to_)
    if (auto line = weak.lock()) lines.push_back(std::move(line));
  return lines;
}

LocalContext::LinePtr LocalContext::line_to(int64_t member) const {
  for (auto& line : called())
    if (line->member() == member) return line;
  std::lock_guard lock(mutex_);
  for (const auto& [pointer, from] : from_)
    if (from.first == member)
      if (auto line = from.second.lock()) return line;
  return nullptr;
}

bool LocalContext::lost(const rpc::detail::Line* line) {
  std::shared_ptr<BackwardPart> part;
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    const bool called = to_.erase(line) > 0;
    const auto from = from_.find(line);
    if (from != from_.end()) {
      last = from->second.first == id_.member;
      from_.erase(from);
      last = last || (from_.empty() && id_.member != member_);
    } else if (!called) {
      return false;
    }
    part = part_;
  }
  if (part) part->lost(line);
  return last;
}

void LocalContext::end() {
  std::map<Pair, NodeOf<Sent>> sent;
  Gradients gradients;
  std::shared_ptr<BackwardPart> part;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    sent.swap(sent_);
    let_go_.clear();
    gradients.swap(gradients_);
    places_.clear();
    to_.clear();
    from_.clear();
    part = part_;
  }
  if (part)
    part->fail(std::make_exception_ptr(Aborted(fmt::format("context {} has ended", shown(id_)))));
}

}  // namespace trireme::rpc::autograd
