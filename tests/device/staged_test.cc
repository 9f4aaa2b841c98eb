// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/conformance.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/start/run.h"
#include "trireme/tensor/device.h"

// Groups that read the CPU's memory alone, with tensors of a device whose streams are late.
namespace trireme::device_staged_test {
namespace {

using trireme::testing::all_dtypes;
using trireme::testing::conform;
using trireme::testing::outcome_of;
using trireme::testing::present;
using trireme::testing::Sizes;

const std::vector<Sizes> kFew{{}, {0}, {3, 5}, {5001}}, kPair{{3, 5}, {1501}};
const std::vector<const char*> kThreadBackends{"local", "gloo"};

using Body = std::function<void(Group, at::Device)>;

/// fn as n thread ranks of a backend, with a device each.
void on_devices(int n, const std::string& backend, const Body& fn,
                Duration timeout = std::chrono::seconds(60)) {
  run_threads(
      n,
      [&](Group g) {
        const at::Device device = pretend::device(g.rank());
        const CurrentDevice current(device);
        fn(g, device);
      },
      ThreadOptions{timeout, backend});
}

SpawnOptions this_test(const std::string& backend) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.backend = backend;
  o.timeout = std::chrono::seconds(60);
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  return o;
}

at::TensorOptions on(at::Device device) { return at::TensorOptions(at::kFloat).device(device); }
at::Tensor numbers(int rank, int64_t n = 4096) { return at::arange(n, at::kFloat) + 100 * rank; }

}  // namespace

TEST(device_staged, every_call_and_dtype_on_local_conforms) {
  on_devices(2, "local", [](Group g, at::Device d) { conform(g, all_dtypes(), kPair, true, d); });
  on_devices(3, "local", [](Group g, at::Device d) { conform(g, {at::kFloat}, kFew, true, d); });
}

TEST(device_staged, every_call_and_dtype_on_gloo_conforms) {
  on_devices(2, "gloo", [](Group g, at::Device d) { conform(g, all_dtypes(), kPair, true, d); });
  on_devices(3, "gloo", [](Group g, at::Device d) { conform(g, {at::kFloat}, kFew, true, d); });
}

// A call in which a copy is late takes 30 ms, so these are fewer.
TEST(device_staged, every_call_conforms_while_copies_are_late) {
  pretend::for_some_seeds(1, [] {
    for (const char* backend : kThreadBackends)
      on_devices(2, backend, [](Group g, at::Device d) {
        conform(g, {at::kBFloat16}, {{4, 150}}, true, d);
      });
  });
}

namespace {

void conform_as_processes(const std::string& backend, CallSite site = CallSite::here()) {
  if (!present(backend)) GTEST_SKIP() << "the backend " << backend << " is not in this build";
  spawn(
      2,
      [](Group g) {
        const at::Device device = pretend::device(g.rank());
        const CurrentDevice current(device);
        const bool any_source = g.backend() != "hybrid";  // which refuses it
        conform(g, {at::kFloat, at::kBool}, {{0}, {5001}}, any_source, device);
        Group half = g.split(0, -g.rank());
        conform(half, {at::kLong}, {{3, 5}}, any_source, device);
        if (!any_source) {
          at::Tensor t = at::empty({3}, on(device));
          const std::string said = outcome_of([&] { g.recv(t, kAnySource); });
          check<Error>(said.find("UsageError: recv at ") == 0, "recv from any rank: '{}'", said);
        }
        pretend::reseed(7);
        at::Tensor t = numbers(g.rank()).to(device);
        g.all_reduce(t).wait();
        check<Error>(t.cpu().equal(numbers(0) + numbers(1)), "a late all_reduce is wrong");
      },
      this_test(backend), site);
}

}  // namespace

TEST(device_staged, processes_on_local_conform) { conform_as_processes("local"); }
TEST(device_staged, processes_on_gloo_conform) { conform_as_processes("gloo"); }
TEST(device_staged, processes_on_hybrid_conform) { conform_as_processes("hybrid"); }

TEST(device_staged, groups_that_were_split_are_staged_too) {
  for (const char* backend : kThreadBackends)
    on_devices(4, backend, [](Group world, at::Device device) {
      Group g = world.split(world.rank() % 2, -world.rank());
      conform(g, {at::kFloat}, {{3, 5}, {5001}}, true, device);
      world.barrier();
    });
}

TEST(device_staged, groups_take_what_the_cpu_takes_and_their_memory_is_the_devices) {
  on_devices(2, "local", [](Group g, at::Device device) {
    EXPECT_TRUE(g.supports(Collective::all_reduce, at::kBFloat16, device.type()));
    EXPECT_FALSE(g.supports(Collective::all_reduce, at::kQInt8, device.type()));
    EXPECT_FALSE(g.supports(Collective::all_reduce, at::kFloat, at::kMeta));
    EXPECT_EQ(g.empty({3}, on(device)).device(), device);
    EXPECT_TRUE(g.empty({3}).is_cpu());
    g.barrier();
  });
}

TEST(device_staged, posting_waits_for_no_stream_and_no_peer) {
  for (const char* backend : kThreadBackends) {
    SCOPED_TRACE(backend);
    std::atomic<bool> posted{false};  // by rank 0
    on_devices(2, backend, [&posted](Group g, at::Device device) {
      at::Tensor sum = numbers(g.rank()).to(device), more = sum.clone(), got = at::empty_like(sum);
      Work first, second, third;
      {
        pretend::Hold hold(pretend::default_stream(device.index()));
        const pretend::NoHostWaits none;
        if (g.rank() == 1) {
          const Deadline deadline = Deadline::after(std::chrono::seconds(20));
          while (!posted && !deadline.expired()) std::this_thread::yield();
          EXPECT_TRUE(posted) << "rank 0's posting does not end before rank 1 posts";
        }
        first = g.all_reduce(sum);
        second = g.broadcast(more, 1);
        third = g.rank() == 0 ? g.send(more, 1) : g.recv(got, 0);
        g.progress();
        EXPECT_FALSE(first.is_completed());
        if (g.rank() == 0) posted = true;
      }
      {
        const pretend::NoHostWaits none;
        first.wait();
        second.wait();
        third.wait();
        sum.mul_(2);
      }
      EXPECT_TRUE(sum.cpu().equal((numbers(0) + numbers(1)) * 2));
      EXPECT_TRUE(more.cpu().equal(numbers(1)));
      EXPECT_TRUE(g.rank() == 0 || got.cpu().equal(numbers(0)));
    });
  }
}

// Otherwise one rank's call of the CPU would meet another's of the device.
TEST(device_staged, calls_keep_their_order_among_those_of_the_cpu) {
  pretend::for_some_seeds(4, [] {
    for (const char* backend : kThreadBackends)
      on_devices(2, backend, [](Group g, at::Device device) {
        std::vector<at::Tensor> tensors;
        std::vector<Work> works;
        for (int i = 0; i < 30; ++i) {
          at::Tensor t = numbers(g.rank() + i, 500);
          // Which of them are the device's differs between the ranks.
          if ((i + g.rank()) % 3 != 0) t = t.to(device);
          tensors.push_back(t);
          works.push_back(i % 2 ? g.all_reduce(t, ReduceOp::max) : g.broadcast(t, i / 2 % 2));
        }
        for (size_t i = works.size(); i-- > 0;) works[i].wait();
        for (int i = 0; i < 30; ++i) {
          const at::Tensor want = i % 2 ? numbers(1 + i, 500) : numbers(i / 2 % 2 + i, 500);
          EXPECT_TRUE(tensors[static_cast<size_t>(i)].cpu().equal(want)) << i;
        }
        g.barrier();
      });
  });
}

TEST(device_staged, memory_freed_after_the_call_is_still_its_own) {
  pretend::for_some_seeds(4, [] {
    on_devices(2, "local", [](Group g, at::Device device) {
      at::Tensor out = at::empty({8192}, on(device));
      Work gathered;
      {
        at::Tensor mine = numbers(g.rank()).to(device);
        gathered = g.all_gather_into_tensor(out, mine);
      }
      const at::Tensor other = at::full({4096}, -2.f, on(device));  // the freed block perhaps
      gathered.wait();
      EXPECT_TRUE(out.cpu().equal(at::cat({numbers(0), numbers(1)})));
      // Written while the stream has still to read what it held: the read sees the old bytes.
      at::Tensor box = numbers(5).to(device), before = box.clone();
      at::Tensor kept = at::empty_like(box);
      kept.copy_(box);
      g.broadcast(box, 0).wait();
      EXPECT_TRUE(kept.cpu().equal(numbers(5)));
    });
  });
}

TEST(device_staged, each_stream_that_waits_is_ordered_behind_the_result) {
  pretend::for_some_seeds(4, [] {
    on_devices(2, "local", [](Group g, at::Device device) {
      at::Tensor t = numbers(g.rank()).to(device);
      Work work = g.all_reduce(t);
      const DeviceStream side = DeviceStream::another(device);
      at::Tensor there = at::empty_like(t);
      {
        const StreamScope scope(side);
        work.wait();
        there.copy_(t);
        side.uses(t);
      }
      work.wait();
      EXPECT_TRUE(t.cpu().equal(numbers(0) + numbers(1)));
      side.synchronize();
      EXPECT_TRUE(there.cpu().equal(numbers(0) + numbers(1)));
    });
  });
}

TEST(device_staged, polling_alone_completes_a_call_and_puts_a_strided_result_in_place) {
  pretend::for_some_seeds(1, [] {
    on_devices(2, "local", [](Group g, at::Device device) {
      at::Tensor t = numbers(g.rank()).to(device).view({64, 64}).t();
      Work work = g.all_reduce(t);
      const Deadline deadline = Deadline::after(std::chrono::seconds(30));
      while (!work.is_completed()) ASSERT_FALSE(deadline.expired());
      EXPECT_TRUE(t.t().reshape({-1}).cpu().equal(numbers(0) + numbers(1)));
      g.barrier();
    });
  });
}

TEST(device_staged, a_parameter_that_a_graph_has_saved_may_be_broadcast) {
  on_devices(2, "local", [](Group g, at::Device device) {
    at::Tensor w = numbers(g.rank(), 8).to(device).requires_grad_();
    const at::Tensor loss = (w * w).sum();
    g.broadcast(w, 0).wait();
    loss.backward();
    EXPECT_TRUE(w.detach().cpu().equal(numbers(0, 8)));
  });
}

TEST(device_staged, a_call_waits_for_one_in_another_group_that_is_still_being_copied) {
  on_devices(2, "local", [](Group world, at::Device device) {
    Group other = world.split(0);
    at::Tensor a = numbers(world.rank()).to(device), b = numbers(world.rank());
    if (world.rank() == 0) {
      Work late;
      {
        pretend::Hold hold(pretend::default_stream(device.index()));
        late = world.all_reduce(a);
      }
      other.all_reduce(b).wait();  // rank 1 comes to it only when it has the first one
      late.wait();
    } else {
      world.all_reduce(a).wait();
      other.all_reduce(b).wait();
    }
    EXPECT_TRUE(a.cpu().equal(numbers(0) + numbers(1)));
    EXPECT_TRUE(b.equal(numbers(0) + numbers(1)));
  });
}

TEST(device_staged, host_memory_is_used_again) {
  on_devices(2, "local", [](Group g, at::Device device) {
    at::Tensor t = at::ones({1 << 18}, on(device));
    const auto round = [&] {
      g.all_reduce(t, ReduceOp::max).wait();
      pretend::synchronize();
      g.progress();
      g.barrier();
    };
    for (int i = 0; i < 3; ++i) round();
    const size_t before = pretend::pinned_bytes();
    g.barrier();
    for (int i = 0; i < 50; ++i) round();
    EXPECT_LE(pretend::pinned_bytes(), before + (size_t{2} << 20));
    g.barrier();
  });
}

TEST(device_staged, tensors_on_two_devices_are_refused_in_one_sentence_and_the_group_goes_on) {
  on_devices(2, "local", [](Group g, at::Device device) {
    const std::string said = outcome_of(
        [&] { g.all_gather_into_tensor(at::empty({8}), at::ones({4}, on(device))).wait(); });
    EXPECT_NE(said.find("UsageError: all_gather at "), std::string::npos) << said;
    EXPECT_NE(said.find("the input is on " + device.str() +
                        " and the output on cpu; move one of "
                        "them to the other's device"),
              std::string::npos)
        << said;
    const at::Device other(device.type(), static_cast<c10::DeviceIndex>(1 - device.index()));
    const std::string two = outcome_of([&] {
      g.all_gather_into_tensor(at::empty({8}, on(other)), at::ones({4}, on(device))).wait();
    });
    EXPECT_NE(two.find("the input is on " + device.str() + " and the output on " + other.str()),
              std::string::npos)
        << two;
    at::Tensor t = at::ones({4}, on(device));
    g.all_reduce(t).wait();
    EXPECT_TRUE(t.cpu().equal(at::full({4}, 2.f)));
  });
}

TEST(device_staged, different_calls_are_named_as_they_were_made) {
  for (const char* backend : kThreadBackends) {
    SCOPED_TRACE(backend);
    std::vector<std::string> said(2);
    on_devices(
        2, backend,
        [&](Group g, at::Device device) {
          at::Tensor t = at::ones({4 + g.rank()}, on(device));
          said[static_cast<size_t>(g.rank())] = outcome_of([&] { g.all_reduce(t).wait(); });
        },
        std::chrono::seconds(20));
    for (const std::string& text : said) {
      EXPECT_NE(text.find("Mismatch"), std::string::npos) << text;
      EXPECT_NE(text.find("all_reduce(float32[5]"), std::string::npos) << text;
    }
  }
}

TEST(device_staged, a_rank_that_fails_is_named_while_calls_are_staged) {
  for (const char* backend : kThreadBackends) {
    SCOPED_TRACE(backend);
    std::vector<std::string> said(3);
    on_devices(
        3, backend,
        [&](Group g, at::Device device) {
          at::Tensor t = at::ones({4096}, on(device));
          if (g.rank() == 2) {
            g.all_reduce(t).wait();
            g.abort("rank 2 ran out of biscuits");
            return;
          }
          g.all_reduce(t).wait();
          pretend::Hold hold(pretend::default_stream(device.index()));
          Work work = g.all_reduce(t);
          hold.release();
          said[static_cast<size_t>(g.rank())] = outcome_of([&] { work.wait(); });
        },
        std::chrono::seconds(20));
    for (int r : {0, 1}) {
      const std::string& text = said[static_cast<size_t>(r)];
      EXPECT_NE(text.find("PeerLost"), std::string::npos) << text;
      EXPECT_NE(text.find("biscuits"), std::string::npos) << text;
    }
  }
}

namespace {

void lose_a_rank(const std::string& backend, CallSite site = CallSite::here()) {
  if (!present(backend)) GTEST_SKIP() << "the backend " << backend << " is not in this build";
  const auto began = Clock::now();
  const std::string said = outcome_of([&] {
    spawn(
        3,
        [](Group g) {
          const at::Device device = pretend::device(g.rank());
          const CurrentDevice current(device);
          at::Tensor t = at::ones({4096}, on(device));
          g.all_reduce(t).wait();
          Work work = g.all_reduce(t);
          if (g.rank() == 1) ::_exit(3);
          const std::string text = outcome_of([&] { work.wait(); });
          // Which spawn() reports if it is another text.
          check<Error>(text.find("PeerLost") == 0 && text.find("rank 1") != std::string::npos,
                       "rank {} heard '{}' of the rank that died", g.rank(), text);
        },
        this_test(backend), site);
  });
  EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
  EXPECT_EQ(said.find("heard"), std::string::npos) << said;
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30));
}

}  // namespace

TEST(device_staged, a_rank_of_local_that_dies_is_named_by_the_others) { lose_a_rank("local"); }
TEST(device_staged, a_rank_of_gloo_that_dies_is_named_by_the_others) { lose_a_rank("gloo"); }

TEST(device_staged, a_stream_that_stands_still_ends_the_call_at_its_deadline_on_all_ranks) {
  for (const char* backend : kThreadBackends) {
    SCOPED_TRACE(backend);
    std::vector<std::string> said(2);
    on_devices(
        2, backend,
        [&](Group g, at::Device device) {
          at::Tensor t = at::ones({64}, on(device));
          g.all_reduce(t).wait();
          const auto call = [&] {
            said[static_cast<size_t>(g.rank())] =
                outcome_of([&] { g.all_reduce(t).wait(std::chrono::milliseconds(600)); });
          };
          if (g.rank() == 1) {
            pretend::Hold hold(pretend::default_stream(device.index()));
            call();
          } else {
            said[0] = outcome_of([&] { g.all_reduce(t).wait(std::chrono::seconds(20)); });
          }
        },
        std::chrono::seconds(30));
    EXPECT_NE(said[1].find("Timeout: rank 1 did not send all_reduce at "), std::string::npos)
        << said[1];
    EXPECT_NE(said[1].find("within 0.6 s: its device's stream has not come to it"),
              std::string::npos)
        << said[1];
    EXPECT_NE(said[0].find("its device's stream has not come to it"), std::string::npos) << said[0];
  }
}

TEST(device_staged, one_who_gives_up_waits_no_longer_for_its_stream) {
  std::vector<std::string> said(2);
  on_devices(2, "local", [&](Group g, at::Device device) {
    at::Tensor t = at::ones({64}, on(device));
    pretend::Hold hold(pretend::default_stream(device.index()));
    Work work = g.all_reduce(t);
    if (g.rank() == 0) g.abort("rank 0 gave up");
    if (g.rank() == 1) hold.release();
    said[static_cast<size_t>(g.rank())] = outcome_of([&] { work.wait(); });
  });
  EXPECT_NE(said[0].find("gave up"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("gave up"), std::string::npos) << said[1];
}

TEST(device_staged, objects_and_names_cross_in_the_cpus_memory) {
  on_devices(3, "gloo", [](Group g, at::Device device) {
    at::Tensor t = at::ones({64}, on(device));
    Work staged = g.all_reduce(t);
    const auto texts =
        detail::all_gather_bytes(g, "rank " + std::to_string(g.rank()), CallSite::here());
    EXPECT_EQ(texts.at(2), "rank 2");
    staged.wait();
    EXPECT_TRUE(t.cpu().equal(at::full({64}, 3.f)));
  });
}

namespace {

enum class Missing { nothing, wait_for_stream, wait_for_copy, order_of_result, order_of_next };

/// What the wrapper does, without one of its parts: two ranks add up, then the second call of each
/// overwrites what the first one's stream still reads.
bool adds_up(Missing missing) {
  std::atomic<bool> right{true};
  on_devices(2, "local", [&](Group g, at::Device device) {
    const DeviceStream now = DeviceStream::current(device), out = DeviceStream::another(device),
                       in = DeviceStream::another(device);
    const at::Tensor source = host_buffer({4096}, at::kFloat, device),
                     here = host_buffer({4096}, at::kFloat, device);
    source.copy_(numbers(g.rank()));
    here.zero_();
    at::Tensor t = at::zeros({4096}, on(device)), before = at::zeros({4096}, on(device));
    pretend::synchronize();
    g.barrier();
    copy_in_stream_order(t, source);  // the gradient, which comes late
    const DeviceEvent issued = now.record();
    if (missing != Missing::wait_for_stream) out.wait(issued);
    DeviceEvent copied;
    {
      const StreamScope scope(out);
      copy_in_stream_order(here, t);
      copied = out.record();
    }
    if (missing != Missing::wait_for_copy) copied.wait_on_host();
    g.all_reduce(here).wait();
    copy_in_stream_order(before, t);  // the program still reads what the result replaces
    if (missing != Missing::order_of_next) in.wait(now.record());
    DeviceEvent back;
    {
      const StreamScope scope(in);
      copy_in_stream_order(t, here);
      back = in.record();
    }
    if (missing != Missing::order_of_result) now.wait(back);
    const at::Tensor sum = t.cpu(), old = before.cpu();
    if (!sum.equal(numbers(0) + numbers(1)) || !old.equal(numbers(g.rank()))) right = false;
    pretend::synchronize();
    g.barrier();
  });
  return right;
}

}  // namespace

TEST(device_staged, a_wait_that_is_left_out_of_the_wrapper_shows) {
  for (const Missing missing : {Missing::nothing, Missing::wait_for_stream, Missing::wait_for_copy,
                                Missing::order_of_result, Missing::order_of_next}) {
    int wrong = 0;
    pretend::for_seeds(6, [&] { wrong += !adds_up(missing); });
    if (missing == Missing::nothing)
      EXPECT_EQ(wrong, 0);
    else
      EXPECT_GT(wrong, 0) << static_cast<int>(missing);
  }
}

}  // namespace trireme::device_staged_test
