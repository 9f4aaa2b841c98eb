// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/encoding.h"
#include "trireme/base/file.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/wire/messages.h"

namespace rpc_test {

using namespace trireme;
using namespace trireme::rpc::wire;

// rpc-v1.bin was written by another program (rpc_v1.py): messages, each after its length.
namespace {

std::vector<std::string> fixture() {
  const std::string all = read_file(trireme::testing::source_path("/tests/formats/rpc-v1.bin"));
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

TEST(formats_rpc, version_1_is_read_and_written_as_another_program_does) {
  ASSERT_EQ(kVersion, 1) << "a new version: keep this fixture, add one of it";
  const auto messages = fixture();
  ASSERT_EQ(messages.size(), kSaid.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const Decoded decoded = decode(messages[i]);
    EXPECT_EQ(decoded.message, kSaid[i]) << i;
    const std::string head = std::visit([](const auto& said) { return encode(said); }, kSaid[i]);
    EXPECT_EQ(head, messages[i].substr(0, decoded.value_at)) << i;
  }
}

TEST(formats_rpc, values_of_version_1_are_written_as_another_program_does) {
  const auto messages = fixture();
  const auto value = [&](size_t i) { return messages[i].substr(decode(messages[i]).value_at); };
  EXPECT_EQ(value_of(std::string("hi"), 5), value(1));
  EXPECT_EQ(value_of(std::vector<int64_t>{10, 11}), value(2));
  EXPECT_EQ(value_of(std::string("hi 5")), value(3));
  EXPECT_EQ(value_of(at::tensor({0.5f, -2.0f}).reshape({2, 1})), value(4));
  EXPECT_EQ(value_of(at::zeros({300, 2}, at::kLong)), value(5));
  const std::string bytes = value(4);
  encoding::Reader reader(bytes);
  at::Tensor tensor;
  reader.get(tensor);
  EXPECT_TRUE(at::equal(tensor, at::tensor({0.5f, -2.0f}).reshape({2, 1})));
}

}  // namespace rpc_test
