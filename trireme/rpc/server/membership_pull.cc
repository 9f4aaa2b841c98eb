// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/server/membership.h"
#include "trireme/rpc/server/methods.h"

// Weights and rows come from the servers, once this worker may have them.
namespace trireme::rpc::server {
namespace {

// A worker that waits asks for whom, first after so long. An answer that takes longer on its way is
// given twice as long, and again.
constexpr Duration kSlice = std::chrono::seconds(3);

}  // namespace

at::Tensor rows_of(const plan::DistinctRows& found, int64_t begin, int64_t end) {
  return at::tensor(
      at::ArrayRef<int64_t>(found.rows.data() + begin, static_cast<size_t>(end - begin)),
      at::kLong);
}

void Membership::complain(size_t server, int64_t step, Deadline deadline, bool& said) const {
  std::string why = "which does not answer";
  try {
    std::string all;
    for (const auto& name : servers_[server].peer->with(kSlice).sync<WaitedForCall>(step))
      all += (all.empty() ? "" : ", and ") + name;
    why = all.empty() ? "which is busy" : "which waits for " + all;
  } catch (const Timeout&) {
  }
  const std::string text = fmt::format("worker {} waits to begin step {} at server '{}', {}",
                                       options_.rank, step, servers_[server].name, why);
  if (deadline.expired())
    fail<Timeout>("{}: it has waited for {:.3g} s", text,
                  std::chrono::duration<double>(options_.deadline).count());
  if (!std::exchange(said, true)) log_warn("parameter client: {}", text);
}

template <class M, class Request>
auto Membership::ask(size_t server, const Request& request, Duration most) {
  return servers_[server].peer->with(most).async<M>(request);
}

template <class M, class Request>
auto Membership::answer(size_t server, const Request& request, Future<detail::ResultOf<M>> future,
                        int64_t step, Deadline deadline) {
  Duration slice = kSlice;
  for (bool said = false;;) {
    try {
      auto value = future.get();
      if (value.answer == Answer::over) throw Over();
      return value;
    } catch (const Timeout&) {
      complain(server, step, deadline, said);
    }
    slice *= 2;
    future = ask<M>(server, request, std::min(deadline.remaining(), slice));
  }
}

// From servers that have parameters, or from all; only where it is not known yet that this worker
// may begin the step.
void Membership::get_weights(int64_t step, bool from_all) {
  const auto deadline = Deadline::after(options_.deadline);
  const Wanted wanted{options_.rank, epoch_, step};
  const bool own = step == step_;  // before a push: all must let it begin
  std::vector<std::pair<size_t, Future<Weights>>> asked;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (!servers_[i].current && (from_all || own || !servers_[i].keys.empty()))
      asked.emplace_back(i, ask<PullCall>(i, wanted, std::min(deadline.remaining(), kSlice)));
  // None of them is written before all are there: a step is whole.
  std::vector<Weights> weights;
  for (auto& [server, future] : asked)
    weights.push_back(answer<PullCall>(server, wanted, std::move(future), step, deadline));
  for (size_t i = 0; i < asked.size(); ++i) {
    put(servers_[asked[i].first], weights[i]);
    servers_[asked[i].first].current = true;
  }
}

void Membership::put(const Server& server, const Weights& weights) {
  c10::AutoGradMode no_grad(false);
  const BufferPlan& plan = server.buffers;
  bool fits = weights.buffers.size() == plan.dtypes.size();
  for (size_t b = 0; fits && b < plan.dtypes.size(); ++b)
    fits = weights.buffers[b].defined() && weights.buffers[b].numel() == plan.sizes[b] &&
           weights.buffers[b].scalar_type() == plan.dtypes[b];
  check<Corrupt>(fits, "server '{}' sends weights that are not those of its parameters",
                 server.name);
  for (size_t k = 0; k < server.keys.size(); ++k) {
    at::Tensor to = parameters_[server.parameters[k]].tensor;
    to.copy_(
        weights.buffers[plan.buffer[k]].narrow(0, plan.offsets[k], to.numel()).view(to.sizes()));
  }
}

at::Tensor Membership::rows(size_t table, const plan::DistinctRows& found, bool keeps) {
  check_here();
  const int64_t width = options_.tables[table].width;
  for (;;) {
    const auto deadline = Deadline::after(options_.deadline);
    try {
      wait_for_pushes();
      std::vector<std::pair<Lookup, Future<Rows>>> asked;
      std::vector<size_t> of;
      for (size_t s = 0; s < servers_.size(); ++s) {
        const int64_t begin = found.begins[s], n = found.begins[s + 1] - begin;
        if (n == 0) continue;
        Lookup lookup{{options_.rank, epoch_, step_}, static_cast<uint32_t>(table), {}};
        lookup.rows = rows_of(found, begin, begin + n);
        auto future = ask<LookUpCall>(s, lookup, std::min(deadline.remaining(), kSlice));
        asked.emplace_back(std::move(lookup), std::move(future));
        of.push_back(s);
      }
      std::vector<at::Tensor> parts;
      for (size_t i = 0; i < asked.size(); ++i) {
        auto& [lookup, future] = asked[i];
        const Rows rows = answer<LookUpCall>(of[i], lookup, std::move(future), step_, deadline);
        check<Corrupt>(rows.rows.defined() && rows.rows.dim() == 2 &&
                           rows.rows.size(0) == lookup.rows.size(0) && rows.rows.size(1) == width &&
                           rows.rows.scalar_type() == options_.tables[table].dtype,
                       "server '{}' sends rows of '{}' that are none", servers_[of[i]].name,
                       options_.tables[table].name);
        servers_[of[i]].current = true;
        parts.push_back(rows.rows);
      }
      c10::AutoGradMode no_grad(false);
      at::Tensor all = parts.empty()       ? at::empty({0, width}, options_.tables[table].dtype)
                       : parts.size() == 1 ? parts.front()
                                           : at::cat(parts);
      if (!keeps || dropped_) return keeps ? all.requires_grad_(true) : all;
      all.requires_grad_(true);
      touched_[table].push_back({found, all});
      return all;
    } catch (const PeerLost& error) {
      log_warn("parameter client: {}", brief(error));
      come_back(false);
    } catch (const Over&) {
      come_back(false);
    }
  }
}

}  // namespace trireme::rpc::server
