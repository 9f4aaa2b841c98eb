// SPDX-License-Identifier: Apache-2.0
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/server/membership.h"
#include "trireme/rpc/server/methods.h"
#include "trireme/tensor/finite.h"

// Gradients go to the servers.
namespace trireme::rpc::server {
namespace {

// Gradients that leave during backward leave in messages of so many bytes.
constexpr int64_t kEnough = int64_t{1} << 20;

}  // namespace

// Within backward, which must not fail for it: step() says what is wrong.
void Membership::became_ready(size_t parameter) {
  Parameter& p = parameters_[parameter];
  Server& s = servers_[p.server];
  if (left_ || pushed_ || dropped_ || !s.current) return;
  if (p.left) {
    twice_ = p.name;
    return;
  }
  const at::Tensor& gradient = p.tensor.grad();
  if (gradient.layout() != at::kStrided) return;
  if (!all_finite(gradient)) {
    not_finite_ = p.name;
    return;
  }
  p.left = true;
  p.version = gradient._version();
  s.ready.push_back(parameter);
  s.ready_bytes += static_cast<int64_t>(gradient.nbytes());
  if (s.ready_bytes >= kEnough) push_ready(s);
}

void Membership::push_ready(Server& server) {
  Push push{options_.rank, epoch_, step_, attempt_};
  send(server, std::move(push), server.ready);
  server.ready.clear();
  server.ready_bytes = 0;
}

void Membership::send(Server& server, Push push, const std::vector<size_t>& parameters) {
  for (const size_t p : parameters) {
    push.keys.push_back(parameters_[p].key);
    push.gradients.push_back(parameters_[p].tensor.grad().detach().cpu().contiguous());
  }
  server.pushed += static_cast<int64_t>(parameters.size());
  server.pushes.push_back(server.peer->async<PushCall>(push));
}

void Membership::push_all(double lr) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& s = servers_[i];
    for (const size_t p : s.parameters)
      if (!parameters_[p].left && parameters_[p].tensor.requires_grad() &&
          parameters_[p].tensor.grad().defined())
        s.ready.push_back(p);
    Push push{options_.rank, epoch_, step_, attempt_, lr};
    push.total = s.pushed + static_cast<int64_t>(s.ready.size());
    add_tables(i, push);
    const auto ready = std::exchange(s.ready, {});
    s.ready_bytes = 0;
    send(s, std::move(push), ready);
  }
}

void Membership::add_tables(size_t server, Push& push) const {
  for (size_t t = 0; t < touched_.size(); ++t) {
    std::vector<RowGradients> parts;
    for (const Touched& touched : touched_[t]) {
      const int64_t begin = touched.found.begins[server], end = touched.found.begins[server + 1];
      if (begin == end || !touched.rows.grad().defined()) continue;
      parts.push_back({rows_of(touched.found, begin, end),
                       touched.rows.grad().detach().narrow(0, begin, end - begin)});
    }
    if (parts.empty()) continue;
    RowGradients merged = parts.size() == 1 ? std::move(parts.front()) : merge_rows(parts);
    push.tables.push_back(static_cast<uint32_t>(t));
    push.rows.push_back(std::move(merged.rows));
    push.row_gradients.push_back(std::move(merged.gradients));
  }
}

// All of them, whatever comes of the first: gradients may not change before.
void Membership::wait_for_pushes() {
  std::exception_ptr error;
  bool over = false;
  for (Server& s : servers_) {
    for (auto& push : s.pushes) {
      try {
        over = push.get() == Answer::over || over;
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    s.pushes.clear();
  }
  if (error) std::rethrow_exception(error);
  if (over) throw Over();
}

void Membership::wait_quietly() {
  try {
    wait_for_pushes();
  } catch (const Error&) {  // the next call to that server says so
  } catch (const Over&) {
  }
}

// What was sent of this step does not count any more.
void Membership::begin_attempt() {
  wait_quietly();
  const int64_t attempt = attempt_ + 1;
  forget_gradients();
  attempt_ = attempt;
}

void Membership::forget_gradients() {
  attempt_ = 0;
  pushed_ = dropped_ = false;
  twice_.clear();
  not_finite_.clear();
  for (Parameter& p : parameters_) p.left = false;
  for (Server& s : servers_) {
    s.ready.clear();
    s.ready_bytes = s.pushed = 0;
  }
  for (auto& lookups : touched_) lookups.clear();
}

void Membership::check_gradients() {
  const auto refuse = [&]<class E>(E error) {
    begin_attempt();
    throw error;
  };
  if (!twice_.empty())
    refuse(UsageError(fmt::format(
        "'{}' got two gradients in step {}: with overlap there is one backward a step, and "
        "gradients leave as it makes them",
        twice_, step_)));
  std::vector<at::Tensor> gradients;
  std::vector<size_t> of;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const at::Tensor& gradient = p.tensor.grad();
    if (p.left) {
      if (!gradient.defined() || gradient._version() != p.version)
        refuse(UsageError(
            fmt::format("the gradient of '{}' was changed after backward, when it had left: set "
                        "ClientOptions::overlap to false",
                        p.name)));
      continue;
    }
    if (!gradient.defined() || !p.tensor.requires_grad()) continue;
    if (gradient.layout() != at::kStrided || gradient.scalar_type() != p.tensor.scalar_type())
      refuse(UsageError(fmt::format(
          "the gradient of '{}' is sparse, or of another dtype than the parameter: for large "
          "tables use ShardedEmbedding",
          p.name)));
    gradients.push_back(gradient);
    of.push_back(i);
  }
  const int64_t bad = first_not_finite(gradients);
  const std::string name = bad >= 0 ? parameters_[of[static_cast<size_t>(bad)]].name : not_finite_;
  if (!name.empty())
    refuse(NumericError(fmt::format(
        "the gradient of '{}' at worker {} is not finite in step {}: nothing of it counts as sent",
        name, options_.rank, step_)));
  check_rows();
}

void Membership::check_rows() {
  for (size_t t = 0; t < touched_.size(); ++t)
    for (const Touched& touched : touched_[t]) {
      const at::Tensor& gradient = touched.rows.grad();
      if (!gradient.defined() || all_finite(gradient)) continue;
      begin_attempt();
      fail<NumericError>(
          "gradients of rows of '{}' at worker {} are not finite in step {}: nothing of them "
          "counts as sent",
          options_.tables[t].name, options_.rank, step_);
    }
}

}  // namespace trireme::rpc::server
