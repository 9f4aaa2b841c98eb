// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/pretend_device/pretend_device.h"

namespace trireme::pretend::operators_test {
namespace {

using Tensors = std::vector<at::Tensor>;

// Values that no two operators make equal by chance.
at::Tensor numbers(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).mul(0.37).sin().view(sizes);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         at::where(a.isnan(), at::zeros_like(a), a)
             .equal(at::where(b.isnan(), at::zeros_like(b), b)) &&
         a.isnan().equal(b.isnan());
}

struct Case {
  const char* name;
  std::function<Tensors(const at::Tensor& x, const at::Tensor& y)> run;  // 6 × 8 each
};

const Case kCases[] = {
    {"arithmetic",
     [](auto& x, auto& y) {
       return Tensors{x + y, x * 2 - y, x / (y + 3), -x, 1 - x};
     }},
    {"functions",
     [](auto& x, auto& y) {
       return Tensors{x.exp(),  x.tanh(),        at::gelu(x), at::relu(x),
                      x.pow(2), at::atan2(x, y), x.erf()};
     }},
    {"sums",
     [](auto& x, auto&) {
       return Tensors{x.sum(), x.mean(1), x.norm(), x.std(0), x.cumsum(1), x.logsumexp(1, false)};
     }},
    {"products",
     [](auto& x, auto& y) {
       return Tensors{x.mm(y.t()),
                      at::addmm(x.mm(y.t()), x, y.t()),
                      x.matmul(y[0]),
                      at::bmm(x.view({2, 3, 8}), y.view({2, 3, 8}).transpose(1, 2)),
                      at::einsum("ij,kj->ik", {x, y}),
                      at::linear(x, y, y.select(1, 0))};
     }},
    {"orders",
     [](auto& x, auto&) {
       const auto [values, places] = x.sort(1);
       const auto [top, at] = x.topk(3, 1);
       return Tensors{values, places, top, at, x.argmax(1), std::get<0>(x.max(1)), x.flip(0)};
     }},
    {"choices",
     [](auto& x, auto& y) {
       const at::Tensor rows = at::arange(5, -1, -2, x.options().dtype(at::kLong));
       return Tensors{x.index_select(0, rows),
                      x.index({rows}),
                      at::where(x > y, x, y),
                      x.masked_fill(x > 0, 2),
                      x.gather(1, rows.view({3, 1})),
                      x.masked_select(x > 0),
                      x.nonzero(),
                      at::embedding(x, rows),
                      x.tril()};
     }},
    {"norms",
     [](auto& x, auto& y) {
       return Tensors{at::softmax(x, 1), at::log_softmax(x, 0), at::layer_norm(x, {8}, y[0], y[1]),
                      at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false),
                      at::group_norm(x.view({1, 6, 8}), 3)};
     }},
    {"joins",
     [](auto& x, auto& y) {
       return Tensors{at::cat({x, y}), at::stack({x, y}, 1), x.repeat({2, 1}), x.roll(1, 0),
                      at::pad(x, {1, 2})};
     }},
    {"convolution",
     [](auto& x, auto& y) {
       return Tensors{
           at::conv2d(x.view({1, 3, 4, 4}),
                      y.view({3, 4, 4}).narrow(1, 0, 3).view({1, 3, 3, 4}).narrow(3, 0, 3)),
           at::max_pool2d(x.view({1, 3, 4, 4}), 2)};
     }},
    {"types",
     [](auto& x, auto&) {
       return Tensors{x.to(at::kBFloat16).add(1), x.to(at::kHalf).to(at::kFloat), x.to(at::kLong),
                      x > 0, x.isfinite()};
     }},
    {"lists",
     [](auto& x, auto& y) {
       Tensors sums = at::_foreach_add({x, y}, {y, x}, 2), parts = x.split(2);
       sums.insert(sums.end(), parts.begin(), parts.end());
       return sums;
     }},
    {"makers",
     [](auto& x, auto&) {
       return Tensors{at::zeros_like(x),          at::full({2, 3}, 5, x.options()),
                      at::arange(9, x.options()), at::eye(4, x.options()),
                      at::ones({2}, x.options()), at::linspace(0, 1, 7, x.options())};
     }},
    {"in place",
     [](auto& x, auto& y) {
       at::Tensor z = x.clone();
       z.add_(y).mul_(2).clamp_(-1, 1);
       z.select(0, 1).zero_();
       z.narrow(1, 2, 3).copy_(y.narrow(1, 0, 3));
       z.index_add_(0, at::zeros({1}, x.options().dtype(at::kLong)), y.narrow(0, 0, 1));
       z.t_();
       return Tensors{z};
     }},
    {"out",
     [](auto& x, auto& y) {
       at::Tensor fits = at::empty_like(x), grows = at::empty({0}, x.options());
       at::add_out(fits, x, y);
       at::mm_out(grows, x, y.t());
       return Tensors{fits, grows};
     }},
};

at::Tensor on_device(const at::Tensor& t) { return t.to(device()); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  }
  return "not refused";
}

}  // namespace

TEST(support_pretend_device_operators, give_the_cpus_bits) {
  const at::Tensor x = numbers({6, 8}), y = numbers({8, 6}).t().contiguous();
  const at::Tensor u = on_device(x), v = on_device(y);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensors expected = c.run(x, y), got = c.run(u, v);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].device(), device()) << i;
      EXPECT_EQ(got[i].strides(), expected[i].strides()) << i;
      EXPECT_TRUE(same_bits(got[i].cpu(), expected[i])) << i << ": " << got[i] << expected[i];
    }
  }
  EXPECT_TRUE(on_device(x).equal(u));  // and arguments are as they were
  EXPECT_TRUE(on_device(y).equal(v));
}

TEST(support_pretend_device_operators, that_make_views_make_views) {
  const at::Tensor x = on_device(numbers({4, 6}));
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> views{
      [](auto& t) {
        return t.view({6, 4});
      },
      [](auto& t) { return t.reshape({24}); },
      [](auto& t) { return t.t(); },
      [](auto& t) { return t.narrow(1, 2, 2); },
      [](auto& t) { return t.select(0, 1); },
      [](auto& t) { return t.unfold(1, 3, 2); },
      [](auto& t) { return t.as_strided({3}, {7}, 2); },
      [](auto& t) { return t.diagonal(); },
      [](auto& t) {
        return t.unsqueeze(0).expand({3, 4, 6});
      },
      [](auto& t) { return t.view(at::kInt); },
      [](auto& t) {
        return at::view_as_complex(t.view({4, 3, 2}));
      },
      [](auto& t) { return t.detach(); },
      [](auto& t) { return t.unbind(1)[3]; }};
  for (size_t i = 0; i < views.size(); ++i) {
    const at::Tensor host = x.cpu(), v = views[i](x), expected = views[i](host);
    EXPECT_TRUE(v.is_alias_of(x)) << i;
    EXPECT_EQ(v.is_view(), expected.is_view()) << i;
    EXPECT_EQ(v.strides(), expected.strides()) << i;
    EXPECT_EQ(v.storage_offset(), expected.storage_offset()) << i;
    EXPECT_EQ(v._version(), x._version()) << i;
    EXPECT_TRUE(v.cpu().equal(expected)) << i;
    const auto version = x._version();
    v.zero_();
    EXPECT_GT(x._version(), version) << i;
    at::Tensor left = numbers({4, 6});
    views[i](left).zero_();
    EXPECT_TRUE(x.cpu().equal(left)) << i;
    x.copy_(numbers({4, 6}));
  }
}

TEST(support_pretend_device_operators, resize_and_keep_what_was_there) {
  at::Tensor x = on_device(numbers({4}));
  const at::Tensor view = x.narrow(0, 0, 2);
  x.resize_({3, 4});
  EXPECT_EQ(x.numel(), 12);
  EXPECT_TRUE(x.view({12}).narrow(0, 0, 4).cpu().equal(numbers({4})));
  x.fill_(5);
  EXPECT_TRUE(view.cpu().equal(at::full({2}, 5.f)));  // the same storage still
  const size_t bytes = x.storage().nbytes();
  x.resize_({2});
  EXPECT_EQ(x.storage().nbytes(), bytes);
  x.resize_({1, 2, 2, 2}, at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(x.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(support_pretend_device_operators, set_a_tensor_to_other_memory) {
  const at::Tensor flat = on_device(numbers({12}));
  at::Tensor x = at::empty({0}, flat.options());
  x.set_(flat.storage(), 2, {2, 3}, {3, 1});
  EXPECT_TRUE(x.cpu().equal(numbers({12}).narrow(0, 2, 6).view({2, 3})));
  x.set_(flat);
  EXPECT_TRUE(x.is_alias_of(flat));
  EXPECT_EQ(x.sizes(), flat.sizes());
  x.set_(flat.storage());
  EXPECT_EQ(x.numel(), 12);
  EXPECT_NE(refusal([&] {
              x.set_(flat.storage(), 8, {2, 3}, {3, 1});
            }).find("it has fewer elements"),
            std::string::npos);
  EXPECT_NE(refusal([&] { x.set_(numbers({3}).storage(), 0, {3}, {1}); }).find("to memory of cpu"),
            std::string::npos);
  x.set_();
  EXPECT_EQ(x.numel(), 0);
  EXPECT_EQ(x.device(), device());
}

TEST(support_pretend_device_operators, take_a_cpus_scalar_and_no_other_tensor_of_it) {
  const at::Tensor x = on_device(numbers({3}));
  EXPECT_TRUE((x * at::scalar_tensor(2.)).cpu().equal(numbers({3}) * 2));
  EXPECT_TRUE(x.index({at::scalar_tensor(1, at::kLong).view({1})})
                  .cpu()
                  .equal(numbers({3}).narrow(0, 1, 1)));
  EXPECT_NE(
      refusal([&] {
        x.add(numbers({3}));
      }).find("Expected all tensors to be on the same device, but found at least two devices"),
      std::string::npos);
  EXPECT_NE(refusal([&] { x.mm(numbers({3})); }).find("same device"), std::string::npos);
  EXPECT_NE(refusal([&] { numbers({3}).add_(x); }).find("same device"), std::string::npos);
}

TEST(support_pretend_device_operators, refuse_tensors_of_two_devices) {
  const at::Tensor here = numbers({3}).to(device(0)), there = numbers({3}).to(device(1));
  const std::string text = refusal([&] { here.add(there); });
  EXPECT_NE(text.find("privateuseone:0 and privateuseone:1"), std::string::npos) << text;
  EXPECT_NE(refusal([&] { at::cat({here, there}); }).find("same device"), std::string::npos);
}

TEST(support_pretend_device_operators, put_results_on_the_device_of_their_arguments) {
  const at::Tensor there = numbers({3}).to(device(2));
  EXPECT_EQ((there + 1).device(), device(2));
  EXPECT_EQ(at::zeros_like(there).device(), device(2));
  EXPECT_EQ(there.new_empty({2}).device(), device(2));
}

TEST(support_pretend_device_operators, whose_answer_is_the_hosts_block) {
  const at::Tensor x = on_device(numbers({6}));
  const auto blocks = [&](const std::function<void()>& call) {
    const uint64_t before = counters().host_waits;
    call();
    return counters().host_waits > before;
  };
  EXPECT_TRUE(blocks([&] { x[0].item(); }));
  EXPECT_TRUE(blocks([&] { x.equal(x); }));
  EXPECT_TRUE(blocks([&] { x.nonzero(); }));
  EXPECT_TRUE(blocks([&] { x.cpu(); }));
  EXPECT_FALSE(blocks([&] { x.add(1).mul_(x).sum(); }));
}

TEST(support_pretend_device_operators, draw_the_cpus_random_numbers) {
  const auto draw = [](c10::Device where) {
    at::manual_seed(3);
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(where);
    return at::cat({at::rand({9}, options), at::randn({9}, options),
                    at::dropout(at::ones({9}, options), 0.5, true)})
        .cpu();
  };
  EXPECT_TRUE(draw(device()).equal(draw(at::kCPU)));
}

TEST(support_pretend_device_operators, can_be_printed) {
  std::ostringstream text;
  text << on_device(at::ones({2}));
  // LibTorch 1.13: PrivateUse1FloatType; 2.x: privateuseoneFloatType.
  EXPECT_NE(text.str().find("FloatType{2}"), std::string::npos) << text.str();
}

TEST(support_pretend_device_operators, that_the_device_lacks_are_refused) {
  const at::TensorOptions there = at::TensorOptions(at::kFloat).device(device());
  EXPECT_NE(
      refusal([&] { at::empty({2}, there.pinned_memory(true)); }).find("only tensors of the CPU"),
      std::string::npos);
  EXPECT_NE(refusal([&] { at::empty({2}, there.layout(at::kSparse)); }), "not refused");
}

TEST(support_pretend_device_operators, that_a_test_takes_away_are_missed_as_libtorch_does) {
  const at::Tensor x = on_device(numbers({4}));
  {
    const Lacks gelu("aten::gelu");
    EXPECT_THROW(at::gelu(x), c10::NotImplementedError);
    EXPECT_EQ(refusal([&] { at::gelu(x); }).find("Could not run 'aten::gelu"), 0u);
    EXPECT_TRUE(same_bits(at::gelu(numbers({4})), at::gelu(numbers({4}))));
    at::relu(x);
  }
  EXPECT_TRUE(same_bits(at::gelu(x).cpu(), at::gelu(numbers({4}))));
}

TEST(support_pretend_device_operators, that_fell_back_are_named) {
  on_device(numbers({2})).add(1);
  EXPECT_EQ(fallbacks().count("aten::add.Tensor"), 1u);
  EXPECT_EQ(fallbacks().count("aten::copy_"), 0u);
}

}  // namespace trireme::pretend::operators_test
