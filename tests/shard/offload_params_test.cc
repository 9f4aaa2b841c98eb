// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_params.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/shard/offload_child.h"
#include "trireme/base/failpoint.h"

namespace trireme::testing::offload_params_test {
namespace {

OffloadPoolOptions in(const PrivateFolder& folder, int buffers = 4) {
  return {.file = {.folder = folder.path(), .block_size = 4096}, .buffer_count = buffers};
}

std::vector<OffloadPool::Entry> entries(int count) {
  std::vector<OffloadPool::Entry> all;
  for (int i = 0; i < count; ++i)
    all.push_back(
        {"block" + std::to_string(i), 1000 + 700 * i, i % 2 ? at::kBFloat16 : at::kFloat});
  return all;
}

TEST(shard_offload_params, what_was_put_is_brought_whatever_was_prefetched) {
  PrivateFolder folder;
  torch::manual_seed(1);
  for (int buffers = 2; buffers <= 6; ++buffers) {
    const auto list = entries(5);
    OffloadPool pool(list, in(folder, buffers));
    EXPECT_EQ(pool.size(), 5u);
    std::vector<at::Tensor> expected;
    for (size_t i = 0; i < 5; ++i) {
      expected.push_back(torch::randn({list[i].numel}).to(list[i].dtype));
      at::Tensor given = expected.back().clone();
      pool[i].put(given);
      given.zero_();  // it was copied
    }
    for (int t = 0; t < 300; ++t) {
      const auto i = static_cast<size_t>(torch::randint(5, {1}).item<int64_t>());
      const auto what = torch::randint(3, {1}).item<int64_t>();
      if (what == 0) pool[i].prefetch();
      if (what == 1) {
        expected[i] = torch::randn({list[i].numel}).to(list[i].dtype);
        pool[i].put(expected[i]);
      }
      if (what == 2) {
        at::Tensor into = at::empty({list[i].numel}, list[i].dtype);
        pool[i].read_into(into);
        ASSERT_TRUE(into.equal(expected[i])) << buffers << " buffers, turn " << t;
      }
    }
    pool.wait();
  }
}

TEST(shard_offload_params, a_prefetch_is_read_once) {
  PrivateFolder folder;
  OffloadPool pool(entries(2), in(folder));
  pool[0].put(at::ones({1000}));
  pool.wait();
  pool[0].prefetch();
  pool[0].prefetch();
  at::Tensor into = at::empty({1000});
  set_failpoints("offload.read@2=error(5)");  // a second read would meet it
  pool[0].read_into(into);
  set_failpoints("");
  EXPECT_TRUE(into.eq(1).all().item<bool>());
}

TEST(shard_offload_params, memory_is_the_buffers) {
  PrivateFolder folder;
  OffloadPool pool({{"a", 4096, at::kFloat}, {"b", 1024, at::kFloat}}, in(folder, 3));
  EXPECT_EQ(pool.buffer_bytes(), 3 * 16384);
  EXPECT_EQ(pool.file().bytes(), 16384u + 4096u);
}

TEST(shard_offload_params, wrong_tensors_damage_and_a_failing_disk_are_named) {
  PrivateFolder folder;
  OffloadPool pool(entries(2), in(folder));
  at::Tensor t = at::ones({1000});
  auto refused = [](const std::function<void()>& call, const std::string& part) {
    const std::string o = outcome_of(call);
    EXPECT_TRUE(has(o, "UsageError: ") && has(o, part)) << o;
  };
  refused([&] { pool[0].read_into(t); }, "'block0' is asked for before it was put");
  refused([&] { pool[0].prefetch(); }, "'block0' is asked for before it was put");
  refused([&] { pool[0].put(at::ones({999})); }, "'block0' is 1000 elements of Float");
  refused([&] { pool[1].put(at::ones({1700})); }, "'block1' is 1700 elements of BFloat16");
  refused([&] { pool[0].put(at::ones({2000}).slice(0, 0, 2000, 2)); }, "contiguous");
  refused([&] { OffloadPool({}, in(folder)); }, "without tensors");
  refused([&] { OffloadPool({{"x", 0, at::kFloat}}, in(folder)); }, "'x' has 0 elements");
  refused([&] { OffloadPool(entries(1), in(folder, 1)); }, "buffer_count is 1");

  set_failpoints("offload.write@1=error(28)");
  pool[0].put(t);
  const std::string full = outcome_of([&] { pool.wait(); });
  set_failpoints("");
  EXPECT_TRUE(has(full, "ResourceError: ") && has(full, "No space left")) << full;
  EXPECT_TRUE(has(outcome_of([&] { pool[0].read_into(t); }), "writing them had failed"));
  pool[0].put(t);
  pool.wait();
  pool[0].read_into(t);
  flip_byte(folder.path(), 77);
  EXPECT_TRUE(has(outcome_of([&] { pool[0].read_into(t); }), "Corrupt: "));
}

}  // namespace
}  // namespace trireme::testing::offload_params_test
