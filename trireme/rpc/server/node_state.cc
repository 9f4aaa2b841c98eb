// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/rpc/server/node_alone.h"

// What outlives a server.
namespace trireme::rpc::server {
namespace {

constexpr const char* kLost = "server.lost";

// Seconds. A worker may have ended while this server was lost: once all others have left, it is
// waited for so long.
constexpr double kMostAway = 60;

template <class Number>
std::string joined(const std::vector<Number>& numbers) {
  std::string text;
  for (const Number n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

/// "1,2,3" as numbers. Corrupt: it is none.
std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int64_t number = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
    check<Corrupt>(read.ec == std::errc() && read.ptr == part.data() + part.size() && number >= 0 &&
                       number <= Node::kMostSteps,
                   "a server's checkpoint has '{}' where numbers of workers belong", text);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::vector<int64_t> Node::saved_steps() const {
  return options_.folder.empty() ? std::vector<int64_t>() : list_steps(options_.folder);
}

plan::Standing Node::standing() const {
  plan::Standing standing;
  standing.epoch = epoch_;
  standing.steps = saved_steps();
  standing.fresh = clocks_.step() == 0 && standing.steps.empty();
  for (const int rank : clocks_.lost()) standing.lost.push_back(rank);
  if (epoch_ == 0 && !standing.steps.empty()) {
    const std::string newest = options_.folder + "/" + step_folder_name(standing.steps.back());
    for (const int64_t rank : numbers_of(text_in_step(newest, kLost).value_or("")))
      standing.lost.push_back(static_cast<int32_t>(rank));
  }
  return standing;
}

// Where steps are taken as they come, a server begins with what it has.
void Node::begin_alone() {
  const auto steps = saved_steps();
  Alone alone(*this);
  if (begun_) return;
  if (!steps.empty()) {
    load(steps.back());
    has_values_ = true;
  }
  std::lock_guard lock(mutex_);
  begun_ = has_values_;
}

void Node::visit(StateVisitor& visitor) {
  visitor.constant("server.place", fmt::format("server {} of {}", shape_->server, shape_->servers));
  holdings_->state(visitor);
  int64_t step = 0;
  std::string lost, clocks;
  {
    std::lock_guard lock(mutex_);
    step = clocks_.step();
    lost = joined(clocks_.lost());
    clocks = joined(clocks_.clocks());
  }
  visitor.value("server.step", step);
  visitor.value(kLost, lost);
  visitor.value("server.clocks", clocks);
  check<Corrupt>(step >= 0 && step <= kMostSteps, "a server's checkpoint is of step {}", step);
  if (!visitor.loading() || clocks_.synchronous()) return;
  std::lock_guard lock(mutex_);
  clocks_.resume(step, numbers_of(clocks));
}

void Node::save() {
  const int64_t step = steps();
  try {
    std::shared_lock lock(weights_);
    save_step(options_.folder, step, [this](StateVisitor& v) { visit(v); }, {.keep = 3});
    saved_ = step;
  } catch (const std::exception& error) {
    log_warn("parameter server: step {} was not saved, and training goes on: {}", step,
             brief(error));
  }
}

void Node::load(int64_t step) {
  std::unique_lock lock(weights_);
  load_step(options_.folder + "/" + step_folder_name(step), [this](StateVisitor& v) { visit(v); },
            {.check_first = true});
  saved_ = step;
}

bool Node::wait(Deadline deadline) {
  {
    std::unique_lock lock(mutex_);
    const auto over = [this] {
      if (settling_ || !given_.empty() || !clocks_.nobody_is_here()) return false;
      return !clocks_.any(plan::Presence::away) || seconds_since(last_gone_) > kMostAway;
    };
    while (!over()) {
      if (deadline.expired()) return false;
      settled_.wait_for(lock, std::min<Duration>(deadline.remaining(), std::chrono::seconds(1)));
    }
  }
  Alone alone(*this);
  if (begun_ && !options_.folder.empty() && saved_ != steps()) save();
  return true;
}

}  // namespace trireme::rpc::server
