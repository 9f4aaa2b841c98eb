// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/nccl/backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "trireme/base/check.h"
#include "trireme/comm/c10d/store.h"
#include "trireme/comm/c10d/world.h"
#include "trireme/comm/nccl/advice.h"
#include "trireme/store/memory_store.h"

namespace trireme::detail {
namespace {

using c10d::ProcessGroupNCCL;
using TorchWork = c10::intrusive_ptr<c10d::Work>;

/// Whether NCCL reduces this type; complex types as pairs of reals, bool as uint8.
bool reduces_type(at::ScalarType t) {
  switch (t) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kComplexFloat:
    case at::kComplexDouble:
      return true;
    default:
      return false;
  }
}

c10d::ReduceOp reduce_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::avg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::product:
      return c10d::ReduceOp::PRODUCT;
    default:
      return c10d::ReduceOp::SUM;
  }
}

/// The tensor as NCCL reduces it.
at::Tensor as_numbers(const at::Tensor& t) {
  at::Tensor flat = t.view(-1);
  if (t.is_complex()) return at::view_as_real(flat).view(-1);
  return t.scalar_type() == at::kBool ? flat.view(at::kByte) : flat;
}
/// The tensor as NCCL moves it.
at::Tensor as_bytes(const at::Tensor& t) { return t.defined() ? t.view(-1).view(at::kByte) : t; }

/// Newer LibTorch can abort running communicators; in older versions their destructor does.
template <class Group>
void end_communicators(Group& group) {
  if constexpr (requires { group.abort(); }) group.abort();
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(std::shared_ptr<World> world, std::string group, int rank,
              std::vector<int> world_ranks, Duration timeout)
      : Backend(rank, static_cast<int>(world_ranks.size()), timeout),
        world_(std::move(world)),
        group_(std::move(group)),
        world_ranks_(std::move(world_ranks)) {
    if (world_->watch)
      world_->watch->join(group_, world_ranks_, [this](const Failure& f) { settle(f); });
    std::shared_ptr<Store> keys;
    if (world_->store)
      keys = std::make_shared<PrefixStore>(
          std::shared_ptr<Store>(world_->store->clone(Deadline::after(timeout))), "nccl/" + group_);
    else
      keys = std::make_shared<MemoryStore>();
    auto options = ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
    nccl_ = c10::make_intrusive<ProcessGroupNCCL>(
        c10::make_intrusive<C10dStore>(keys, Deadline::after(timeout), [this] { check_usable(); }),
        rank, size(), options);
  }

  ~NcclBackend() override {
    if (world_->watch) world_->watch->leave(group_, failure_ == nullptr);
  }

  const std::string& name() const override {
    static const std::string name = "nccl";
    return name;
  }
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    return device == at::kCUDA && (!facts_of(op).reduces || reduces_type(dtype));
  }
  bool wait_orders_streams(at::DeviceType device) const override { return device == at::kCUDA; }
  bool supports(ReduceOp op, at::ScalarType dtype) const override {
    if (!reduces_type(dtype)) return false;
    switch (op) {
      case ReduceOp::sum:
        return dtype != at::kBool;
      case ReduceOp::avg:
        return at::isFloatingType(dtype) || at::isComplexType(dtype);
      case ReduceOp::min:
      case ReduceOp::max:
      case ReduceOp::product:
        return !at::isComplexType(dtype);
      default:
        return false;
    }
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return at::empty(sizes, options);
  }

  Token post(const Call& call) override {
    switch (call.op) {
      case Collective::all_reduce: {
        std::vector<at::Tensor> tensors{as_numbers(*call.input)};
        c10d::AllreduceOptions options;
        options.reduceOp = reduce_op(call.reduction);
        return launch(call, [&] { return nccl_->allreduce(tensors, options); });
      }
      case Collective::broadcast: {
        std::vector<at::Tensor> tensors{as_bytes(*call.input)};
        c10d::BroadcastOptions options;
        options.rootRank = call.root;
        return launch(call, [&] { return nccl_->broadcast(tensors, options); });
      }
      case Collective::reduce: {
        std::vector<at::Tensor> tensors{as_numbers(*call.input)};
        c10d::ReduceOptions options;
        options.reduceOp = reduce_op(call.reduction);
        options.rootRank = call.root;
        return launch(call, [&] { return nccl_->reduce(tensors, options); });
      }
      case Collective::all_gather: {
        at::Tensor to = as_bytes(*call.output), from = as_bytes(*call.input);
        return launch(call, [&] { return nccl_->_allgather_base(to, from); });
      }
      case Collective::reduce_scatter: {
        at::Tensor to = as_numbers(*call.output), from = as_numbers(*call.input);
        c10d::ReduceScatterOptions options;
        options.reduceOp = reduce_op(call.reduction);
        return launch(call, [&] { return nccl_->_reduce_scatter_base(to, from, options); });
      }
      case Collective::gather: {
        std::vector<at::Tensor> from{as_bytes(*call.input)};
        std::vector<std::vector<at::Tensor>> to;
        if (rank() == call.root) to.push_back(as_bytes(*call.output).chunk(size()));
        c10d::GatherOptions options;
        options.rootRank = call.root;
        return launch(call, [&] { return nccl_->gather(to, from, options); });
      }
      case Collective::scatter: {
        std::vector<at::Tensor> to{as_bytes(*call.output)};
        std::vector<std::vector<at::Tensor>> from;
        if (rank() == call.root) from.push_back(as_bytes(*call.input).chunk(size()));
        c10d::ScatterOptions options;
        options.rootRank = call.root;
        return launch(call, [&] { return nccl_->scatter(to, from, options); });
      }
      case Collective::all_to_all:
        return all_to_all(call);
      case Collective::send: {
        check_tag("send", call.tag);
        std::vector<at::Tensor> tensors{as_bytes(*call.input)};
        return launch(call, [&] { return nccl_->send(tensors, call.root, 0); });
      }
      case Collective::recv: {
        check_tag("recv", call.tag);
        check<UsageError>(call.root != kAnySource,
                          "recv: the nccl backend has no recv from any source");
        std::vector<at::Tensor> tensors{as_bytes(*call.output)};
        Token token = launch(call, [&] { return nccl_->recv(tensors, call.root, 0); });
        token.peer = call.root;
        return token;
      }
      case Collective::barrier:
        return barrier(call);
      default:
        fail<UsageError>("{}: the nccl backend does not support it", name_of(call.op));
    }
  }

  void wait(Token token, Duration timeout) override {
    const auto at = held_.find(token.number);
    if (at == held_.end()) return;
    const Deadline deadline = Deadline::after(timeout);
    while (at->second.blocks && !is_done(at->second)) {
      if (deadline.expired()) time_out(at->second, timeout);
      if (progress_group()) progress_group()->progress_others(this);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    check_usable();
    try {
      at->second.work->wait();  // orders the current stream
    } catch (const std::exception& e) {
      broken(at->second, e.what());
    }
    // What runs now goes to the current stream, after the call.
    if (auto done = std::exchange(at->second.done, nullptr)) done();
    reap();
  }
  bool completed(Token token) override {
    const auto at = held_.find(token.number);
    if (at == held_.end()) return true;
    if (!is_done(at->second)) return false;
    wait(token, timeout());
    return true;
  }
  int source(Token token) override { return token.peer; }
  int64_t shared_bytes() const override { return 0; }
  void progress() override { reap(); }

  void abort(const std::string& why, AbortKind kind) override {
    const auto [told, own] =
        give_up(why, kind, rank(), world_ranks_[static_cast<size_t>(rank())], number_);
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = own;
    }
    if (world_->watch) world_->watch->fail(group_, told);
    end_communicators(*nccl_);
  }

  void when_complete(Token token, std::function<void()> done) override {
    const auto at = held_.find(token.number);
    if (at == held_.end()) return done();
    at->second.done = std::move(done);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    check_usable();
    std::vector<int> world_ranks;
    int rank = -1;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == this->rank()) rank = static_cast<int>(i);
      world_ranks.push_back(world_ranks_[static_cast<size_t>(members[i])]);
    }
    return std::make_shared<NcclBackend>(world_, name, rank, world_ranks, timeout());
  }

 private:
  struct Launched {
    const char* op;
    CallSite site;
    Clock::time_point posted;
    std::vector<at::Tensor> tensors;
    TorchWork work;
    bool blocks = false;
    std::function<void()> done;
  };

  static void check_tag(const char* what, int tag) {
    check<UsageError>(tag <= 0,
                      "{}: tag {}; the nccl backend matches messages in the order of the calls and "
                      "has no tags",
                      what, tag);
  }

  Token all_to_all(const Call& call) {
    at::Tensor to = as_bytes(*call.output), from = as_bytes(*call.input);
    auto bytes = [&](std::vector<int64_t> counts) {
      for (int64_t& n : counts) n *= static_cast<int64_t>(call.input->element_size());
      return counts;
    };
    std::vector<int64_t> out = bytes(*call.output_counts), in = bytes(*call.input_counts);
    return launch(call, [&] { return nccl_->alltoall_base(to, from, out, in); });
  }
  // The CPU waits for it.
  Token barrier(const Call& call) {
    at::Tensor one =
        at::ones({1}, at::TensorOptions(at::kFloat).device(device_.value_or(at::kCUDA)));
    std::vector<at::Tensor> tensors{one};
    Call on_one = call;
    on_one.input = &one;
    const Token token = launch(on_one, [&] { return nccl_->allreduce(tensors); });
    held_.at(token.number).blocks = true;
    return token;
  }

  template <class F>
  Token launch(const Call& call, F start) {
    check_usable();
    reap();
    const char* const op = name_of(call.named());
    const at::Tensor& counted = *call.counted();
    check_device(op, counted.device());
    // No rank has elements. If parts may be uneven, empty here does not mean empty elsewhere.
    if (!call.facts().is_uneven && counted.numel() == 0) return {};
    Launched launched{op, call.site, Clock::now(), {}, {}, false, {}};
    for (const at::Tensor* t : {call.output, call.input})
      if (t) launched.tensors.push_back(*t);
    try {
      launched.work = start();
    } catch (const std::exception& e) {
      broken(launched, e.what());
    }
    const Token token{++number_, -1, 1};
    held_.emplace(token.number, std::move(launched));
    return token;
  }

  // NCCL would make a communicator for each GPU, and ranks that use different ones would hang.
  void check_device(const char* op, at::Device device) {
    if (!device_) device_ = device;
    check<UsageError>(*device_ == device,
                      "{}: the tensor is on {}, and rank {} has used {} so far: a rank of the nccl "
                      "backend has one GPU. Make it the current one (c10::DeviceGuard, "
                      "CUDA_VISIBLE_DEVICES) before the first call",
                      op, device.str(), rank(), device_->str());
  }

  /// Whether the GPU has finished the call. Throws its error.
  bool is_done(Launched& call) {
    check_usable();
    if (!call.work->isCompleted()) {
      if (Clock::now() - call.posted > timeout()) time_out(call, timeout());
      return false;
    }
    if (auto error = call.work->exception()) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        broken(call, e.what());
      }
    }
    return true;
  }

  // Releases what the GPU has finished, oldest first: NCCL's calls complete in order.
  void reap() {
    while (!held_.empty()) {
      const auto first = held_.begin();
      if (!is_done(first->second)) return;
      Launched call = std::move(first->second);
      held_.erase(first);
      if (call.done) {
        call.work->wait();
        call.done();
      }
    }
  }

  [[noreturn]] void time_out(const Launched& call, Duration limit) {
    fail_now({Failure::Kind::timeout, -1,
              fmt::format("{} at {}:{} did not complete within {:.3g} s of rank {}. A rank is "
                          "stopped, slower than the timeout of the group, or has made other calls",
                          call.op, call.site.file, call.site.line,
                          std::chrono::duration<double>(limit).count(), rank())});
  }

  /// Throws NCCL's error; if another rank caused it, the store knows the cause.
  [[noreturn]] void broken(const Launched& call, const std::string& error) {
    if (world_->watch)
      if (auto told = world_->watch->cause(group_, -1, std::chrono::seconds(2))) fail_now(*told);
    const std::string advice = nccl_advice(error);
    fail_now({Failure::Kind::resource, world_ranks_[static_cast<size_t>(rank())],
              fmt::format("rank {}: {} at {}:{} failed in NCCL: {}{}", rank(), call.op,
                          call.site.file, call.site.line, advice.empty() ? error : advice,
                          advice.empty() ? "" : " (" + error + ")")});
  }

  void check_usable() {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }
  void settle(const Failure& failure) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = exception_of(failure, rank());
    }
    if (nccl_) end_communicators(*nccl_);
  }
  [[noreturn]] void fail_now(const Failure& failure) {
    settle(world_->watch ? world_->watch->fail(group_, failure) : failure);
    check_usable();
    std::abort();  // settle() set it
  }

  const std::shared_ptr<World> world_;
  const std::string group_;
  const std::vector<int> world_ranks_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  c10::intrusive_ptr<ProcessGroupNCCL> nccl_;
  std::optional<at::Device> device_;  // of the first call
  uint64_t number_ = 0;
  std::map<uint64_t, Launched> held_;
};

}  // namespace

std::shared_ptr<Backend> nccl_backend(const BackendSpec& spec) {
  const auto* cuda = c10::impl::device_guard_impl_registry[static_cast<size_t>(at::kCUDA)].load();
  check<UsageError>(cuda && cuda->deviceCount() > 0, "{}",
                    no_gpu_text(std::getenv("CUDA_VISIBLE_DEVICES")));
  // Torch would end the process if a call fails or is late, which is the program's decision.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  std::vector<int> ranks;
  for (int r = 0; r < spec.size; ++r) ranks.push_back(r);
  return std::make_shared<NcclBackend>(make_world(spec, "nccl", Deadline::after(spec.timeout)),
                                       spec.name, spec.rank, ranks, spec.timeout);
}

bool has_nccl() { return true; }

}  // namespace trireme::detail
