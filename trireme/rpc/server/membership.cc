// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/membership.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/server/methods.h"

namespace trireme::rpc::server {

Membership::Membership(Worker me, NamedTensors parameters, ClientOptions options)
    : me_(std::move(me)), options_(std::move(options)) {
  check<UsageError>(!options_.servers.empty(),
                    "a parameter client without servers: ClientOptions::servers must name the "
                    "workers that offer a ParameterServer");
  for (const std::string& name : options_.servers) {
    check<UsageError>(std::count(options_.servers.begin(), options_.servers.end(), name) == 1,
                      "ClientOptions::servers names '{}' twice", name);
    servers_.emplace_back().name = name;
  }
  std::sort(options_.tables.begin(), options_.tables.end(),
            [](const TableOptions& a, const TableOptions& b) { return a.name < b.name; });
  touched_.resize(options_.tables.size());
  take_parameters(parameters);
  place_parameters();
  check<UsageError>(!parameters_.empty() || !options_.tables.empty(),
                    "a parameter client without parameters and tables has nothing to train");
  join(true);
  if (!options_.overlap) return;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (parameters_[p].tensor.requires_grad())
      hooks_.emplace_back(parameters_[p].tensor, [this, p] { became_ready(p); });
}

Membership::~Membership() {
  hooks_.clear();
  try {
    leave();
  } catch (const std::exception& error) {
    log_warn("parameter client: {}", brief(error));
  }
}

void Membership::take_parameters(const NamedTensors& given) {
  std::map<const void*, size_t> known;  // tensors, not memory: tied ones are one
  for (const auto& [name, tensor] : given) {
    check<UsageError>(tensor.defined() && tensor.layout() == at::kStrided && tensor.is_leaf(),
                      "'{}' is no dense leaf tensor, and cannot be a parameter", name);
    const auto [at, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), parameters_.size());
    if (is_new)
      parameters_.push_back({name, tensor});
    else if (name < parameters_[at->second].name)  // whatever the order of its names
      parameters_[at->second].name = name;
  }
  std::sort(parameters_.begin(), parameters_.end(),
            [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  for (size_t p = 1; p < parameters_.size(); ++p)
    check<UsageError>(parameters_[p].name != parameters_[p - 1].name,
                      "two parameters are called '{}'", parameters_[p].name);
}

void Membership::place_parameters() {
  std::vector<uint64_t> bytes;
  for (const Parameter& p : parameters_) bytes.push_back(p.tensor.nbytes());
  const std::vector<int> server = plan::place(bytes, servers());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = parameters_[i];
    p.server = static_cast<size_t>(server[i]);
    Server& s = servers_[p.server];
    p.key = static_cast<uint32_t>(s.keys.size());
    s.keys.push_back({p.name, static_cast<int32_t>(p.tensor.scalar_type()), p.tensor.sizes().vec(),
                      p.tensor.requires_grad()});
    s.parameters.push_back(i);
  }
  for (Server& s : servers_) s.buffers = plan_buffers(s.keys);
}

void Membership::check_here() const {
  check<UsageError>(!left_, "worker {} has left the parameter servers", options_.rank);
}

void Membership::step(double lr) {
  check_here();
  check<UsageError>(std::isfinite(lr), "a step with a learning rate of {}", lr);
  if (dropped_) {
    forget_gradients();
    return pull();
  }
  if (!pushed_) check_gradients();
  try {
    if (!pushed_) {
      wait_for_pushes();  // of the last step
      get_weights(step_, false);
      push_all(lr);
      // The user's gradients may change when this returns. Rows' are ours: who looks some up next
      // waits for them.
      if (!parameters_.empty()) wait_for_pushes();
      pushed_ = true;
      for (Server& s : servers_) s.current = false;
    }
    get_weights(step_ + 1, false);
  } catch (const PeerLost& error) {
    log_warn("parameter client: {}", brief(error));
    return come_back(true);
  } catch (const Over&) {
    return come_back(true);
  }
  ++step_;
  forget_gradients();
}

void Membership::pull() {
  check_here();
  try {
    wait_for_pushes();
    for (Server& s : servers_) s.current = false;
    get_weights(step_, true);
  } catch (const PeerLost& error) {
    log_warn("parameter client: {}", brief(error));
    come_back(false);
  } catch (const Over&) {
    come_back(false);
  }
}

void Membership::leave() {
  if (left_) return;
  left_ = true;
  wait_quietly();
  for (Server& s : servers_) {
    if (!s.peer) continue;
    try {
      s.peer->with(std::chrono::seconds(10)).sync<LeaveCall>(options_.rank);
    } catch (const Error& error) {
      // Who is gone, or shuts down itself, waits for nobody; the others are told all the same.
      log_debug("parameter client: {}", brief(error));
    }
  }
}

size_t Membership::table(const std::string& name) const {
  for (size_t t = 0; t < options_.tables.size(); ++t)
    if (options_.tables[t].name == name) return t;
  fail<UsageError>("there is no table '{}' among ClientOptions::tables", name);
}

}  // namespace trireme::rpc::server
