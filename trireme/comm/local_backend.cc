// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local_backend.h"

#include <ATen/ops/from_blob.h>

#include <mutex>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/dtypes.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

using local::DType;

class LocalBackend final : public Backend, public std::enable_shared_from_this<LocalBackend> {
 public:
  LocalBackend(std::unique_ptr<local::Host> host, Duration timeout, std::shared_ptr<void> keep,
               MakeLocalHost make_host, const std::string& name)
      : Backend(host->rank(), host->size(), timeout),
        keep_(std::move(keep)),
        make_host_(std::move(make_host)),
        group_(name),
        engine_(std::move(host), timeout, nullptr, {}, name) {}
  LocalBackend(std::unique_ptr<local::Host> host, std::shared_ptr<LocalBackend> root,
               const std::vector<int>& root_ranks, const std::string& name)
      : Backend(host->rank(), host->size(), root->timeout()),
        root_(std::move(root)),
        root_ranks_(root_ranks),
        group_(name),
        engine_(std::move(host), root_->timeout(), &root_->engine_, root_ranks, name) {}

  // Before held_ releases tensors that peers may still read.
  ~LocalBackend() override { engine_.leave(); }

  const std::string& name() const override {
    static const std::string name = "local";
    return name;
  }

  bool supports(Collective, at::ScalarType dtype, at::DeviceType device) const override {
    return device == at::kCPU && dtype_of(dtype).has_value();
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override { return reduces(op, dtype); }

  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    check<UsageError>(options.device().is_cpu(),
                      "the local backend provides CPU memory, not {} memory",
                      options.device().str());
    // After a failure peers may still write to memory that was handed out, so none of it is reused.
    engine_.check_usable();
    int64_t numel = 1;
    for (auto s : sizes) numel *= s;
    const size_t bytes = static_cast<size_t>(numel) * options.dtype().itemsize();
    void* p;
    {
      std::lock_guard lock(arena_);
      p = engine_.host().allocate(bytes);
    }
    // The tensor keeps the arena; the arena does not keep the tensor.
    return at::from_blob(
        p, sizes,
        [self = shared_from_this()](void* q) {
          std::lock_guard lock(self->arena_);
          self->engine_.host().deallocate(q);
        },
        options);
  }

  at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) override {
    check<UsageError>(options.device().is_cpu(),
                      "the local backend provides CPU memory, not {} memory",
                      options.device().str());
    int64_t numel = 1;
    for (auto s : sizes) numel *= s;
    const auto bytes = static_cast<size_t>(numel) * options.dtype().itemsize();
    const std::shared_ptr<void> memory =
        engine_.host().one_address_space() ? of_threads(bytes, owner) : of_processes(bytes, owner);
    return at::from_blob(
        memory.get(), sizes, [memory](void*) {}, options);
  }

  Token post(const Call& call) override {
    local::Call c;
    c.op = call.op;
    c.called = call.named();
    c.red = call.reduction;
    c.root = call.root;
    c.tag = call.tag;
    c.site = call.site;
    if (const at::Tensor* t = call.counted()) {
      c.dtype = dtype_of(t->scalar_type()).value_or(DType::u8);
      c.count = static_cast<size_t>(t->numel());
    }
    if (call.op == Collective::all_to_all) {
      static_assert(sizeof(int64_t) == sizeof(uint64_t));
      c.count = 0;
      c.send_counts = reinterpret_cast<const uint64_t*>(call.input_counts->data());
      c.recv_counts = reinterpret_cast<const uint64_t*>(call.output_counts->data());
    }
    const bool has_in = call.input && call.input->defined(),
               has_out = call.output && call.output->defined(),
               in_place = call.input == call.output;
    if (has_in) c.in = call.input->data_ptr();
    if (has_out) c.out = in_place ? const_cast<void*>(c.in) : call.output->data_ptr();
    const local::Ticket t = engine_.post(c);
    // Completed while posting (the other ranks were here before): nothing to hold or wait for.
    if (engine_.is_complete(t)) {
      if (!held_.empty()) reap();
      return c.op == Collective::recv ? Token{0, engine_.source(t), 0} : Token{};
    }
    const Token token{t.seq, t.peer, static_cast<uint8_t>(t.kind)};
    held_.push({token,
                has_in ? *call.input : at::Tensor(),
                has_out && !in_place ? *call.output : at::Tensor(),
                {}});
    return token;
  }

  void join(std::shared_ptr<ProgressGroup> progress_group) override {
    engine_.also_move([progress_group] { return progress_group->progress_others(); });
    Backend::join(std::move(progress_group));
  }
  bool on_stall(std::function<void()> look) override {
    engine_.on_stall(std::move(look));
    return true;
  }
  void wait(Token token, Duration timeout) override {
    const local::Ticket t = ticket(token);
    // The clock is read only if the peers are late.
    if (!engine_.poll(t)) engine_.wait(t, Deadline::after(timeout));
    reap();
  }
  bool completed(Token token) override {
    const bool done = engine_.test(ticket(token));
    if (done) reap();
    return done;
  }
  int source(Token token) override { return engine_.source(ticket(token)); }
  int64_t shared_bytes() const override {
    return static_cast<int64_t>(engine_.host().window_bytes());
  }
  void progress() override {
    engine_.progress();
    reap();
  }
  void abort(const std::string& why, AbortKind kind) override {
    engine_.fail_with(why, kind == AbortKind::timeout    ? local::FailureKind::timeout
                           : kind == AbortKind::mismatch ? local::FailureKind::mismatch
                                                         : local::FailureKind::other);
  }

  void when_complete(Token token, std::function<void()> done) override {
    for (size_t i = 0; i < held_.size(); ++i) {
      const Token& t = held_[i].token;
      if (t.number != token.number || t.kind != token.kind || t.peer != token.peer) continue;
      held_[i].done = std::move(done);
      return;
    }
    done();  // already complete
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    LocalBackend& top = root_ ? *root_ : *this;
    std::vector<int> root_ranks;
    int rank = -1;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == this->rank()) rank = static_cast<int>(i);
      root_ranks.push_back(root_ ? root_ranks_[static_cast<size_t>(members[i])] : members[i]);
    }
    check<UsageError>(static_cast<bool>(top.make_host_), "this group cannot be split");
    return std::make_shared<LocalBackend>(
        top.make_host_(rank, static_cast<int>(members.size()), name), top.shared_from_this(),
        root_ranks, group_.empty() ? "" : name);
  }

 private:
  struct Held {
    Token token;
    at::Tensor in, out;
    std::function<void()> done;
  };

  static local::Ticket ticket(Token t) {
    return {static_cast<local::Ticket::Kind>(t.kind), t.peer, t.number};
  }

  // Releases what complete calls held. Collectives and streams complete independently of each
  // other.
  void reap() {
    for (size_t i = 0; i < held_.size();) {
      if (!engine_.is_complete(ticket(held_[i].token))) {
        ++i;
        continue;
      }
      Held h = std::move(held_[i]);
      held_.erase(i);
      if (h.done) h.done();
    }
  }

  std::shared_ptr<void> keep_;
  MakeLocalHost make_host_;
  // The place of shared memory, as its owner reports it.
  struct Where {
    int64_t window = 0, address = 0;
  };
  Where tell(Where where, int owner) {
    at::Tensor wire =
        at::from_blob(&where, {2}, at::TensorOptions(at::kLong)).clone();  // which calls may keep
    wait(post({.op = Collective::broadcast,
               .root = owner,
               .input = &wire,
               .output = &wire,
               .site = CallSite::here()}),
         timeout());
    const auto* p = static_cast<const int64_t*>(wire.data_ptr());
    return {p[0], p[1]};
  }

  // Each rank takes its own handle, so that the last one frees the memory.
  std::shared_ptr<void> of_threads(size_t bytes, int owner) {
    using Handles = std::vector<std::shared_ptr<void>>;
    std::unique_ptr<Handles> handles;
    Where where;
    if (rank() == owner) {
      local::Host& host = engine_.host();
      void* p = host.allocate(bytes);
      const std::shared_ptr<void> memory(
          p, [self = shared_from_this()](void* q) { self->engine_.host().deallocate(q); });
      handles = std::make_unique<Handles>(static_cast<size_t>(size()), memory);
      where.address = reinterpret_cast<int64_t>(handles.get());
    }
    auto* all = reinterpret_cast<Handles*>(tell(where, owner).address);
    std::shared_ptr<void> mine = std::move((*all)[static_cast<size_t>(rank())]);
    wait(post({.op = Collective::barrier, .site = CallSite::here()}),
         timeout());  // the owner keeps the list until then
    return mine;
  }

  // The owner's block stays in its arena: others may use it after the owner has released it.
  std::shared_ptr<void> of_processes(size_t bytes, int owner) {
    local::Host& host = engine_.host();
    local::Slot slot{};
    void* own = nullptr;
    Where where;
    if (rank() == owner) {
      std::lock_guard lock(arena_);
      own = host.allocate(bytes);
      const Deadline deadline = Deadline::after(timeout());
      while (host.describe(own, bytes, slot), slot.flags != local::kAddressable)
        check<Timeout>(!deadline.expired(), "rank {} could not share its memory with the others",
                       rank());
      where = {slot.window, static_cast<int64_t>(slot.address)};
    }
    where = tell(where, owner);
    slot.window = static_cast<uint32_t>(where.window);
    slot.address = static_cast<uint64_t>(where.address);
    void* p = rank() == owner ? own : host.resolve(owner, slot, bytes);
    return {p, [self = shared_from_this()](void*) {}};
  }

  std::shared_ptr<LocalBackend> root_;  // empty: this is it
  std::vector<int> root_ranks_;
  const std::string group_;
  local::Engine engine_;
  std::mutex arena_;
  local::RingQueue<Held> held_;
};

static_assert(kAnySource == local::kAnySource);

}  // namespace

std::shared_ptr<Backend> local_backend(std::unique_ptr<local::Host> host, Duration timeout,
                                       std::shared_ptr<void> keep, MakeLocalHost make_host,
                                       const std::string& name) {
  return std::make_shared<LocalBackend>(std::move(host), timeout, std::move(keep),
                                        std::move(make_host), name);
}

namespace {

std::shared_ptr<Backend> of_thread_world(const std::shared_ptr<local::ThreadWorld>& world,
                                         const BackendSpec& spec, const std::string& name) {
  return local_backend(
      local::thread_host(world, spec.rank), spec.timeout, world,
      [world](int member, int size, const std::string& group) {
        return local::thread_host(world->child(group, size), member);
      },
      name);
}

}  // namespace

std::shared_ptr<Backend> local_backend(const BackendSpec& spec) {
  const bool on_its_own = !spec.check.empty();
  const std::string name = on_its_own ? spec.name : "";
  if (spec.threads) return of_thread_world(spec.threads, spec, name);
  if (spec.size == 1) return of_thread_world(std::make_shared<local::ThreadWorld>(1), spec, name);
  check<UsageError>(spec.store != nullptr, "the local backend needs the job's store");
  // Each group of some of the ranks meets in the same way, under its own name.
  auto make_host = [store = spec.store, timeout = spec.timeout, on_its_own](
                       int rank, int size, const std::string& group) {
    local::Exchange exchange{
        [&](const std::string& key, const std::string& value) {
          store->set(group + "/" + key, value);
        },
        [&](const std::string& key, Deadline until) {
          return store->get(group + "/" + key, until);
        },
        [&](const std::string& key) { return store->try_get(group + "/" + key); }};
    // An outer backend may have left its own will there.
    if (on_its_own)
      exchange.will = [&](const std::string& key, const std::string& value) {
        key.empty() ? store->clear_will() : store->set_will(group + "/" + key, value);
      };
    return local::process_host(rank, size, exchange, Deadline::after(timeout));
  };
  return local_backend(make_host(spec.rank, spec.size, spec.name), spec.timeout, spec.store,
                       make_host, name);
}

}  // namespace trireme::detail
