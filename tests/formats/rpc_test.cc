// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/codec/tensor_crossing.h"
#include "trireme/rpc/wire/messages.h"

namespace rpc_test {

using namespace trireme;
using namespace trireme::rpc::wire;

// rpc-v*.bin were written by another program (rpc_v*.py): messages, each after its length.
namespace {

std::vector<std::string> fixture(const std::string& file) {
  const std::string all = read_file(trireme::testing::source_path("/tests/formats/" + file));
  std::vector<std::string> messages;
  for (size_t at = 0; at < all.size();) {
    uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    messages.push_back(all.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return messages;
}

const std::vector<Message> kSaid{
    Hello{"server0", 7, {{"pull", "tensor([i64])"}, {"greet", "str(str,i32)"}}},
    Call{1, 3, 2'000'000, {}},
    Call{0, 4, kNoBudget, {{"trainer0", "step"}, {"server1", "sum"}}},
    Call{0, 5, 1'000, {{"trainer0", "step"}}, Context{-2, 11, uint64_t{1} << 63}},
    Reply{3},
    Reply{4},
    Reply{5},
    Failure{6, true, "", "std::out_of_range", "3 is too far", "server0", -1, -1, "", -1},
    Failure{7, false, "PeerLost", "", "worker 'server0' leaves", "server0", 2, 3, "all_reduce", 9},
    Began{8},
    Cancel{9},
    Goodbye{}};

template <class... T>
std::string value_of(const T&... values) {
  encoding::Writer writer;
  (writer.put(values), ...);
  return writer.take();
}

}  // namespace

TEST(formats_rpc, version_2_is_read_and_written_as_another_program_does) {
  ASSERT_EQ(kVersion, 2) << "a new version: keep this fixture, add one of it";
  const auto messages = fixture("rpc-v2.bin");
  ASSERT_EQ(messages.size(), kSaid.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const Decoded decoded = decode(messages[i]);
    EXPECT_EQ(decoded.message, kSaid[i]) << i;
    const std::string head = std::visit([](const auto& said) { return encode(said); }, kSaid[i]);
    EXPECT_EQ(head, messages[i].substr(0, decoded.value_at)) << i;
  }
}

TEST(formats_rpc, a_worker_of_version_1_is_refused_at_its_hello_by_both_versions) {
  try {
    decode(fixture("rpc-v1.bin").at(0));
    FAIL() << "it was understood";
  } catch (const Mismatch& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("version 1 of remote calls, and this one speaks version 2"), text.npos)
        << text;
  }
}

TEST(formats_rpc, values_of_version_2_are_written_as_another_program_does) {
  const auto messages = fixture("rpc-v2.bin");
  const auto value = [&](size_t i) { return messages[i].substr(decode(messages[i]).value_at); };
  EXPECT_EQ(value_of(std::string("hi"), 5), value(1));
  EXPECT_EQ(value_of(std::vector<int64_t>{10, 11}), value(2));
  EXPECT_EQ(value_of(std::string("hi 5")), value(4));
  EXPECT_EQ(value_of(at::tensor({0.5f, -2.0f}).reshape({2, 1})), value(5));
  EXPECT_EQ(value_of(at::zeros({300, 2}, at::kLong)), value(6));
  const std::string bytes = value(5);
  encoding::Reader reader(bytes);
  at::Tensor tensor;
  reader.get(tensor);
  EXPECT_TRUE(at::equal(tensor, at::tensor({0.5f, -2.0f}).reshape({2, 1})));
}

// One that requires a gradient says so, to a crossing of its call.
TEST(formats_rpc, a_tensor_with_a_gradient_of_version_2_is_written_as_another_program_does) {
  struct Noting final : rpc::detail::TensorCrossing {
    Context said() const override { return {}; }
    void leaves(const at::Tensor&) override { ++left; }
    void comes(at::Tensor& tensor) override { tensor.requires_grad_(); }
    int left = 0;
  };
  const auto crossing = std::make_shared<Noting>();
  rpc::detail::CallTransit transit(nullptr, crossing);
  encoding::Writer writer;
  writer.set_transit(&transit);
  writer.put(at::tensor({0.5}, at::kDouble).requires_grad_());
  const std::string message = fixture("rpc-v2.bin").at(3);
  const std::string bytes = message.substr(decode(message).value_at);
  EXPECT_EQ(writer.take(), bytes);
  EXPECT_EQ(crossing->left, 1);
  encoding::Reader reader(bytes);
  at::Tensor tensor;
  EXPECT_THROW(reader.get(tensor), Corrupt) << "it is in no context";
  encoding::Reader within(bytes);
  within.set_transit(&transit);
  within.get(tensor);
  EXPECT_TRUE(tensor.requires_grad());
  EXPECT_EQ(tensor.item<double>(), 0.5);
}

}  // namespace rpc_test
