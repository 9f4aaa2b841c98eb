// SPDX-License-Identifier: Apache-2.0
// Parameters that are exchanged behind a wrapper's back: torch::load(), to(), set_data(). Ranks
// follow alike, or all of them are told.
#include "trireme/grad/rounds/replaced_parameters.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/script.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/join.h"
#include "trireme/grad/reducer.h"

namespace replaced_parameters_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string saved(Small net) {
  std::ostringstream out;
  torch::save(net, out);
  return out.str();
}

void load(Small& net, const std::string& bytes) {
  std::istringstream in(bytes);
  torch::load(net, in);
}

at::Tensor rows_of(int rank, int step) { return (input(4) + rank + 10 * step).sin(); }

// Steps of SGD on this rank's rows, and of the serial run on all ranks' rows.
struct Pair {
  Pair(Group g, DdpOptions options = {})
      : group(g),
        ddp(net, g, std::move(options)),
        ours(net->parameters(), 0.1),
        theirs(plain->parameters(), 0.1) {}
  void step(int k, bool use_b = true) {
    ours.zero_grad();
    theirs.zero_grad();
    net->forward(rows_of(group.rank(), k), use_b).pow(2).mean().backward();
    for (int r = 0; r < group.size(); ++r)
      plain->forward(rows_of(r, k), use_b).pow(2).mean().div(group.size()).backward();
    ours.step();
    theirs.step();
  }
  void expect_alike() {
    for (auto& p : plain->named_parameters())
      expect(torch::allclose(net->named_parameters()[p.key()], p.value(), 1e-10, 1e-12), p.key());
  }
  Group group;
  Small net = make(1), plain = make(1);
  DistributedDataParallel ddp;
  torch::optim::SGD ours, theirs;
};

// What ranks throw where `change` is made on the ranks of `where` between two steps.
std::vector<std::string> change_between_steps(int n, const std::function<void(Small&, int)>& change,
                                              bool before_the_first = false) {
  return what_ranks_throw(n, [&](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    if (!before_the_first) net->forward(input(4)).sum().backward();
    change(net, g.rank());
    at::Tensor x = input(4).to(net->a->weight.scalar_type());
    net->forward(x).sum().backward();
  });
}

void expect_on_all(const std::vector<std::string>& said, const std::vector<std::string>& parts) {
  for (const auto& text : said)
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace

TEST(grad_replaced_parameters, torch_load_on_all_ranks_is_followed) {
  const std::string other = saved(make(7));
  for (const auto& options : {DdpOptions{}, DdpOptions{.bucket_bytes = 1, .first_bucket_bytes = 1},
                              DdpOptions{.find_unused_parameters = true},
                              DdpOptions{.static_graph = true}, DdpOptions{.check_finite = true}})
    run_threads(2, [&](Group g) {
      Pair pair(g, options);
      for (int k = 0; k < 8; ++k) {
        if (k == 0 || k == 3 || k == 4) {
          load(pair.net, other);
          load(pair.plain, other);
        }
        pair.step(k);
        pair.expect_alike();
      }
      expect(pair.ddp.reducer().stats().rounds == 8, "a backward was not a round");
    });
}

TEST(grad_replaced_parameters, torch_load_inside_no_sync_is_followed) {
  const std::string other = saved(make(7));
  run_threads(2, [&](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g);
    const auto both = [&](int k) {
      net->forward(rows_of(g.rank(), k)).pow(2).mean().backward();
      for (int r = 0; r < 2; ++r) plain->forward(rows_of(r, k)).pow(2).mean().div(2).backward();
    };
    for (int step = 0; step < 2; ++step) {
      {
        auto guard = ddp.no_sync();
        both(0);
        load(net, other);
        load(plain, other);
        both(1);
      }
      both(2);
      expect_gradients(*net, *plain);
    }
  });
}

TEST(grad_replaced_parameters, set_data_and_a_load_of_some_are_followed) {
  run_threads(2, [&](Group g) {
    Pair pair(g);
    for (int k = 0; k < 4; ++k) {
      if (k == 1)
        for (Small* net : {&pair.net, &pair.plain})
          (*net)->b->weight.set_data(torch::full({17, 17}, 0.01, at::kDouble));
      if (k == 2) {  // the same values: two passes through float32, as Module::to() takes them
        for (Small* net : {&pair.net, &pair.plain}) {
          (*net)->to(at::kFloat);
          (*net)->to(at::kDouble);
        }
      }
      pair.step(k);
      pair.expect_alike();
    }
  });
}

TEST(grad_replaced_parameters, a_script_module_that_was_cast_and_cast_back_is_followed) {
  run_threads(2, [](Group g) {
    torch::jit::Module net("net");
    net.register_parameter("w", torch::ones({2, 9}, at::kDouble).requires_grad_(true), false);
    net.define("def forward(self, x):\n  return x @ self.w.t()\n");
    DistributedDataParallel ddp(net, g);
    net.to(at::kFloat);
    net.to(at::kDouble);
    net.forward({torch::full({1, 9}, 1.0 + g.rank(), at::kDouble)}).toTensor().sum().backward();
    expect(net.attr("w").toTensor().grad().eq(1.5).all().item<bool>(), "not the mean");
  });
}

TEST(grad_replaced_parameters, a_load_on_one_rank_is_told_on_all_in_that_step_and_every_later_one) {
  const std::string other = saved(make(7));
  for (int where : {0, 2}) {
    const auto said = what_ranks_throw(3, [&](Group g) {
      Small net = make(1);
      DistributedDataParallel ddp(net, g);
      net->forward(input(4)).sum().backward();
      if (g.rank() == where) load(net, other);
      EXPECT_THROW(net->forward(input(4)).sum().backward(), Mismatch);
      net->forward(input(4)).sum().backward();
    });
    expect_on_all(said, {"Mismatch: ", "'a.weight' was exchanged",
                         where == 0 ? "on rank 0 and not on rank 1" : "on rank 2 and not on rank 0",
                         "torch::load()"});
  }
}

TEST(grad_replaced_parameters, other_values_on_each_rank_are_told_on_all) {
  const std::string files[] = {saved(make(7)), saved(make(8))};
  expect_on_all(change_between_steps(2, [&](Small& net, int rank) { load(net, files[rank]); }),
                {"Mismatch: ", "'a.weight' was exchanged", "not alike on ranks 0 and 1"});
}

TEST(grad_replaced_parameters, another_dtype_is_refused_on_all_ranks) {
  for (int only : {-1, 1})
    for (bool before_the_first : {false, true})
      for (at::ScalarType type : {at::kFloat, at::kBFloat16})
        expect_on_all(
            change_between_steps(
                2,
                [&](Small& net, int rank) {
                  if (only < 0 || rank == only) net->to(type);
                },
                before_the_first),
            {"UsageError: rank ", "parameter 'a.weight' is ", "DistributedDataParallel", "to()"});
}

TEST(grad_replaced_parameters, another_shape_is_refused_on_all_ranks) {
  expect_on_all(change_between_steps(2,
                                     [&](Small& net, int) {
                                       // Without an accumulator that checks it, as torch::load().
                                       net->c->weight.set_data(torch::ones({5, 17}));
                                       net->c->weight.set_data(torch::ones({5, 17}, at::kDouble));
                                       net->c->bias.set_data(torch::ones({5}));
                                       net->c->bias.set_data(torch::ones({5}, at::kDouble));
                                     }),
                {"UsageError: rank 0: parameter 'c.weight' is Double [5, 17] on cpu now"});
}

TEST(grad_replaced_parameters, a_parameter_thawed_after_wrapping_is_refused_on_all_ranks) {
  for (bool alone : {false, true}) {
    const auto said = what_ranks_throw(2, [&](Group g) {
      Small net = make(1);
      for (auto& p : net->b->parameters()) p.set_requires_grad(false);
      DistributedDataParallel ddp(net, g);
      net->forward(input(4)).sum().backward();
      for (auto& p : net->parameters()) p.set_requires_grad(!alone);
      for (auto& p : net->b->parameters()) p.set_requires_grad(true);
      net->forward(input(4)).sum().backward();
    });
    expect_on_all(said, {"UsageError: rank 0: parameter 'b.weight' requires a gradient now"});
  }
}

TEST(grad_replaced_parameters, frozen_parameters_that_cannot_be_trained_are_left_alone) {
  run_threads(2, [](Group g) {
    at::Tensor fixed;
    {
      c10::InferenceMode inference;
      fixed = torch::full({3}, 1.0 + g.rank());
    }
    const at::Tensor w = torch::ones({3}).requires_grad_(true);
    const NamedTensors all{{"w", w}, {"fixed", fixed}, {"index", torch::zeros({2}, at::kLong)}};
    DistributedDataParallel ddp(all, {}, g);
    (w * 2).sum().backward();
    expect(w.grad().eq(2).all().item<bool>(), "w");
    expect(fixed.eq(1).all().item<bool>() && !fixed.requires_grad(), "rank 0's values");
  });
}

TEST(grad_replaced_parameters, a_parameter_frozen_on_one_rank_is_told_on_all) {
  expect_on_all(
      change_between_steps(2,
                           [](Small& net, int rank) {
                             if (rank == 1) net->b->weight.set_requires_grad(false);
                           }),
      {"Mismatch: parameter 'b.weight' was exchanged or frozen", "on rank 1 and not on rank 0"});
  const auto said =
      change_between_steps(2, [](Small& net, int) { net->b->weight.set_requires_grad(false); });
  for (const auto& text : said) EXPECT_EQ(text, "");
}

TEST(grad_replaced_parameters, a_member_replaced_by_hand_is_named_as_without_a_gradient) {
  expect_on_all(change_between_steps(
                    2,
                    [](Small& net, int) {
                      net->b->weight = torch::ones({17, 17}, at::kDouble).requires_grad_(true);
                    }),
                {"UsageError: ", "'b.weight' (from none)"});
}

TEST(grad_replaced_parameters,
     a_module_or_an_attribute_replaced_by_another_is_refused_on_all_ranks) {
  for (int only : {-1, 1}) {
    const auto nn = what_ranks_throw(2, [&](Group g) {
      Small net = make(1);
      DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
      for (int k = 0; k < 3; ++k) {
        if (k == 1 && (only < 0 || g.rank() == only)) {
          torch::nn::Linear other(17, 17);
          other->to(at::kDouble);
          net->c = net->replace_module("c", torch::nn::Linear(17, 3));
          net->c->to(at::kDouble);
          net->b = net->replace_module("b", other);
        }
        net->forward(input(4)).sum().backward();
      }
    });
    expect_on_all(nn, {fmt::format("UsageError: rank {}: parameter 'b.weight' is another tensor of "
                                   "the module",
                                   std::max(only, 0))});
  }
  const auto jit = what_ranks_throw(2, [](Group g) {
    torch::jit::Module net("net");
    for (const char* name : {"w", "v"})
      net.register_parameter(name, torch::ones({2, 9}).requires_grad_(true), false);
    net.define("def forward(self, x):\n  return x @ self.w.t() + x @ self.v.t()\n");
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    for (int k = 0; k < 3; ++k) {
      if (k == 1) net.setattr("v", torch::zeros({2, 9}).requires_grad_(true));
      net.forward({torch::ones({1, 9})}).toTensor().sum().backward();
    }
  });
  expect_on_all(jit, {"UsageError: rank 0: parameter 'v' is another tensor of the module"});
}

TEST(grad_replaced_parameters, buffers_loaded_on_one_rank_become_rank_0s) {
  const std::string other = saved([] {
    Small net = make(1);
    net->seen.fill_(5);
    return net;
  }());
  run_threads(2, [&](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    net->seen.set_data(torch::full({1}, 3.0 + g.rank(), at::kDouble));
    net->forward(input(4)).sum().backward();
    expect(net->seen.item<double>() == 3, "not rank 0's");
    load(net, other);
    net->forward(input(4)).sum().backward();
    expect(net->seen.item<double>() == 5, "not the file's");
  });
}

TEST(grad_replaced_parameters, torch_load_in_a_loop_of_uneven_inputs_is_followed) {
  const std::string other = saved(make(7));
  run_threads(2, [&](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    join({&ddp}, [&] {
      for (int k = 0; k < 2 + g.rank(); ++k) {
        if (k == 1) load(net, other);
        sgd.zero_grad();
        net->forward(rows_of(g.rank(), k)).pow(2).mean().backward();
        sgd.step();
      }
    });
    at::Tensor all = torch::empty({2, 9 * 17}, at::kDouble);
    g.all_gather_into_tensor(all, net->a->weight.detach().contiguous()).wait();
    expect(all[0].equal(all[1]), "weights differ");
    expect(ddp.reducer().stats().rounds == 4, "a backward was not a round");
  });
}

TEST(grad_replaced_parameters, a_load_costs_no_round_and_no_copy_of_the_gradients_later) {
  const std::string other = saved(make(7));
  run_threads(2, [&](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    load(net, other);
    for (int k = 0; k < 3; ++k) {
      net->zero_grad();
      net->forward(input(4)).sum().backward();
      size_t i = 0;
      for (auto& p : net->parameters())
        expect(p.grad().data_ptr() == ddp.reducer().gradient(i++).data_ptr(),
               "not an alias of the bucket");
    }
  });
}

}  // namespace replaced_parameters_test
