// SPDX-License-Identifier: Apache-2.0
// Tensors as somebody passes them who has not read the pages.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"
#include "trireme/rpc/codec/tensor.h"

namespace trireme::rpc_codec_outsiders_test {
namespace {

using namespace rpc_test;
using at::Tensor;

TRIREME_REMOTE(same, [](const Tensor& x) { return x; });
TRIREME_REMOTE(sum_of, [](const Tensor& x) { return x.sum().item<double>(); });
TRIREME_REMOTE(strange, [](const std::string& what) -> Tensor {
  if (what == "sparse") return at::ones({3, 3}).to_sparse();
  if (what == "with a gradient") return at::ones({2}).requires_grad_() * 2;
  if (what == "expanded") return at::ones({1}).expand({1000});
  return at::ones({2}).to(at::kMeta);
});

class rpc_codec_outsiders : public ::testing::Test {
 protected:
  const Job job{};
  rpc::Worker server = job.start("server0", {rpc::offer<same, sum_of, strange>()});
  rpc::Worker me = job.start("trainer0");
  rpc::Peer peer = me.peer("server0");
};

}  // namespace

TEST_F(rpc_codec_outsiders, a_tensor_that_is_freed_while_it_is_sent_arrives_whole) {
  std::vector<rpc::Future<double>> sums;
  for (int i = 0; i < 8; ++i) {
    Tensor x = at::full({1 << 18}, i, at::kDouble);
    sums.push_back(peer.async<sum_of>(x));
    x = Tensor();
    at::full({1 << 18}, 1e300, at::kDouble);  // takes the memory, if it is free
  }
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(sums[static_cast<size_t>(i)].get(), static_cast<double>(i) * (1 << 18));
}

TEST_F(rpc_codec_outsiders, views_of_every_kind_arrive_as_what_they_show) {
  const Tensor base = at::arange(4096, at::kDouble).reshape({64, 64});
  for (const Tensor& x : {base.t(), base.slice(1, 3, 60, 7), base.flip(0), base[5], base.diagonal(),
                          base[0][0].expand({300, 300}), base.as_strided({60, 8}, {1, 1}, 2)}) {
    const Tensor got = peer.sync<same>(x);
    EXPECT_TRUE(at::equal(got, x));
    EXPECT_TRUE(got.is_contiguous());
  }
}

TEST_F(rpc_codec_outsiders, numbers_and_nothing_travel_too) {
  for (const Tensor& x :
       {at::scalar_tensor(-0.0, at::kDouble), at::empty({0}), at::empty({3, 0, 2}, at::kLong),
        at::scalar_tensor(true, at::kBool),
        at::full({400}, std::numeric_limits<double>::quiet_NaN()),
        at::scalar_tensor(std::numeric_limits<double>::denorm_min(), at::kDouble)}) {
    const Tensor got = peer.sync<same>(x);
    EXPECT_EQ(got.sizes(), x.sizes());
    EXPECT_EQ(got.dtype(), x.dtype());
    EXPECT_TRUE(x.nbytes() == 0 || std::memcmp(got.data_ptr(), x.data_ptr(), x.nbytes()) == 0);
  }
  EXPECT_FALSE(peer.sync<same>(Tensor()).defined());
}

TEST_F(rpc_codec_outsiders, outside_of_a_context_a_gradient_is_left_behind_and_nobody_is_changed) {
  const Tensor x = at::ones({500}, at::kDouble).requires_grad_();
  const Tensor got = peer.sync<same>(x * 2);
  EXPECT_FALSE(got.requires_grad());
  EXPECT_FALSE(peer.sync<strange>("with a gradient").requires_grad());
  EXPECT_TRUE(x.requires_grad());
  (x * got).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), got));
}

TEST_F(rpc_codec_outsiders, what_a_handler_returns_that_cannot_travel_is_an_error_of_that_call) {
  const auto sparse = text_of<UsageError>([&] { peer.sync<strange>("sparse"); });
  EXPECT_NE(sparse.find("only dense ones of the CPU"), sparse.npos) << sparse;
  const auto meta = text_of<UsageError>([&] { peer.sync<strange>("meta"); });
  EXPECT_NE(meta.find("on meta cannot travel"), meta.npos) << meta;
  EXPECT_TRUE(at::equal(peer.sync<strange>("expanded"), at::ones({1000})));
}

TEST_F(rpc_codec_outsiders, a_tensor_that_came_may_be_written_to_and_changes_nobody_elses) {
  const Tensor x = at::zeros({1 << 16});
  const Tensor got = peer.sync<same>(x);
  got.fill_(1);
  EXPECT_EQ(x.sum().item<double>(), 0);
  EXPECT_EQ(peer.sync<same>(x).sum().item<double>(), 0);
}

}  // namespace trireme::rpc_codec_outsiders_test
