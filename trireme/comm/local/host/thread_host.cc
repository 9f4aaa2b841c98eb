// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/comm/local/host/host.h"
#include "trireme/comm/local/waiter.h"

namespace trireme::local {

// Publishes the CPUs of the calling thread, which need not be the one that made the control memory.
static void publish_cpus(Control* c) {
  uint64_t mask[16];
  read_cpu_mask(mask);
  for (int w = 0; w < 16; ++w) c->cpus[w].store(mask[w], std::memory_order_relaxed);
}

void init_control(Control* c, int rank, int size, uint64_t generation, size_t bytes) {
  c->magic = kControlMagic;
  c->version = kControlVersion;
  c->rank = rank;
  c->size = size;
  c->pid = ::getpid();
  c->generation = generation;
  c->bytes = bytes;
  c->membarrier = join_membarrier();
  publish_cpus(c);
}

ThreadWorld::ThreadWorld(int size) : size_(size), memory_(nullptr, std::free) {
  check<UsageError>(size >= 1 && size <= kMaxRanks, "{} thread ranks; 1 to {} are possible", size,
                    kMaxRanks);
  const size_t each = control_bytes(size);
  auto* p =
      static_cast<unsigned char*>(std::aligned_alloc(kPage, each * static_cast<size_t>(size)));
  check<ResourceError>(p != nullptr, "no memory for {} thread ranks", size);
  // Only Control and packets must be zero; staging and rings stay untouched pages until they are
  // needed.
  for (int r = 0; r < size; ++r) std::memset(p + each * static_cast<size_t>(r), 0, sizeof(Control));
  memory_.reset(p);
  for (int r = 0; r < size; ++r)
    for (int q = 0; q < size; ++q)
      std::memset(static_cast<void*>(packets_of(control(r), q)), 0, kPackets * sizeof(Packet));
  const uint64_t generation = stable_hash({ticks(), static_cast<uint64_t>(::getpid())});
  for (int r = 0; r < size; ++r) init_control(control(r), r, size, generation, each);
}

ThreadWorld::~ThreadWorld() = default;

Control* ThreadWorld::control(int rank) {
  return reinterpret_cast<Control*>(memory_.get() +
                                    control_bytes(size_) * static_cast<size_t>(rank));
}

std::shared_ptr<ThreadWorld> ThreadWorld::child(const std::string& name, int size) {
  std::lock_guard lock(mutex_);
  Child& child = children_[name];
  if (!child.world) child.world = std::make_shared<ThreadWorld>(size);
  std::shared_ptr<ThreadWorld> world = child.world;
  if (++child.asked == size) children_.erase(name);
  return world;
}

namespace {

class ThreadHost final : public Host {
 public:
  ThreadHost(std::shared_ptr<ThreadWorld> world, int rank)
      : Host(rank, world->size()), world_(std::move(world)) {
    publish_cpus(control(rank));
    control(rank)->state.store(RankState::alive, std::memory_order_release);
  }

  Control* control(int rank) override { return world_->control(rank); }
  bool one_address_space() const override { return true; }

  void* allocate(size_t bytes) override {
    const size_t align = bytes >= (2 << 20) ? size_t{2} << 20 : bytes >= (64 << 10) ? kPage : 64;
    void* p = std::aligned_alloc(align, round_up(bytes ? bytes : 1, align));
    check<ResourceError>(p != nullptr, "cannot allocate {} bytes", bytes);
    if (align == (2 << 20)) ::madvise(p, round_up(bytes, align), MADV_HUGEPAGE);
    return p;
  }
  void deallocate(void* p) override { std::free(p); }

  void describe(const void* p, size_t, Slot& slot) override {
    slot.window = 0;
    slot.address = reinterpret_cast<uint64_t>(p);
    slot.flags = kAddressable;
  }
  unsigned char* resolve(int, const Slot& slot, size_t) override {
    return reinterpret_cast<unsigned char*>(slot.address);
  }
  bool alive(int) override { return true; }  // a thread reports when it leaves or fails
  size_t window_bytes() const override { return 0; }

 private:
  std::shared_ptr<ThreadWorld> world_;
};

}  // namespace

std::unique_ptr<Host> thread_host(std::shared_ptr<ThreadWorld> world, int rank) {
  return std::make_unique<ThreadHost>(std::move(world), rank);
}

}  // namespace trireme::local
