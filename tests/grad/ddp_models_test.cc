// SPDX-License-Identifier: Apache-2.0
// What can be wrapped: TorchScript modules, lists of tensors, several models in one program.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/script.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/cast_hook.h"
#include "trireme/grad/reducer.h"

namespace ddp_models_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

torch::jit::Module script() {
  torch::jit::Module inner("Inner"), m("Net");
  inner.register_parameter(
      "weight", torch::arange(12, at::kDouble).sin().view({3, 4}).requires_grad_(true), false);
  inner.define("def forward(self, x):\n  return torch.tanh(torch.matmul(x, self.weight.t()))\n");
  m.register_module("inner", inner);
  m.register_parameter("scale", torch::full({3}, 0.5, at::kDouble).requires_grad_(true), false);
  m.register_buffer("calls", torch::zeros({1}, at::kDouble));
  m.define(
      "def forward(self, x):\n  self.calls.add_(1)\n  return self.inner.forward(x) * "
      "self.scale\n");
  return m;
}

at::Tensor run(torch::jit::Module& m, const at::Tensor& x) { return m.forward({x}).toTensor(); }

}  // namespace

TEST(grad_ddp_models, a_torchscript_module_trains_as_over_the_whole_batch) {
  run_threads(2, [](Group g) {
    torch::jit::Module net = script(), plain = script();
    if (g.rank() == 1)
      for (const auto& p : net.parameters()) p.data().add_(1);  // DDP takes rank 0's
    DistributedDataParallel ddp(net, g);
    const at::Tensor whole = torch::arange(24, at::kDouble).cos().view({6, 4}),
                     mine = whole.narrow(0, 3 * g.rank(), 3);
    for (int step = 0; step < 3; ++step) {
      for (auto* m : {&net, &plain})
        for (const auto& p : m->parameters()) p.mutable_grad() = at::Tensor();
      run(net, mine).pow(2).mean().backward();
      run(plain, whole).pow(2).mean().backward();
      std::map<std::string, at::Tensor> want;
      for (const auto& p : plain.named_parameters()) want[p.name] = p.value;
      expect(want.size() == 2 && want.count("inner.weight") == 1, "names");
      at::NoGradGuard no_grad;
      for (const auto& p : net.named_parameters()) {
        expect(torch::allclose(p.value.grad(), want[p.name].grad(), 1e-10), p.name);
        p.value.sub_(p.value.grad());
        want[p.name].sub_(want[p.name].grad());
      }
    }
    expect(ddp.reducer().stats().rounds == 3, "rounds");
  });
}

TEST(grad_ddp_models, plain_lists_of_tensors_with_frozen_ones_among_them) {
  run_threads(3, [](Group g) {
    const double r = g.rank();
    at::Tensor w = torch::full({4}, 1 + r, at::kDouble).requires_grad_(true),
               frozen = torch::full({2}, 5 + r, at::kDouble), buffer = torch::full({1}, r);
    DistributedDataParallel ddp({{"w", w}, {"frozen", frozen}}, {{"buffer", buffer}}, g);
    expect(
        w.eq(1).all().item<bool>() && frozen.eq(5).all().item<bool>() && buffer.item<float>() == 0,
        "not rank 0's");
    (w * (r + 1)).sum().backward();
    expect(w.grad().eq(2).all().item<bool>(), "mean of 1, 2, 3");
  });
}

TEST(grad_ddp_models, a_gan_with_two_models_and_three_backwards_a_step_equals_the_plain_one) {
  run_threads(2, [](Group g) {
    auto make_pair = [] {
      struct Pair {
        Small gen = make(1), disc = make(2);
        torch::nn::Linear up{nullptr};
      };
      return Pair{};
    };
    auto ours = make_pair(), plain = make_pair();
    DistributedDataParallel gen(ours.gen, g), disc(ours.disc, g);
    torch::optim::SGD og(ours.gen->parameters(), 0.05), od(ours.disc->parameters(), 0.05),
        pg(plain.gen->parameters(), 0.05), pd(plain.disc->parameters(), 0.05);
    const at::Tensor whole = input(8), mine = whole.narrow(0, 4 * g.rank(), 4);
    auto fake = [](Small& gen_net, const at::Tensor& z) {
      return gen_net->forward(z).repeat({1, 3});
    };
    auto step = [&](auto& pair, auto& opt_g, auto& opt_d, const at::Tensor& x) {
      opt_d.zero_grad();
      pair.disc->forward(x).mean().backward();                                  // real
      pair.disc->forward(fake(pair.gen, x).detach()).pow(2).mean().backward();  // fake
      opt_d.step();
      opt_g.zero_grad();
      pair.disc->forward(fake(pair.gen, x)).mean().backward();  // through both
      opt_g.step();
    };
    for (int i = 0; i < 4; ++i) {
      step(ours, og, od, mine);
      step(plain, pg, pd, whole);
    }
    for (auto& p : plain.gen->named_parameters())
      expect(torch::allclose(ours.gen->named_parameters()[p.key()], p.value(), 1e-9, 1e-12),
             "generator " + p.key());
    for (auto& p : plain.disc->named_parameters())
      expect(torch::allclose(ours.disc->named_parameters()[p.key()], p.value(), 1e-9, 1e-12),
             "discriminator " + p.key());
    expect(disc.reducer().stats().rounds == 12 && gen.reducer().stats().rounds == 4, "rounds");
  });
}

TEST(grad_ddp_models, two_objects_of_two_groups_in_one_backward) {
  run_threads(4, [](Group g) {
    Small a = make(1), b = make(2), plain_a = make(1), plain_b = make(2);
    Group pairs = g.split(g.rank() / 2);
    DistributedDataParallel all(a, g), half(b, pairs);
    const at::Tensor whole = input(8);
    auto loss = [](Small& x, Small& y, const at::Tensor& in) {
      return y->forward(x->forward(in).repeat({1, 3})).pow(2).mean();
    };
    loss(a, b, whole.narrow(0, 2 * g.rank(), 2)).backward();
    loss(plain_a, plain_b, whole).backward();
    expect_gradients(*a, *plain_a);
    Small half_a = make(1), half_b = make(2);
    loss(half_a, half_b, whole.narrow(0, 4 * (g.rank() / 2), 4)).backward();
    expect_gradients(*b, *half_b);
  });
}

TEST(grad_ddp_models, complex_parameters_get_the_mean_of_their_gradients) {
  for (auto dtype : {at::kComplexDouble, at::kComplexFloat}) {
    const auto real = c10::toRealValueType(dtype);
    const auto make = [&](double shift) {
      const at::Tensor phase = at::arange(12, real).view({4, 3}) + shift;
      return std::pair(torch::complex(phase.sin(), phase.cos()).requires_grad_(),
                       at::ones({3}, real).requires_grad_());
    };
    const at::Tensor data = torch::complex(at::arange(24, real).sin(), at::arange(24, real).cos());
    const at::Tensor whole = data.view({6, 4});
    const auto loss = [](const auto& net, const at::Tensor& x) {
      // conj() leaves lazily conjugated gradients behind.
      return (torch::matmul(x, net.first.conj()).abs().square() * net.second).mean();
    };
    auto plain = make(0);
    for (int accumulated : {1, 2}) {
      plain.first.mutable_grad() = plain.second.mutable_grad() = at::Tensor();
      for (int k = 0; k < accumulated; ++k) loss(plain, whole).backward();
      for (const char* backend : {"local", "gloo"})
        run_threads(
            2,
            [&](Group g) {
              auto net = make(g.rank());
              DistributedDataParallel ddp({{"z", net.first}, {"r", net.second}}, {}, g,
                                          {.check_finite = true});
              expect(net.first.allclose(plain.first), "rank 0's values");
              {
                std::optional<DistributedDataParallel::NoSync> guard;
                if (accumulated == 2) guard.emplace(ddp);
                if (accumulated == 2) loss(net, whole.narrow(0, 3 * g.rank(), 3)).backward();
              }
              loss(net, whole.narrow(0, 3 * g.rank(), 3)).backward();
              const double tolerance = real == at::kDouble ? 1e-12 : 1e-5;
              expect(torch::allclose(net.first.grad(), plain.first.grad(), tolerance, tolerance),
                     std::string(backend) + ": complex");
              expect(torch::allclose(net.second.grad(), plain.second.grad(), tolerance, tolerance),
                     std::string(backend) + ": real beside it");
            },
            {.backend = backend});
    }
  }
}

TEST(grad_ddp_models, hooks_that_would_lose_the_imaginary_part_are_refused) {
  run_threads(2, [](Group g) {
    at::Tensor z = torch::complex(at::ones({3}), at::ones({3})).requires_grad_();
    DistributedDataParallel ddp({{"z", z}}, {}, g, {.hook = cast_hook(at::kBFloat16)});
    std::string text;
    try {
      z.abs().sum().backward();
    } catch (const Error& e) {
      text = e.what();
    }
    expect(text.find("no imaginary part") != std::string::npos, text);
  });
}

}  // namespace ddp_models_test
