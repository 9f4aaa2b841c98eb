// SPDX-License-Identifier: Apache-2.0
// What holds for every codec.
#include "trireme/grad/compression/compression_hook.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/grad/ddp.h"

namespace compression_hook_test {

using namespace trireme;
using namespace trireme::testing;

TEST(grad_compression_hook, what_was_applied_and_what_is_kept_add_up_to_the_gradients) {
  for (const auto& codec : every_codec(1))
    for (int n : {2, 3, 4})
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        run_threads(n, [&](Group g) {
          Rounds run(g, hook_of(codec), mixed_shapes(), op);
          at::Tensor applied, truth;
          for (int64_t i = 0; i < (codec.type == "auto" ? 14 : 5); ++i) {
            run.round(i);
            const at::Tensor r = run.result().to(at::kDouble) * (op == ReduceOp::avg ? n : 1);
            applied = applied.defined() ? applied + r : r;
            truth = truth.defined() ? truth + run.truth(i) : run.truth(i);
          }
          at::Tensor kept = run.kept().to(at::kDouble);
          g.all_reduce(kept).wait();
          expect(kept.norm().item<double>() > 0, codec.type + " keeps nothing");
          const double off = relative(applied + kept, truth);
          expect(off < 2e-6, fmt::format("{} over {} ranks: off by {}", codec.type, n, off));
        });
}

TEST(grad_compression_hook, ranks_end_with_the_same_bits) {
  for (const auto& codec : every_codec())
    for (int n : {1, 2, 3, 4}) {
      std::vector<at::Tensor> ends(static_cast<size_t>(n));
      run_threads(n, [&](Group g) {
        Rounds run(g, hook_of(codec), mixed_shapes());
        std::vector<at::Tensor> all;
        for (int64_t i = 0; i < 7; ++i) {
          run.round(i);
          all.push_back(run.result());
        }
        ends[static_cast<size_t>(g.rank())] = at::cat(all);
      });
      for (const auto& end : ends) EXPECT_TRUE(end.equal(ends[0])) << codec.type << ", " << n;
    }
}

TEST(grad_compression_hook, one_rank_loses_nothing) {
  for (const auto& codec : every_codec())
    run_threads(1, [&](Group g) {
      Rounds run(g, hook_of(codec), mixed_shapes());
      for (int64_t i = 0; i < 3; ++i) {
        run.round(i);
        expect(run.result().equal(run.truth(i).to(at::kFloat)), codec.type);
      }
    });
}

TEST(grad_compression_hook, rounds_before_the_start_are_the_plain_sum) {
  for (const auto& codec : every_codec(3))
    run_threads(2, [&](Group g) {
      Rounds run(g, hook_of(codec), mixed_shapes());
      for (int64_t i = 0; i < 4; ++i) {
        run.round(i);
        const at::Tensor want =
            Rounds::gradient(0, i, 0, {12, 30}) + Rounds::gradient(1, i, 0, {12, 30});
        const bool same = run.parameters[0].second.grad().equal(want);
        // The automatic choice begins with the plain codec.
        expect(same == (i < 3 || codec.type == "auto"), fmt::format("{} round {}", codec.type, i));
      }
      expect(run.hook->rounds() == 4, "rounds");
    });
}

TEST(grad_compression_hook, without_error_feedback_nothing_is_kept) {
  for (auto codec : every_codec()) {
    codec.error_feedback = false;
    run_threads(2, [&](Group g) {
      Rounds run(g, hook_of(codec), mixed_shapes());
      expect(run.hook->errors() == nullptr, "a memory");
      run.round(0);
      const at::Tensor first = run.result();
      run.round(0);
      // PowerSGD's factors and the automatic choice go on; the others have forgotten.
      if (codec.type != "powersgd" && codec.type != "auto")
        expect(run.result().equal(first), codec.type + " remembers");
    });
  }
}

TEST(grad_compression_hook, state_goes_on_with_the_same_bits) {
  for (const auto& codec : every_codec(1))
    run_threads(3, [&](Group g) {
      const int64_t half = codec.type == "auto" ? 4 : 3,
                    end = half + (codec.type == "auto" ? 2 : 3);
      Rounds run(g, hook_of(codec), mixed_shapes());
      for (int64_t i = 0; i < half; ++i) run.round(i);
      Shown shown;
      run.hook->state(shown);
      for (const auto& [name, slice] : shown.slices)
        if (name.rfind("hook.error.", 0) == 0)
          expect(slice.lengths[0] * 3 == slice.global_shape[0] &&
                     slice.offsets[0] == slice.lengths[0] * g.rank(),
                 name + " is not this rank's part");
      Rounds later(g, hook_of(codec), mixed_shapes());
      shown.loading = true;
      later.hook->state(shown);
      for (int64_t i = half; i < end; ++i) {
        run.round(i);
        later.round(i);
        expect(later.result().equal(run.result()), fmt::format("{} round {}", codec.type, i));
        expect(later.kept().equal(run.kept()), codec.type + ": what is kept");
      }
    });
}

TEST(grad_compression_hook, state_goes_through_a_sharded_checkpoint) {
  PrivateFolder folder;
  for (const auto& codec : every_codec()) {
    const std::string path = folder / codec.type;
    run_threads(2, [&](Group g) {
      Rounds run(g, hook_of(codec), mixed_shapes());
      for (int64_t i = 0; i < 2; ++i) run.round(i);
      const auto walk = [](Rounds& r) { return [&r](StateVisitor& v) { r.hook->state(v); }; };
      save_sharded_step(path, 2, walk(run), g, {.layout = "hooks of 2"});
      Rounds later(g, hook_of(codec), mixed_shapes());
      load_step(path, walk(later), {.group = g});
      run.round(2);
      later.round(2);
      expect(later.result().equal(run.result()) && later.kept().equal(run.kept()), codec.type);
    });
  }
}

TEST(grad_compression_hook,
     a_gradient_that_is_not_finite_is_so_on_all_ranks_and_nobody_s_memory_changes) {
  for (const auto& codec : every_codec())
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 2e38f})
      run_threads(3, [&](Group g) {
        Rounds run(g, hook_of(codec), mixed_shapes());
        Rounds without(g, hook_of(codec), mixed_shapes());
        run.round(0);
        without.round(0);
        const at::Tensor before = run.kept();
        run.round(1, [&](size_t p, at::Tensor& gradient) {
          if (p == 2 && g.rank() == 1) gradient.view(-1)[5] = bad;
        });
        expect(!std::isfinite(run.parameters[2].second.grad().sum().item<double>()),
               codec.type + " hides it");
        expect(run.kept().equal(before), codec.type + " keeps of a round that was not");
        if (codec.type == "auto") return;  // it goes by the number of rounds
        run.round(2);
        without.round(2);
        expect(run.result().equal(without.result()), codec.type + ": the round after it");
      });
}

TEST(grad_compression_hook, a_nan_in_the_memory_is_named_and_told_to_all) {
  for (const auto& codec : every_codec()) {
    const auto said = what_ranks_throw(3, [&](Group g) {
      Rounds run(g, hook_of(codec), mixed_shapes());
      run.round(0);
      if (g.rank() == 1) run.hook->errors()->of(4)[17] = std::numeric_limits<float>::quiet_NaN();
      run.round(1);
    });
    EXPECT_EQ(said[1].rfind("NumericError: what rank 1 kept of the gradients of 'p4'", 0), 0u)
        << codec.type << ": " << said[1];
    for (size_t r : {0, 2}) {
      EXPECT_EQ(said[r].rfind("PeerLost: ", 0), 0u) << said[r];
      EXPECT_NE(said[r].find("what rank 1 kept of the gradients of 'p4'"), std::string::npos)
          << said[r];
    }
  }
}

TEST(grad_compression_hook, half_gradients_are_worked_on_in_float32) {
  for (const auto& codec : every_codec())
    for (at::ScalarType type : {at::kHalf, at::kBFloat16})
      run_threads(2, [&](Group g) {
        Rounds run(g, hook_of(codec), mixed_shapes(), ReduceOp::avg, type);
        at::Tensor applied, truth;
        for (int64_t i = 0; i < 4; ++i) {
          run.round(i);
          expect(run.parameters[0].second.grad().scalar_type() == type, "dtype");
          const at::Tensor r = run.result().to(at::kDouble) * 2;
          applied = applied.defined() ? applied + r : r;
          truth = truth.defined() ? truth + run.truth(i) : run.truth(i);
        }
        at::Tensor kept = run.kept().to(at::kDouble);
        g.all_reduce(kept).wait();
        const double off = relative(applied + kept, truth);
        expect(off < (type == at::kHalf ? 1e-3 : 8e-3), fmt::format("{}: {}", codec.type, off));
        run.round(9, [&](size_t p, at::Tensor& gradient) {
          if (p == 0 && g.rank() == 0) gradient.view(-1)[3] = 65504;
        });
        const bool finite = std::isfinite(run.parameters[0].second.grad().sum().item<double>());
        expect(finite == (type == at::kBFloat16), codec.type + ": the largest float16");
      });
}

TEST(grad_compression_hook, tells_fewer_bytes_than_the_plain_sum) {
  for (const auto& codec : every_codec(1)) {
    if (codec.type == "auto") continue;
    run_threads(2, [&](Group g) {
      Rounds run(g, hook_of(codec), {{300, 200}, {4000}}, ReduceOp::sum, at::kFloat, 1 << 20);
      run.round(0);
      const int64_t plain = run.hook->wire_bytes();
      expect(plain == 64000 * 4, "plain");
      run.round(1);
      const double share = static_cast<double>(run.hook->wire_bytes()) / static_cast<double>(plain);
      const std::map<std::string, double> want = {{"int8", 0.282},
                                                  {"topk", (64000 / 8 + 2 * 6400) / (64000.0 * 4)},
                                                  {"sign", 1.0 / 32},
                                                  {"powersgd", 5000.0 / 64000}};
      expect(std::abs(share / want.at(codec.type) - 1) < 0.03,
             fmt::format("{} sends {}", codec.type, share));
    });
  }
}

TEST(grad_compression_hook, refuses_what_it_was_not_made_for) {
  auto said = what_ranks_throw(2, [](Group g) {
    CompressionOptions o;
    o.type = "int8";
    o.start_step = 0;
    Rounds run(g, hook_of(o), {{3}}, ReduceOp::sum, at::kDouble);
    run.round(0);
  });
  EXPECT_NE(said[0].find("bucket 0 is Double: gradients are float32, float16 or bfloat16"),
            std::string::npos)
      << said[0];
  said = what_ranks_throw(2, [](Group g) {
    const NamedTensors other = {{"q", at::zeros({5})}};
    Rounds run(g,
               [&](const NamedTensors&, const Group& group) {
                 return make_compression({.type = "sign"}, other, group);
               },
               {{3}});
    run.round(0);
  });
  EXPECT_NE(
      said[0].find("parameter 0 of the reducer is 'p0' with 3 elements, the hook was made for "
                   "'q' with 5"),
      std::string::npos)
      << said[0];
}

TEST(grad_compression_hook, trains_a_small_regression_through_ddp) {
  const auto last_loss = [](const CompressionOptions& codec) {
    double end = 0;
    run_threads(2, [&](Group g) {
      Small net = make(1, at::kFloat);
      NamedTensors parameters;
      for (auto& p : net->named_parameters()) parameters.emplace_back(p.key(), p.value());
      const auto hook = make_compression(codec, parameters, g);
      DdpOptions options{.bucket_bytes = 500, .first_bucket_bytes = 200};
      if (hook) options.hook = hook->hook();
      DistributedDataParallel ddp(net, g, options);
      expect(ddp.reducer().buckets().size() >= 2, "one bucket");
      const at::Tensor x = input(24, at::kFloat).narrow(0, 12 * g.rank(), 12);
      const at::Tensor y =
          at::stack({x.sum(1), x.select(1, 2), x.select(1, 0) * x.select(1, 1)}, 1);
      at::Tensor loss;
      for (int step = 0; step < 150; ++step) {
        net->zero_grad();
        loss = (net->forward(x) - y).pow(2).mean();
        loss.backward();
        at::NoGradGuard no_grad;
        for (auto& p : net->parameters()) p -= 0.1 * p.grad();
      }
      loss = loss.detach().clone();
      g.all_reduce(loss, ReduceOp::avg).wait();
      if (g.rank() == 0) end = loss.item<double>();
    });
    return end;
  };
  const double plain = last_loss({});
  EXPECT_LT(plain, 0.1);
  for (const auto& codec : every_codec(2))
    EXPECT_LT(last_loss(codec), 1.5 * plain + 0.01) << codec.type << ", plain " << plain;
}

}  // namespace compression_hook_test
