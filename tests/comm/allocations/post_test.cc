// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "trireme/base/check.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/plan/tuning.h"
#include "trireme/comm/start/run.h"
#include "trireme/comm/wrappers/recorded_backend.h"
#include "trireme/comm/wrappers/tuned_backend.h"

// This program counts what it takes from the heap, which is why it is one of its own.
namespace {
thread_local bool counting = false;
thread_local size_t allocations = 0;

void* counted(size_t bytes, size_t align = 0) {
  if (counting) ++allocations;
  void* p = align ? std::aligned_alloc(align, (bytes + align - 1) / align * align)
                  : std::malloc(bytes ? bytes : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
// Out of line: GCC takes free() for the wrong way to give back what new gave.
[[gnu::noinline]] void give_back(void* p) { std::free(p); }
}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, std::align_val_t align) {
  return counted(bytes, static_cast<size_t>(align));
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, size_t) noexcept { give_back(p); }
void operator delete[](void* p, size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { give_back(p); }

namespace post_test {

using namespace trireme;

namespace {

constexpr int kWarmUp = 3000, kCalls = 1000;

/// What `calls` takes from the heap on this thread, once its memory has grown to what it needs.
size_t allocations_of(const std::function<void()>& calls) {
  for (int i = 0; i < kWarmUp; ++i) calls();
  allocations = 0;
  counting = true;
  for (int i = 0; i < kCalls; ++i) calls();
  counting = false;
  return allocations;
}

std::shared_ptr<trireme::detail::Backend> backend_of(const Group& group) {
  return {std::shared_ptr<void>(), group.get()};  // the group outlives it
}

/// One call of each kind whose arguments are no lists.
void call_each(Group& g, const at::Tensor& one, const at::Tensor& many, const at::Tensor& all) {
  g.all_reduce(one).wait();
  g.all_reduce(many, ReduceOp::max).wait();
  g.broadcast(one, 0).wait();
  g.reduce(one, 1).wait();
  g.all_gather_into_tensor(all, many).wait();
  g.reduce_scatter_tensor(many, all).wait();
  Work sent = g.send(one, 1 - g.rank());
  g.recv(one, 1 - g.rank()).wait();
  sent.wait();
  g.barrier();
}

void expect_none(const std::function<Group(Group)>& around) {
  run_threads(2, [&](Group plain) {
    Group g = around(plain);
    const at::Tensor one = at::zeros({1}), many = at::zeros({10000}), all = at::zeros({20000});
    const size_t taken = allocations_of([&] { call_each(g, one, many, all); });
    trireme::check<Error>(taken == 0, "{} allocations in {} rounds", taken, kCalls);
  });
}

}  // namespace

TEST(comm_allocations_post, the_heap_is_counted) {
  counting = true;
  const size_t before = allocations;
  std::vector<int>* volatile p = new std::vector<int>(100);
  const size_t after = allocations;
  counting = false;
  delete p;
  EXPECT_EQ(after - before, 2u);
}

TEST(comm_allocations_post, a_call_of_the_local_backend_takes_nothing_from_the_heap) {
  expect_none([](Group plain) { return plain; });
}

TEST(comm_allocations_post, nor_does_one_that_a_tuning_table_hands_on) {
  expect_none([](Group plain) {
    TuningTable table(HostShape{"any", 1, 2, "local"});
    for (size_t bytes : {size_t{4}, size_t{1} << 20})
      for (Algorithm a : kAlgorithms)
        table.add({"all_reduce", 2, bytes, a, a == Algorithm::direct ? 1e-6 : 1e-3});
    return Group(trireme::detail::tuned_backend(backend_of(plain), table, {}));
  });
}

// The recorder keeps a list of the calls under way and the check an exchange of all ranks in 64
// calls: seldom, and never for each call.
TEST(comm_allocations_post, a_call_that_is_checked_and_recorded_takes_little_from_the_heap) {
  run_threads(2, [](Group plain) {
    Group g(trireme::detail::recorded_backend(
        trireme::detail::checked_backend(backend_of(plain), "hash", "world"), "world",
        plain.rank()));
    const at::Tensor one = at::zeros({1});
    const size_t taken = allocations_of([&] { g.all_reduce(one).wait(); });
    RecordProperty("allocations_in_1000_calls", static_cast<int>(taken));
    trireme::check<Error>(taken < kCalls / 2, "{} allocations in {} calls", taken, kCalls);
  });
}

}  // namespace post_test
