// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/comm/local/oracle.h"
#include "tests/support/ranks.h"

namespace stress_test {

// Many calls under way at once, more ranks than cores, sleepers, and what is left behind.
using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

using Bytes = std::vector<unsigned char>;

void expect_clean(const Outcomes& outcomes) {
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r], "") << "rank " << r;
}

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

Call sum_of(void* p, size_t n) {
  return {.op = Collective::all_reduce,
          .dtype = DType::f32,
          .in = p,
          .out = p,
          .count = n,
          .site = CallSite::here()};
}

// The same list of random calls on every rank, posted in order, waited for in another order on each
// rank, with messages of every pair in between.
void mixed(Engine& e, uint64_t seed, int calls, bool plain) {
  constexpr Collective kKinds[] = {
      Collective::barrier,    Collective::all_reduce, Collective::broadcast,
      Collective::reduce,     Collective::all_gather, Collective::reduce_scatter,
      Collective::gather,     Collective::scatter,    Collective::all_to_all,
      Collective::all_to_all, Collective::all_reduce};
  const auto n = static_cast<size_t>(e.size()), me = static_cast<size_t>(e.rank());
  Buffers memory(e, true), ordinary(e, false);
  struct Posted {
    Ticket ticket;
    const void* got;
    Bytes want;
    std::string what;
  };
  std::vector<Posted> posted;
  auto give = [&](const Bytes& b, uint32_t dice) {
    return (plain || dice % 3 == 0 ? ordinary : memory).take(b);
  };
  auto wait_for = [&](size_t i) {
    Posted p = std::move(posted[i]);
    posted.erase(posted.begin() + static_cast<long>(i));
    e.wait(p.ticket, soon());
    check<Error>(p.want.empty() || std::memcmp(p.got, p.want.data(), p.want.size()) == 0,
                 "{} differs from the oracle on rank {}", p.what, e.rank());
  };
  for (int i = 0; i < calls; ++i) {
    const auto d = philox_block(seed, 1, static_cast<uint64_t>(i));  // alike on every rank
    const auto own = philox_block(seed, 2 + me, static_cast<uint64_t>(i));
    const DType t = kEveryType[d[0] % 11];
    const ReduceOp asked = kEveryOp[d[0] / 11 % 8],
                   red = defined_for(t, asked) ? asked : ReduceOp::sum;
    const size_t item = size_of(t);
    // Inline, small, direct or staged in one or several segments.
    const size_t sizes[] = {0, 3, 200, 3000, 40000};
    const size_t count = sizes[d[1] % 5] + (d[1] / 5) % 7;
    auto input = [&](size_t rank, size_t elements) {
      return random_values(t, elements, seed * 1000 + static_cast<uint64_t>(i) * 64 + rank, red);
    };
    auto inputs = [&](size_t elements) {
      std::vector<Bytes> in;
      for (size_t q = 0; q < n; ++q) in.push_back(input(q, elements));
      return in;
    };
    if (d[2] % 3 == 0) {  // a ring of messages: each to its right neighbour
      const size_t right = (me + 1) % n, left = (me + n - 1) % n;
      Bytes out = input(me, count), want = input(left, count);
      void *from = give(out, own[0]), *to = give(Bytes(out.size()), own[1]);
      Call c{.op = Collective::send,
             .dtype = t,
             .root = static_cast<int>(right),
             .tag = i,
             .in = from,
             .count = count,
             .site = CallSite::here()};
      posted.push_back({e.post(c), nullptr, {}, "send"});
      c.op = Collective::recv;
      c.root = static_cast<int>(left);
      c.out = to;
      posted.push_back({e.post(c), to, want, "recv"});
    } else {
      Call c{
          .op = kKinds[d[3] % std::size(kKinds)], .dtype = t, .red = red, .site = CallSite::here()};
      c.root = static_cast<int>(d[2] % n);
      c.count = c.op == Collective::barrier ? 0 : count;
      const bool parts = c.op == Collective::reduce_scatter || c.op == Collective::scatter;
      auto in = inputs(parts || c.op == Collective::all_to_all ? count * n : count);
      const auto part = static_cast<long>(count * item);
      std::vector<uint64_t> sent, received;  // all_to_all: even or not
      auto amount = [&](size_t from, size_t to) {
        return d[2] % 2 ? count : (mix64(d[0] + from * 64 + to) % (count + 1));
      };
      void* buffer = give(in[me], own[0]);
      c.in = c.out = buffer;
      Bytes want;
      switch (c.op) {
        case Collective::all_reduce:
          want = oracle_reduce(t, red, in);
          break;
        case Collective::broadcast:
          want = in[static_cast<size_t>(c.root)];
          break;
        case Collective::reduce:
          want = c.root == e.rank() ? oracle_reduce(t, red, in) : in[me];
          break;
        case Collective::all_gather: {  // in place, in its own part of the output
          for (auto& part : in) want.insert(want.end(), part.begin(), part.end());
          Bytes whole(want.size());
          std::copy(in[me].begin(), in[me].end(),
                    whole.begin() + static_cast<long>(me * count * item));
          c.out = give(whole, own[1]);
          c.in = static_cast<unsigned char*>(c.out) + me * count * item;
          break;
        }
        case Collective::reduce_scatter: {  // in place, in its own part of the input
          const Bytes whole = oracle_reduce(t, red, in);
          const auto from = whole.begin() + static_cast<long>(me * count * item);
          want.assign(from, from + static_cast<long>(count * item));
          c.out = static_cast<unsigned char*>(buffer) + me * count * item;
          break;
        }
        case Collective::gather:
          if (c.root == e.rank()) {
            for (auto& one : in) want.insert(want.end(), one.begin(), one.end());
            c.out = give(Bytes(want.size()), own[1]);
          }
          break;
        case Collective::scatter: {
          const auto& whole = in[static_cast<size_t>(c.root)];
          const auto from = whole.begin() + static_cast<long>(me) * part;
          want.assign(from, from + part);
          c.out = give(Bytes(want.size()), own[1]);
          break;
        }
        case Collective::all_to_all:
          for (size_t q = 0; q < n; ++q) {
            sent.push_back(amount(me, q)), received.push_back(amount(q, me));
            size_t skip = 0;
            for (size_t r = 0; r < me; ++r) skip += amount(q, r);
            const auto from = in[q].begin() + static_cast<long>(skip * item);
            want.insert(want.end(), from, from + static_cast<long>(received[q] * item));
          }
          c.out = give(Bytes(want.size()), own[1]);
          c.send_counts = sent.data(), c.recv_counts = received.data();
          break;
        default:
          break;
      }
      posted.push_back({e.post(c), c.out, want,
                        fmt::format("call {}: {}({}[{}], {})", i, name_of(c.op), name_of(t), count,
                                    name_of(red))});
    }
    if (own[2] % 4 == 0) e.progress();
    while (posted.size() > own[3] % 40) wait_for(own[2] % posted.size());
  }
  while (!posted.empty()) wait_for(posted.size() - 1);
  check<Error>(e.idle(), "not idle when all was waited for");
}

size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "VmRSS:") {
      size_t kib = 0;
      status >> kib;
      return kib;
    }
  return 0;
}

size_t entries(const char* folder) {
  size_t n = 0;
  for ([[maybe_unused]] auto& e : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}

}  // namespace

TEST(comm_local_stress, mixed_calls_in_any_order_equal_the_oracle_between_threads) {
  for (int n : {2, 3, 4})
    expect_clean(as_threads(n, [n](Engine& e) { mixed(e, 11 + uint64_t(n), 120, false); }));
}

TEST(comm_local_stress, mixed_calls_in_any_order_equal_the_oracle_between_processes) {
  for (int n : {2, 3, 4})
    expect_clean(as_processes(n, [n](Engine& e) { mixed(e, 31 + uint64_t(n), 120, false); }));
  expect_clean(as_processes(3, [](Engine& e) { mixed(e, 41, 120, true); }));
}

TEST(comm_local_stress, short_calls_of_eight_ranks_on_fewer_cores) {
  auto body = [](Engine& e) {
    for (int i = 1; i <= 1000; ++i) {
      float v[3] = {float(i), float(e.rank()), 1};
      e.run(sum_of(v, 3));
      check<Error>(v[0] == 8.0f * float(i) && v[1] == 28 && v[2] == 8, "call {}: {} {} {}", i, v[0],
                   v[1], v[2]);
    }
  };
  expect_clean(as_threads(8, body));
  expect_clean(as_processes(8, body));
}

TEST(comm_local_stress, a_late_peer_wakes_the_sleepers) {
  auto body = [](Engine& e) {
    for (int round = 0; round < 3; ++round) {
      if (e.rank() == round) {
        // Late until the others really sleep.
        const Deadline deadline = soon();
        for (int q = 0; q < e.size(); ++q)
          while (q != e.rank() && !e.host().control(q)->sleeping.load())
            check<Error>(!deadline.expired(), "rank {} does not go to sleep", q);
        ::usleep(5000);
      }
      const auto begin = Clock::now();
      float v = 1;
      e.run(sum_of(&v, 1));
      check<Error>(v == 3, "{}", v);
      std::vector<float> w(30000, 1.0f);
      e.run(sum_of(w.data(), w.size()));
      check<Error>(w[29999] == 3, "{}", w[29999]);
      // The one who came late waits for sleepers: a lost wake-up would cost a slice of 100 ms.
      if (e.rank() == round)
        check<Error>(seconds_since(begin) < 0.09, "woke them after {} s", seconds_since(begin));
    }
  };
  // A loaded machine can delay a wake-up; a lost one is late every time.
  auto settled = [&](auto start) {
    Outcomes o;
    for (int attempt = 0; attempt < 5; ++attempt) {
      o = start(3, body, std::chrono::seconds(30));
      if (std::all_of(o.begin(), o.end(), [](auto& s) { return s.empty(); })) break;
    }
    expect_clean(o);
  };
  settled(as_threads);
  settled(as_processes);
}

// A rank whose kernel or seccomp filter refuses membarrier(2): everybody fences when publishing.
TEST(comm_local_stress, sleepers_wake_without_membarrier) {
  auto world = std::make_shared<ThreadWorld>(2);
  ASSERT_EQ(world->control(0)->membarrier, world->control(1)->membarrier);
  world->control(1)->membarrier = 0;
  Outcomes outcomes(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Engine e(thread_host(world, r), std::chrono::seconds(30));
      outcomes[size_t(r)] = outcome_of([&] {
        for (int round = 0; round < 3; ++round) {
          if (r == 1)
            for (const Deadline deadline = soon(); !world->control(0)->sleeping.load();)
              check<Error>(!deadline.expired(), "rank 0 does not go to sleep");
          const auto begin = Clock::now();
          float v = 1;
          e.run(sum_of(&v, 1));
          check<Error>(v == 2, "{}", v);
          e.run(sum_of(&v, 1));  // rank 0 comes to this one only when it was woken
          if (r == 1)
            check<Error>(seconds_since(begin) < 5, "woke it after {} s", seconds_since(begin));
        }
      });
    });
  for (auto& t : threads) t.join();
  expect_clean(outcomes);
}

TEST(comm_local_stress, a_waiter_serves_other_calls_of_its_rank) {
  // Rank 0 waits for its last call while rank 1 needs its part in the earlier ones and in a message
  // larger than the ring.
  expect_clean(as_threads(2, [](Engine& e) {
    std::vector<std::vector<float>> v(40, std::vector<float>(5000, 1.0f));
    std::vector<float> message(200000, float(e.rank()));
    Ticket stream = e.post({.op = e.rank() == 0 ? Collective::send : Collective::recv,
                            .dtype = DType::f32,
                            .root = 1 - e.rank(),
                            .in = message.data(),
                            .out = message.data(),
                            .count = message.size(),
                            .site = CallSite::here()});
    std::vector<Ticket> tickets;
    for (auto& b : v) tickets.push_back(e.post(sum_of(b.data(), b.size())));
    if (e.rank() == 1) e.wait(stream, soon());
    if (e.rank() == 1)
      for (auto& t : tickets) e.wait(t, soon());
    e.wait(tickets.back(), soon());
    e.wait(stream, soon());
    check<Error>(message.back() == 0.0f && v[0][0] == 2.0f && v[39][4999] == 2.0f, "wrong");
  }));
}

TEST(comm_local_stress, leaving_with_a_call_under_way_fails_the_peers_and_frees_nothing_in_use) {
  auto outcomes = as_threads(3, [](Engine& e) {
    float one = 1;
    e.run(sum_of(&one, 1));
    auto buffer = std::make_unique<std::vector<float>>(100000, 1.0f);
    const Ticket t = e.post(sum_of(buffer->data(), buffer->size()));
    if (e.rank() == 1) {
      e.leave();
      if (e.is_complete(t)) throw Error("complete");  // the others had come already: nothing to see
      buffer.reset();
      return;
    }
    e.wait(t, soon());
    throw Error("complete");
  });
  for (int r : {0, 2}) {
    const std::string& o = outcomes[size_t(r)];
    EXPECT_TRUE(
        o == "Error: complete" ||
        (o.find("PeerLost") == 0 &&
         o.find("it left while call 2, all_reduce(float32[100000], sum)") != std::string::npos))
        << o;
  }
}

TEST(comm_local_stress, an_expired_deadline_still_takes_what_is_there) {
  expect_clean(as_threads(2, [](Engine& e) {
    float v = 1;
    const Ticket t = e.post(sum_of(&v, 1));
    while (!e.complete(t)) ::sched_yield();
    e.wait(t, Deadline::after(Duration::zero()));
    check<Error>(v == 2, "{}", v);
  }));
}

TEST(comm_local_stress, a_forked_child_does_not_speak_for_its_rank) {
  expect_clean(as_processes(2, [](Engine& e) {
    float v = 1;
    e.run(sum_of(&v, 1));
    if (e.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        e.leave();
        e.fail_with("not mine to say");
        ::_exit(0);
      }
      int status = 0;
      check<Error>(::waitpid(child, &status, 0) == child && status == 0, "child: {}", status);
    }
    v = 1;
    e.run(sum_of(&v, 1));
    check<Error>(v == 2, "{}", v);
  }));
}

TEST(comm_local_stress, wrong_calls_are_refused_and_the_group_lives) {
  expect_clean(as_threads(2, [](Engine& e) {
    float v = 1, other = 0;
    auto refused = [&](Call c) {
      try {
        e.run(c);
      } catch (const UsageError&) {
        return;
      }
      throw Error("not refused");
    };
    Call c = sum_of(&v, 1);
    c.out = &other;
    refused(c);
    c = sum_of(nullptr, 1);
    refused(c);
    c = sum_of(&v, ~size_t{0} / 2);
    refused(c);
    c = sum_of(&v, 1);
    c.op = Collective::send;
    c.root = e.rank();
    refused(c);
    std::complex<double> z[2];
    c = sum_of(z, 2);
    c.dtype = DType::c128;
    for (ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::band}) {
      c.red = op;
      refused(c);
    }
    c = sum_of(&v, 1);
    for (ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      c.red = op;
      refused(c);
    }
    c = sum_of(&v, 1);
    c.op = Collective::gather;
    c.root = 2;
    refused(c);
    uint64_t one[2] = {1, 1}, huge[2] = {~uint64_t{0}, 1};
    float from[2] = {}, to[2] = {};
    c = sum_of(from, 0);
    c.op = Collective::all_to_all, c.out = to;
    refused(c);  // no counts
    c.send_counts = one, c.recv_counts = huge;
    refused(c);
    c.recv_counts = one, c.out = from + 1;
    refused(c);  // overlapping
    c.out = nullptr;
    refused(c);
    e.run(sum_of(&v, 1));
    check<Error>(v == 2, "{}", v);
  }));
}

TEST(comm_local_stress, more_ranks_than_a_host_takes_are_refused) {
  EXPECT_THROW(ThreadWorld(kMaxRanks + 1), UsageError);
  EXPECT_THROW(ThreadWorld(0), UsageError);
  EXPECT_THROW(process_host(0, kMaxRanks + 1, {}, Deadline::never()), UsageError);
  EXPECT_THROW(process_host(2, 2, {}, Deadline::never()), UsageError);
}

TEST(comm_local_stress, fifty_groups_leave_no_memory_thread_or_descriptor) {
  auto group = [] {
    expect_clean(as_threads(3, [](Engine& e) {
      auto* p = static_cast<float*>(e.host().allocate(1 << 20));
      std::fill(p, p + (1 << 18), 1.0f);
      e.run(sum_of(p, 1 << 18));
      e.host().deallocate(p);
    }));
  };
  for (int i = 0; i < 5; ++i) group();
  const size_t fds = entries("/proc/self/fd"), tasks = entries("/proc/self/task"),
               kib = resident_kib();
  for (int i = 0; i < 50; ++i) group();
  EXPECT_EQ(entries("/proc/self/fd"), fds);
  EXPECT_EQ(entries("/proc/self/task"), tasks);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // One group takes about 4 MiB: fifty would be 200.
  EXPECT_LT(resident_kib(), kib + 20000);
#else
  (void)kib;
#endif
}

}  // namespace stress_test
