// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"

namespace large_test {

// Tensors of more than 2 GiB: neither bytes nor elements fit an int. Not in scripts/test --quick.
using namespace trireme;

namespace {

constexpr int64_t kBytes = (int64_t{1} << 31) + 8198;  // of uint8
constexpr int64_t kFloats = (int64_t{1} << 29) + 1027;
constexpr Duration kPatience = std::chrono::minutes(2);

/// Why there is no room for two tensors; "": there is. Not all of the machine: other tests run.
std::string no_room() {
  const local::Room room = local::memory_room();
  constexpr double kGiB = 1 << 30, kNeeds = 2 * kBytes / kGiB + 4;
  const double free = static_cast<double>(room.bytes) / kGiB;
  return free >= kNeeds ? ""
                        : fmt::format("needs {:.1f} GiB of memory; {:.1f} are free ({})", kNeeds,
                                      free, room.limit);
}

SpawnOptions this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.timeout = kPatience;
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  return o;
}

/// What rank r's tensor holds: small numbers that begin anew after a prime number of elements, so
/// that nothing which is off by a power of two is right.
constexpr int64_t kPeriod = 1048573;
template <class T>
std::vector<T> numbers(int r) {
  std::vector<T> v(kPeriod);
  for (int64_t i = 0; i < kPeriod; ++i)
    v[size_t(i)] = static_cast<T>((i * 7 + (i >> 9) + r * 5) & 63);
  return v;
}
template <class T>
void fill(const at::Tensor& t, const std::vector<T>& with) {
  for (int64_t i = 0, n = t.numel(); i < n; i += kPeriod)
    std::memcpy(t.data_ptr<T>() + i, with.data(), sizeof(T) * size_t(std::min(kPeriod, n - i)));
}
/// The elements of t from number `from` to `to`.
template <class T>
void expect(const at::Tensor& t, const std::vector<T>& want, const char* what, int64_t from = 0,
            int64_t to = -1) {
  const int64_t end = to < 0 ? t.numel() : to;
  for (int64_t i = from; i < end;) {
    const int64_t n = std::min(kPeriod - i % kPeriod, end - i);
    trireme::check<Error>(
        std::memcmp(t.data_ptr<T>() + i, want.data() + i % kPeriod, sizeof(T) * size_t(n)) == 0,
        "{}: elements from number {} on are wrong", what, i);
    i += n;
  }
}
template <class T>
std::vector<T> sum_of_both() {
  std::vector<T> a = numbers<T>(0), b = numbers<T>(1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(a[i] + b[i]);
  return a;
}

/// In place throughout: the machine need not hold more.
template <class T>
void reduce_broadcast_and_send(Group g, const at::Tensor& t) {
  fill(t, numbers<T>(g.rank()));
  g.all_reduce(t).wait();
  expect(t, sum_of_both<T>(), "all_reduce");
  fill(t, numbers<T>(g.rank() + 2));
  g.broadcast(t, 1).wait();
  expect(t, numbers<T>(3), "broadcast");
  fill(t, numbers<T>(g.rank() + 4));
  g.rank() == 0 ? g.send(t, 1, 65000).wait() : g.recv(t, 0, 65000).wait();
  expect(t, numbers<T>(4), "recv");
}

}  // namespace

TEST(comm_large, threads_move_more_than_2_gib) {
  if (const auto why = no_room(); !why.empty()) GTEST_SKIP() << why;
  run_threads(
      2,
      [](Group g) {
        at::Tensor t = at::empty({kBytes}, at::kByte);
        reduce_broadcast_and_send<uint8_t>(g, t);
        fill(t, numbers<uint8_t>(g.rank()));
        constexpr int64_t kHalf = kBytes / 2;
        g.all_gather_into_tensor(t, t.narrow(0, g.rank() * kHalf, kHalf)).wait();
        expect(t, numbers<uint8_t>(0), "all_gather", 0, kHalf);
        expect(t, numbers<uint8_t>(1), "all_gather", kHalf);
      },
      kPatience);
}

TEST(comm_large, processes_move_more_than_2_gib_of_ordinary_memory) {
  if (const auto why = no_room(); !why.empty()) GTEST_SKIP() << why;
  spawn(
      2, [](Group g) { reduce_broadcast_and_send<float>(g, at::empty({kFloats}, at::kFloat)); },
      this_test());
}

TEST(comm_large, processes_move_more_than_2_gib_of_the_arena) {
  if (const auto why = no_room(); !why.empty()) GTEST_SKIP() << why;
  spawn(
      2, [](Group g) { reduce_broadcast_and_send<uint8_t>(g, g.empty({kBytes}, at::kByte)); },
      this_test());
}

TEST(comm_large, gloo_moves_more_than_2_gib) {
  const auto names = trireme::detail::present_backends();
  if (std::find(names.begin(), names.end(), "gloo") == names.end())
    GTEST_SKIP() << "the backend gloo is not in this build";
  if (const auto why = no_room(); !why.empty()) GTEST_SKIP() << why;
  run_threads(
      2, [](Group g) { reduce_broadcast_and_send<uint8_t>(g, at::empty({kBytes}, at::kByte)); },
      {kPatience, "gloo"});
}

}  // namespace large_test
