// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/p2p.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/comm/local/messages.h"
#include "tests/comm/local/oracle.h"

namespace p2p_test {

using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

// Every rank knows the whole list of messages. Each posts its sends in the order of the list and
// its recvs in any order that keeps those of one source and tag (a recv of any source knows only
// its tag, whose messages have one size and say who sent them), then waits for all in any order.
void traffic(Engine& e, uint64_t seed, int messages, size_t largest, bool arena) {
  const auto n = static_cast<uint32_t>(e.size());
  Buffers shared(e, true), ordinary(e, false);
  auto take = [&](const Bytes& b, uint32_t dice) {
    return (arena && dice % 3 ? shared : ordinary).take(b);
  };
  constexpr int kAnyTag = 100;
  struct Posted {
    Ticket ticket;
    const void* got = nullptr;
    Bytes want;
  };
  std::vector<Call> sends, recvs;
  std::map<const void*, Bytes> wanted;
  std::map<std::pair<int, int>, std::vector<Bytes>> from_any;  // by source and tag, in order
  for (int i = 0; i < messages; ++i) {
    const auto d = philox_block(seed, 0, static_cast<uint64_t>(i));
    const int from = static_cast<int>(d[0] % n);
    const int to = static_cast<int>((static_cast<uint32_t>(from) + 1 + d[1] % (n - 1)) % n);
    const bool any = d[2] % 4 == 0;
    int tag = static_cast<int>(d[2] / 4 % 3);
    size_t count;
    if (any) {
      tag += kAnyTag;
      count = std::vector<size_t>{12, 5000, 60000}[static_cast<size_t>(tag - kAnyTag)];
    } else {
      const size_t sizes[] = {0, 1, 40, 41, 3000, 8192, 8193, 20000, 100000, largest};
      count = sizes[d[3] % 10];
      if (count > 8193) count += d[3] / 10 % 97;
    }
    Bytes text = pattern(count, seed * 100000 + static_cast<uint64_t>(i));
    const auto own = philox_block(seed, 1, static_cast<uint64_t>(i));
    if (from == e.rank()) sends.push_back(send_of(to, tag, take(text, own[0]), count));
    if (to == e.rank()) {
      void* p = take(Bytes(count), own[1]);
      recvs.push_back(recv_of(any ? kAnySource : from, tag, p, count));
      if (any)
        from_any[{from, tag}].push_back(std::move(text));
      else
        wanted[p] = std::move(text);
    }
  }
  // Recvs of another tag or source may overtake.
  for (size_t i = 1; i < recvs.size(); ++i)
    for (size_t k = i; k > 0; --k) {
      const bool same = recvs[k].tag == recvs[k - 1].tag && recvs[k].root == recvs[k - 1].root;
      if (same || philox_block(seed, 2, i * 1000 + k)[0] % 4 == 0) break;
      std::swap(recvs[k], recvs[k - 1]);
    }
  std::vector<std::pair<Ticket, Call>> open;
  std::vector<std::pair<uint64_t, std::pair<Ticket, Call>>> any_done;
  size_t s = 0, r = 0;
  for (uint64_t i = 0; s < sends.size() || r < recvs.size(); ++i) {
    const uint32_t d = philox_block(seed, 3 + static_cast<uint64_t>(e.rank()), i)[0];
    // Some ranks send first, some receive first, some mix.
    const bool send_now =
        r == recvs.size() || (s < sends.size() && (seed + uint64_t(e.rank())) % 3 == 0 ? true
                              : (seed + uint64_t(e.rank())) % 3 == 1                   ? false
                                                                                       : d % 2);
    if (send_now && s < sends.size()) {
      open.push_back({e.post(sends[s]), sends[s]});
      ++s;
    } else if (r < recvs.size()) {
      open.push_back({e.post(recvs[r]), recvs[r]});
      ++r;
    } else {
      open.push_back({e.post(sends[s]), sends[s]});
      ++s;
    }
    if (d % 7 == 0) e.progress();
  }
  for (uint64_t i = 0; !open.empty(); ++i) {
    const size_t k = philox_block(seed, 90 + static_cast<uint64_t>(e.rank()), i)[0] % open.size();
    auto [ticket, call] = open[k];
    open.erase(open.begin() + static_cast<long>(k));
    e.wait(ticket, soon());
    check<Error>(e.is_complete(ticket), "waited for, not complete");
    if (call.op == Collective::send) continue;
    if (call.root == kAnySource) {
      any_done.push_back({ticket.seq, {ticket, call}});
      continue;
    }
    check<Error>(e.source(ticket) == call.root, "source {}", e.source(ticket));
    const Bytes& want = wanted[call.out];
    check<Error>(want.empty() || std::memcmp(call.out, want.data(), want.size()) == 0,
                 "rank {}: {} bytes with tag {} from {} are wrong", e.rank(), call.count, call.tag,
                 call.root);
  }
  // Those of one source and tag went to the recvs in the order of posting.
  std::sort(any_done.begin(), any_done.end(), [](auto& a, auto& b) { return a.first < b.first; });
  for (auto& [seq, done] : any_done) {
    auto& queue = from_any[{e.source(done.first), done.second.tag}];
    check<Error>(!queue.empty(), "rank {} got one too many from {}", e.rank(),
                 e.source(done.first));
    check<Error>(std::memcmp(done.second.out, queue.front().data(), queue.front().size()) == 0,
                 "rank {}: tag {} from {}: wrong message", e.rank(), done.second.tag,
                 e.source(done.first));
    queue.erase(queue.begin());
  }
  check<Error>(e.idle(), "not idle when all was waited for");
  e.run({.op = Collective::barrier, .site = CallSite::here()});
}

// Processes started meanwhile share one CPU.
class OneCpu {
 public:
  OneCpu() {
    ::sched_getaffinity(0, sizeof old_, &old_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &old_)) CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCpu() { ::sched_setaffinity(0, sizeof old_, &old_); }

 private:
  cpu_set_t old_;
};

// Sizes that take every way, both ends in each kind of memory, both ranks sending first.
void all_ways(Engine& e) {
  const int peer = 1 - e.rank();
  for (size_t n : {size_t{100}, size_t{8193}, size_t{16000}, size_t{70001}, size_t{1234567}})
    for (int way = 0; way < 4; ++way) {
      Buffers out(e, way & 1), in(e, way & 2);
      const Bytes want = pattern(n, n + uint64_t(peer));
      void *from = out.take(pattern(n, n + uint64_t(e.rank()))), *to = in.take(Bytes(n));
      const Ticket s = e.post(send_of(peer, way, from, n)), r = e.post(recv_of(peer, way, to, n));
      e.wait(s, soon());
      e.wait(r, soon());
      check<Error>(std::memcmp(to, want.data(), n) == 0, "{} bytes, way {}", n, way);
    }
}

}  // namespace

TEST(comm_local_p2p, random_traffic_between_threads_is_what_was_sent) {
  for (int n : {2, 3, 5})
    expect_clean(as_threads(n, [n](Engine& e) {
      for (uint64_t seed = 0; seed < 6; ++seed)
        traffic(e, seed * 10 + uint64_t(n), 120, 200 << 10, true);
    }));
}

TEST(comm_local_p2p, random_traffic_between_processes_is_what_was_sent) {
  for (int n : {2, 4})
    expect_clean(as_processes(n, [n](Engine& e) {
      for (uint64_t seed = 0; seed < 6; ++seed)
        traffic(e, seed * 10 + uint64_t(n), 120, 200 << 10, true);
    }));
}

TEST(comm_local_p2p, random_traffic_of_ordinary_memory_through_the_rings) {
  expect_clean(as_processes(3, [](Engine& e) {
    refuse_peeks(e);
    for (uint64_t seed = 0; seed < 4; ++seed) traffic(e, seed, 120, 200 << 10, false);
  }));
}

TEST(comm_local_p2p, both_ends_in_each_kind_of_memory) {
  expect_clean(as_threads(2, all_ways));
  expect_clean(as_processes(2, all_ways));
  expect_clean(as_processes(2, [](Engine& e) {
    refuse_peeks(e);
    all_ways(e);
  }));
}

TEST(comm_local_p2p, ranks_that_share_a_cpu_read_each_others_ordinary_memory) {
  // What the receiver finds where it probes: the right number, nothing, or another process's
  // number.
  for (int probe = 0; probe < 3; ++probe) {
    OneCpu one_cpu;
    expect_clean(as_processes(2, [probe](Engine& e) {
      static const uint64_t wrong = 1;
      Control* self = e.host().control(e.rank());
      if (probe == 1) refuse_peeks(e);
      if (probe == 2) self->probe_address = reinterpret_cast<uint64_t>(&wrong);
      e.run({.op = Collective::barrier, .site = CallSite::here()});
      constexpr size_t n = 2500001;
      const int peer = 1 - e.rank();
      Bytes out = pattern(n, uint64_t(e.rank())), in(n);
      uint64_t value;
      iovec local{&value, sizeof value},
          remote{reinterpret_cast<void*>(e.host().control(peer)->probe_address), sizeof value};
      const bool allowed =
          ::process_vm_readv(e.host().control(peer)->pid, &local, 1, &remote, 1, 0) == sizeof value;
      const Ticket s = e.post(send_of(peer, 0, out.data(), n)),
                   r = e.post(recv_of(peer, 0, in.data(), n));
      e.wait(s, soon());
      e.wait(r, soon());
      check<Error>(in == pattern(n, uint64_t(peer)), "wrong bytes");
      // The announcement and the answer to the peer's; nothing went through the ring.
      const bool ring = packets_of(self, peer)[2].stamp.load() != 0;
      check<Error>(ring == (probe != 0 || !allowed), "ring {}, probe {}", ring, probe);
    }));
  }
}

TEST(comm_local_p2p, other_tags_overtake_and_unexpected_messages_block_nobody) {
  auto body = [](Engine& e) {
    std::vector<Bytes> out;
    for (int tag = 0; tag < 12; ++tag)
      out.push_back(pattern(tag % 2 ? 100000 : 500, uint64_t(tag)));
    std::vector<Ticket> sent;
    if (e.rank() == 0) {
      for (int tag = 0; tag < 12; ++tag)
        sent.push_back(e.post(send_of(1, tag, out[size_t(tag)].data(), out[size_t(tag)].size())));
      for (auto& t : sent) e.wait(t, soon());
    } else {
      for (int tag = 11; tag >= 0; --tag) {
        Bytes in(out[size_t(tag)].size());
        e.run(recv_of(0, tag, in.data(), in.size()));
        check<Error>(in == out[size_t(tag)], "tag {}", tag);
      }
    }
  };
  expect_clean(as_threads(2, body));
  expect_clean(as_processes(2, body));
}

TEST(comm_local_p2p, recvs_complete_in_the_order_of_their_messages) {
  expect_clean(as_threads(2, [](Engine& e) {
    int value = 0;
    if (e.rank() == 0) {
      for (int tag : {2, 1}) {
        e.run(recv_of(1, 9, &value, sizeof value));
        e.run(send_of(1, tag, &tag, sizeof tag));
      }
      return;
    }
    int one = 0, two = 0, go = 1;
    const Ticket first = e.post(recv_of(0, 1, &one, sizeof one)),
                 second = e.post(recv_of(0, 2, &two, sizeof two));
    e.run(send_of(0, 9, &go, sizeof go));
    e.wait(second, soon());
    check<Error>(two == 2 && !e.complete(first) && !e.idle(), "{}", two);
    e.run(send_of(0, 9, &go, sizeof go));
    e.wait(first, soon());
    check<Error>(one == 1 && e.idle() && e.is_complete(second), "{}", one);
  }));
}

TEST(comm_local_p2p, the_oldest_recv_gets_the_message_whatever_its_source) {
  expect_clean(as_threads(2, [](Engine& e) {
    int go = 0;
    if (e.rank() == 0) {
      e.run(recv_of(1, 9, &go, sizeof go));
      for (int i = 0; i < 3; ++i) e.run(send_of(1, 4, &i, sizeof i));
      return;
    }
    int v[3] = {-1, -1, -1};
    std::vector<Ticket> t;
    for (int i = 0; i < 3; ++i)
      t.push_back(e.post(recv_of(i == 1 ? 0 : kAnySource, 4, &v[i], sizeof v[i])));
    EXPECT_THROW(e.source(t[0]), UsageError);
    e.run(send_of(0, 9, &go, sizeof go));
    for (int i = 0; i < 3; ++i) {
      e.wait(t[size_t(i)], soon());
      check<Error>(v[i] == i && e.source(t[size_t(i)]) == 0, "recv {} got {}", i, v[i]);
    }
  }));
}

TEST(comm_local_p2p, a_ring_of_four_exchanges_large_messages) {
  auto body = [](Engine& e) {
    Buffers memory(e, true);
    const size_t n = 300000;
    auto* out = static_cast<unsigned char*>(memory.take(pattern(n, uint64_t(e.rank()))));
    auto* in = static_cast<unsigned char*>(memory.take(Bytes(n)));
    for (int round = 0; round < 4; ++round) {
      const Ticket s = e.post(send_of((e.rank() + 1) % 4, round, out, n));
      const Ticket r = e.post(recv_of((e.rank() + 3) % 4, round, in, n));
      e.wait(r, soon());
      e.wait(s, soon());
      std::swap(in, out);
    }
    check<Error>(std::memcmp(out, pattern(n, uint64_t(e.rank())).data(), n) == 0,
                 "came home wrong");
  };
  expect_clean(as_threads(4, body));
  expect_clean(as_processes(4, body));
}

TEST(comm_local_p2p, more_small_messages_than_the_receiver_keeps_arrive_in_order) {
  auto body = [](Engine& e) {
    constexpr int kMessages = 9000;
    constexpr size_t kBytes = 700;
    if (e.rank() == 0) {
      std::vector<Bytes> out;
      std::vector<Ticket> tickets;
      for (int i = 0; i < kMessages; ++i) {
        out.emplace_back(kBytes, static_cast<unsigned char>(i));
        std::memcpy(out.back().data(), &i, sizeof i);
        tickets.push_back(e.post(send_of(1, 0, out.back().data(), kBytes)));
      }
      int last = 0;
      const Ticket end = e.post(send_of(1, 1, &last, sizeof last));
      for (auto& t : tickets) e.wait(t, soon());
      e.wait(end, soon());
      return;
    }
    int last = 1;
    e.run(recv_of(0, 1, &last, sizeof last));  // all the others came before it
    for (int i = 0; i < kMessages; ++i) {
      Bytes in(kBytes);
      e.run(recv_of(0, 0, in.data(), kBytes));
      int got = -1;
      std::memcpy(&got, in.data(), sizeof got);
      check<Error>(got == i && in[kBytes - 1] == static_cast<unsigned char>(i), "message {}: {}", i,
                   got);
    }
  };
  expect_clean(as_threads(2, body));
  expect_clean(as_processes(2, body));
}

// Rank 1 waits for rank 2, which waits for rank 0, which cannot go on before rank 1 has taken more
// than the channel holds.
TEST(comm_local_p2p, a_full_channel_is_emptied_by_a_rank_that_waits_for_somebody_else) {
  expect_clean(as_threads(3, [](Engine& e) {
    constexpr int kMessages = 1000;
    int v = 0;
    if (e.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) e.run(send_of(1, 0, &i, sizeof i));
      e.run(send_of(2, 0, &v, sizeof v));
    } else if (e.rank() == 2) {
      e.run(recv_of(0, 0, &v, sizeof v));
      e.run(send_of(1, 0, &v, sizeof v));
    } else {
      e.run(recv_of(2, 0, &v, sizeof v));
      for (int i = 0; i < kMessages; ++i) {
        e.run(recv_of(0, 0, &v, sizeof v));
        check<Error>(v == i, "{} instead of {}", v, i);
      }
    }
  }));
}

TEST(comm_local_p2p, a_sleeping_receiver_is_woken_by_each_way) {
  auto body = [](Engine& e) {
    for (size_t n : {size_t{8}, size_t{5000}, size_t{300000}})
      for (bool arena : {true, false}) {
        Buffers memory(e, arena);
        void* p = memory.take(Bytes(n));
        e.run({.op = Collective::barrier, .site = CallSite::here()});
        if (e.rank() == 1) {
          const Deadline deadline = soon();
          while (!e.host().control(0)->sleeping.load())
            check<Error>(!deadline.expired(), "rank 0 does not go to sleep");
          ::usleep(2000);
          const auto begin = Clock::now();
          e.run(send_of(0, 0, p, n));
          e.run(recv_of(0, 1, p, 1));
          check<Error>(seconds_since(begin) < 0.09, "woke it after {} s", seconds_since(begin));
        } else {
          e.run(recv_of(1, 0, p, n));
          e.run(send_of(1, 1, p, 1));
        }
      }
  };
  // A loaded machine can delay a wake-up; a lost one is late every time.
  auto settled = [&](auto start) {
    Outcomes o;
    for (int attempt = 0; attempt < 5; ++attempt) {
      o = start(2, body, std::chrono::seconds(30));
      if (std::all_of(o.begin(), o.end(), [](auto& s) { return s.empty(); })) break;
    }
    expect_clean(o);
  };
  settled(as_threads);
  settled(as_processes);
}

TEST(comm_local_p2p, eight_threads_exchange_with_all_others_in_one_batch) {
  expect_clean(as_threads(8, [](Engine& e) {
    for (size_t n : {size_t{16}, size_t{9000}, size_t{50000}}) {
      std::vector<Bytes> in(8, Bytes(n)), out;
      for (int q = 0; q < 8; ++q) out.push_back(pattern(n, uint64_t(e.rank() * 8 + q)));
      std::vector<Ticket> t;
      for (int q = 0; q < 8; ++q) {
        if (q == e.rank()) continue;
        t.push_back(e.post(recv_of(q, 0, in[size_t(q)].data(), n)));
        t.push_back(e.post(send_of(q, 0, out[size_t(q)].data(), n)));
      }
      for (auto& ticket : t) e.wait(ticket, soon());
      for (int q = 0; q < 8; ++q)
        check<Error>(q == e.rank() || in[size_t(q)] == pattern(n, uint64_t(q * 8 + e.rank())),
                     "from {}", q);
    }
  }));
}

}  // namespace p2p_test
