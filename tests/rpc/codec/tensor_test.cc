// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/codec/tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"
#include "trireme/tensor/host_data.h"

namespace trireme::rpc_codec_tensor_test {
namespace {

using namespace rpc_test;

struct Sent {
  std::string bytes;
  std::vector<encoding::Attachment> beside;
};

Sent sent(const at::Tensor& tensor, bool copies = false) {
  encoding::Writer writer;
  if (copies) writer.copy_shared();
  writer.put(tensor);
  return {writer.take(), writer.take_attachments()};
}

at::Tensor received(const Sent& sent) {
  encoding::Reader reader(sent.bytes, sent.beside);
  at::Tensor tensor;
  reader.get(tensor);
  EXPECT_TRUE(reader.done());
  return tensor;
}

void expect_same(const at::Tensor& got, const at::Tensor& wanted) {
  EXPECT_EQ(got.scalar_type(), wanted.scalar_type());
  EXPECT_EQ(got.sizes(), wanted.sizes());
  EXPECT_TRUE(got.is_contiguous());
  EXPECT_FALSE(got.requires_grad());
  EXPECT_TRUE(at::equal(got, wanted.detach().resolve_conj().resolve_neg()));
}

}  // namespace

TEST(rpc_codec_tensor, comes_back_as_it_was_whatever_its_dtype_and_strides) {
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble,
        at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool})
    for (const int64_t n : {3, 100}) {
      const at::Tensor tensor = at::arange(n * n).reshape({n, n}).to(dtype);
      for (const at::Tensor& one :
           {tensor, tensor.t(), tensor.slice(1, 0, n, 2), tensor[1], tensor.sum()}) {
        if (one.scalar_type() != dtype) continue;  // a sum of small integers
        expect_same(received(sent(one)), one);
      }
    }
  const at::Tensor imaginary = at::arange(200).to(at::kComplexFloat) * c10::complex<float>(0, 1);
  expect_same(received(sent(imaginary.conj())), imaginary.conj());
  expect_same(received(sent(at::empty({0, 5}))), at::empty({0, 5}));
  expect_same(received(sent(at::ones({2, 300}).requires_grad_())), at::ones({2, 300}));
  EXPECT_FALSE(received(sent(at::Tensor())).defined());
}

TEST(rpc_codec_tensor, large_memory_travels_beside_the_bytes_without_a_copy) {
  const at::Tensor tensor = at::ones({100, 100});
  const Sent message = sent(tensor);
  ASSERT_EQ(message.beside.size(), 1u);
  EXPECT_EQ(message.beside[0].data.get(), memory_of(tensor));
  EXPECT_EQ(message.beside[0].bytes, 40000u);
  EXPECT_LT(message.bytes.size(), 40u);
  EXPECT_EQ(sent(at::ones({256})).beside.size(), 0u) << "1 KiB is inside";
  EXPECT_EQ(sent(at::ones({257})).beside.size(), 1u);
  EXPECT_NE(sent(tensor.t()).beside[0].data.get(), memory_of(tensor));
}

TEST(rpc_codec_tensor, a_result_that_its_handler_still_holds_is_copied_and_another_is_not) {
  const at::Tensor held = at::ones({1000});
  const at::Tensor other = held;
  EXPECT_NE(sent(held, true).beside[0].data.get(), memory_of(held));
  const at::Tensor base = at::ones({2, 1000});
  EXPECT_NE(sent(base[1], true).beside[0].data.get(), memory_of(base[1])) << "a view of it";
  const at::Tensor fresh = at::ones({1000});
  EXPECT_EQ(sent(fresh, true).beside[0].data.get(), memory_of(fresh));
  EXPECT_EQ(sent(held).beside[0].data.get(), memory_of(held)) << "an argument is lent";
}

TEST(rpc_codec_tensor, memory_lives_as_long_as_a_tensor_that_came) {
  auto memory = std::shared_ptr<float[]>(new float[1000]);
  std::fill_n(memory.get(), 1000, 2.5f);
  const std::weak_ptr<float[]> watched = memory;
  Sent message = sent(at::ones({1000}));
  message.beside[0] = {std::shared_ptr<const void>(memory, memory.get()), 4000};
  memory.reset();
  at::Tensor tensor = received(message);
  message = {};
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(tensor.sum().item<float>(), 2500);
  tensor.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(rpc_codec_tensor, what_cannot_travel_is_refused_by_what_it_is) {
  const auto refused = [](const at::Tensor& tensor) {
    return text_of<UsageError>([&] { sent(tensor); });
  };
  EXPECT_NE(refused(at::ones({3}).to_sparse()).find("sparse"), std::string::npos);
  EXPECT_NE(refused(at::ones({3}, at::device(at::kMeta))).find("on meta"), std::string::npos);
  EXPECT_NE(refused(at::quantize_per_tensor(at::ones({3}), 1, 0, at::kQInt8)).find("QInt8"),
            std::string::npos);
  EXPECT_THROW(encode(std::vector<at::Tensor>{at::ones({1000})}), UsageError)
      << "object collectives have no place beside their bytes";
}

TEST(rpc_codec_tensor, damaged_bytes_are_Corrupt_and_cost_no_memory) {
  std::mt19937_64 random(2);
  const std::vector<Sent> seeds{sent(at::ones({3, 4})), sent(at::ones({300, 4})),
                                sent(at::ones({2, 0, 7}))};
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Sent message = seeds[random() % seeds.size()];
    for (uint64_t n = 1 + random() % 3; n > 0; --n)
      message.bytes[random() % std::min<size_t>(message.bytes.size(), 30)] =
          static_cast<char>(random());
    if (random() % 4 == 0) message.bytes.resize(random() % message.bytes.size());
    try {
      encoding::Reader reader(message.bytes, message.beside);
      at::Tensor tensor;
      reader.get(tensor);
      ASSERT_LE(tensor.defined() ? tensor.nbytes() : 0, 4800u);
    } catch (const Corrupt&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

namespace {

struct Model {
  at::Tensor weight = at::ones({500});
  at::Tensor pull() const { return weight; }
  const at::Tensor& look() const { return weight; }
  void push(const at::Tensor& gradient) { weight.add_(gradient); }
};
struct Batch {
  at::Tensor data;
  std::vector<at::Tensor> targets;
  TRIREME_FIELDS(data, targets)
};
double total(const Batch& batch) {
  double sum = batch.data.sum().item<double>();
  for (const auto& target : batch.targets) sum += target.sum().item<double>();
  return sum;
}
TRIREME_REMOTE(pull, &Model::pull);
TRIREME_REMOTE(look, &Model::look);
TRIREME_REMOTE(push, &Model::push);
TRIREME_REMOTE(total_remote, total);

}  // namespace

TEST(rpc_codec_tensor, tensors_are_arguments_and_results_alone_and_inside_structs) {
  Job job{100us, 2};
  auto model = std::make_shared<Model>();
  auto server =
      job.start("server0", {rpc::offer<pull, look, push>(model), rpc::offer<total_remote>()});
  auto me = job.start("trainer0");
  for (const rpc::Peer& peer : {me.peer("server0"), server.peer("server0")}) {
    const Batch batch{at::ones({100, 10}), {at::ones({3}), at::ones({600})}};
    EXPECT_EQ(peer.sync<total_remote>(batch), 1603);
    model->weight.fill_(1);
    const at::Tensor before = peer.sync<pull>(), looked = peer.sync<look>();
    peer.sync<push>(at::ones({500}));
    EXPECT_EQ(before.sum().item<double>(), 500) << "a result is not what came after it";
    EXPECT_EQ(looked.sum().item<double>(), 500);
    at::Tensor after = peer.sync<pull>();
    after.zero_();
    EXPECT_EQ(model->weight.sum().item<double>(), 1000) << "what came is the receiver's own";
  }
}

}  // namespace trireme::rpc_codec_tensor_test
