// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/comm/local/oracle.h"
#include "tests/support/ranks.h"

namespace engine_test {

using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

void expect_clean(const Outcomes& outcomes) {
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r], "") << "rank " << r;
}

// Where buffers lie: in the arena, in ordinary memory, or now here and now there on each rank.
enum class In { arena, ordinary, mixed };
class Memory {
 public:
  Memory(Engine& e, In in, uint64_t seed)
      : arena_(e, true), ordinary_(e, false), in_(in), seed_(seed * 64 + uint64_t(e.rank())) {}
  void* take(const std::vector<unsigned char>& bytes) {
    const bool arena = in_ == In::arena || (in_ == In::mixed && mix64(seed_++) % 2 == 0);
    return (arena ? arena_ : ordinary_).take(bytes);
  }

 private:
  Buffers arena_, ordinary_;
  In in_;
  uint64_t seed_;
};

std::vector<unsigned char> joined(const std::vector<std::vector<unsigned char>>& parts) {
  std::vector<unsigned char> all;
  for (auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void expect(Engine& e, const void* got, const std::vector<unsigned char>& want, const Call& c) {
  check<Error>(want.empty() || std::memcmp(got, want.data(), want.size()) == 0,
               "{} of {}[{}] {} root {} differs from the oracle on rank {}", name_of(c.op),
               name_of(c.dtype), c.count, name_of(c.red), c.root, e.rank());
}

// Every collective with this count, dtype and reduction against the serial oracle, bit for bit.
void one_round(Engine& e, DType t, ReduceOp op, size_t count, In where, uint64_t seed) {
  const auto n = static_cast<size_t>(e.size()), me = static_cast<size_t>(e.rank());
  const size_t item = size_of(t), bytes = count * item;
  Memory mine(e, where, seed);
  auto all_inputs = [&](size_t elements, uint64_t salt) {
    std::vector<std::vector<unsigned char>> in;
    for (size_t q = 0; q < n; ++q)
      in.push_back(random_values(t, elements, seed ^ salt ^ (q << 32), op));
    return in;
  };
  auto part_of = [&](const std::vector<unsigned char>& whole, size_t rank) {
    const auto from = whole.begin() + static_cast<long>(rank * bytes);
    return std::vector<unsigned char>(from, from + static_cast<long>(bytes));
  };
  auto run = [&](Collective kind, int root, void* in, void* out,
                 const std::vector<unsigned char>& want) {
    const Call c{.op = kind,
                 .dtype = t,
                 .red = op,
                 .root = root,
                 .in = in,
                 .out = out,
                 .count = count,
                 .site = CallSite::here()};
    e.run(c);
    expect(e, out, want, c);
  };
  const std::vector<unsigned char> nothing, one(bytes), whole(n * bytes);
  {
    auto in = all_inputs(count, 1);
    void* buffer = mine.take(in[me]);
    run(Collective::all_reduce, 0, buffer, buffer, oracle_reduce(t, op, in));
  }
  for (int root : {0, e.size() - 1}) {
    const bool is_root = e.rank() == root;
    auto in = all_inputs(count, 2);
    void* buffer = mine.take(in[me]);
    run(Collective::broadcast, root, buffer, buffer, in[size_t(root)]);
    auto in2 = all_inputs(count, 3);
    void* buffer2 = mine.take(in2[me]);
    run(Collective::reduce, root, buffer2, buffer2, is_root ? oracle_reduce(t, op, in2) : in2[me]);
    auto in3 = all_inputs(count, 6);
    void* out3 = is_root ? mine.take(whole) : nullptr;
    run(Collective::gather, root, mine.take(in3[me]), out3, is_root ? joined(in3) : nothing);
    auto in4 = all_inputs(count * n, 7);
    run(Collective::scatter, root, is_root ? mine.take(in4[me]) : nullptr, mine.take(one),
        part_of(in4[size_t(root)], me));
  }
  {
    auto in = all_inputs(count, 4);
    run(Collective::all_gather, 0, mine.take(in[me]), mine.take(whole), joined(in));
  }
  {
    auto in = all_inputs(count * n, 5);
    run(Collective::reduce_scatter, 0, mine.take(in[me]), mine.take(one),
        part_of(oracle_reduce(t, op, in), me));
  }
}

// all_to_all with counts[p][q] elements from p to q.
void exchange_round(Engine& e, DType t, const std::vector<std::vector<uint64_t>>& counts, In where,
                    uint64_t seed) {
  const auto n = static_cast<size_t>(e.size()), me = static_cast<size_t>(e.rank());
  Memory mine(e, where, seed);
  auto data = [&](size_t from, size_t to) {
    return random_values(t, counts[from][to], seed + from * 100 + to);
  };
  std::vector<std::vector<unsigned char>> in, want;
  std::vector<uint64_t> sent, received;
  for (size_t q = 0; q < n; ++q) {
    in.push_back(data(me, q)), sent.push_back(counts[me][q]);
    want.push_back(data(q, me)), received.push_back(counts[q][me]);
  }
  const Call c{.op = Collective::all_to_all,
               .dtype = t,
               .in = mine.take(joined(in)),
               .out = mine.take(std::vector<unsigned char>(joined(want).size())),
               .site = CallSite::here(),
               .send_counts = sent.data(),
               .recv_counts = received.data()};
  const Ticket ticket = e.post(c);
  sent.assign(n, 77), received.assign(n, 78);  // they were copied
  e.wait(ticket, Deadline::after(std::chrono::seconds(30)));
  expect(e, c.out, joined(want), c);
}

void exchange_rounds(Engine& e, In where, uint64_t seed) {
  const auto n = static_cast<size_t>(e.size());
  auto matrix = [&](auto count) {
    std::vector<std::vector<uint64_t>> m(n, std::vector<uint64_t>(n));
    for (size_t p = 0; p < n; ++p)
      for (size_t q = 0; q < n; ++q) m[p][q] = count(p, q);
    return m;
  };
  auto dice = [&](size_t p, size_t q) { return mix64(seed * 1000 + p * 64 + q); };
  // Even: nothing, inline, small, direct, several segments.
  for (uint64_t each : {0, 1, 100, 3000, 70001})
    exchange_round(e, DType::f32, matrix([&](size_t, size_t) { return each; }), where, seed++);
  // Uneven: small with holes; some ranks small and some large; whole rows and columns of nothing;
  // one pair alone; all to one.
  exchange_round(e, DType::c128, matrix([&](size_t p, size_t q) { return dice(p, q) % 5; }), where,
                 seed++);
  exchange_round(e, DType::bf16, matrix([&](size_t p, size_t q) {
                   return p % 2 ? dice(p, q) % 9 : dice(p, q) % 40000;
                 }),
                 where, seed++);
  exchange_round(e, DType::i64, matrix([&](size_t p, size_t q) {
                   return p == 0 || q + 1 == n ? 0 : dice(p, q) % 9000;
                 }),
                 where, seed++);
  exchange_round(e, DType::u8, matrix([&](size_t p, size_t q) {
                   return p == n - 1 && q == 0 ? uint64_t{600001} : 0;
                 }),
                 where, seed++);
  exchange_round(e, DType::f64, matrix([&](size_t p, size_t q) {
                   return q == n / 2 ? dice(p, q) % 40000 : dice(p, q) % 3;
                 }),
                 where, seed++);
}

// Every dtype with a sum and, in turn, every other reduction.
void all_rounds(Engine& e, In where, uint64_t seed = 7) {
  size_t turn = seed;
  for (DType t : kEveryType)
    for (int again = 0; again < 2; ++again) {
      ReduceOp op = ReduceOp::sum;
      while (again && (op == ReduceOp::sum || !defined_for(t, op)))
        op = kEveryOp[turn++ % std::size(kEveryOp)];
      // Empty, one line, inline, small, just above small, several segments with a ragged end.
      for (size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}, size_t{8193}})
        one_round(e, t, op, count, where, seed++);
    }
  for (DType t : {DType::f32, DType::bf16, DType::u8, DType::c128})
    one_round(e, t, ReduceOp::sum, 400000 / size_of(t) + 7, where, seed++);
  exchange_rounds(e, where, seed);
}

}  // namespace

TEST(comm_local_engine, two_threads_equal_the_oracle) {
  expect_clean(as_threads(2, [](Engine& e) { all_rounds(e, In::arena); }));
}
TEST(comm_local_engine, three_threads_equal_the_oracle) {
  expect_clean(as_threads(3, [](Engine& e) { all_rounds(e, In::ordinary, 8); }));
}
TEST(comm_local_engine, four_to_eight_threads_on_fewer_cores_equal_the_oracle) {
  for (int n : {4, 5, 8})
    expect_clean(as_threads(n, [n](Engine& e) {
      const auto seed = static_cast<uint64_t>(n);
      for (size_t i = 0; i < 3; ++i)
        one_round(e, kEveryType[(seed * 3 + i) % 11], ReduceOp::sum, 8193, In::arena, seed + i);
      one_round(e, DType::f32, ReduceOp::avg, 20001, In::arena, seed);
      exchange_rounds(e, In::ordinary, seed);
    }));
}
TEST(comm_local_engine, ten_threads_take_the_path_of_many_sources) {
  expect_clean(as_threads(10, [](Engine& e) {
    one_round(e, DType::bf16, ReduceOp::avg, 5000, In::arena, 3);
    one_round(e, DType::c64, ReduceOp::product, 5000, In::arena, 4);
  }));
}
TEST(comm_local_engine, one_rank_alone_is_the_identity) {
  expect_clean(as_threads(1, [](Engine& e) { all_rounds(e, In::arena, 9); }));
  expect_clean(as_processes(1, [](Engine& e) { exchange_rounds(e, In::ordinary, 9); }));
}
TEST(comm_local_engine, two_processes_in_the_arena_equal_the_oracle) {
  expect_clean(as_processes(2, [](Engine& e) { all_rounds(e, In::arena, 10); }));
}
TEST(comm_local_engine, two_processes_with_ordinary_memory_equal_the_oracle) {
  expect_clean(as_processes(2, [](Engine& e) { all_rounds(e, In::ordinary, 11); }));
}
TEST(comm_local_engine, processes_whose_buffers_lie_here_and_there_equal_the_oracle) {
  for (int n : {2, 3})
    expect_clean(as_processes(n, [](Engine& e) {
      for (uint64_t seed = 0; seed < 12; ++seed) {
        one_round(e, kEveryType[seed % 11], ReduceOp::sum, 9001 + 777 * seed, In::mixed, seed);
        if (seed % 4 == 0) exchange_rounds(e, In::mixed, seed);
      }
    }));
}
TEST(comm_local_engine, five_to_eight_processes_equal_the_oracle) {
  for (int n : {5, 6, 8})
    expect_clean(as_processes(n, [n](Engine& e) {
      const auto seed = static_cast<uint64_t>(n);
      for (In where : {In::arena, In::ordinary})
        one_round(e, kEveryType[seed % 11], ReduceOp::sum, 30001, where, seed);
      exchange_rounds(e, n % 2 ? In::ordinary : In::mixed, seed);
    }));
}

TEST(comm_local_engine, more_posted_than_slots_completes_in_order) {
  expect_clean(as_threads(2, [](Engine& e) {
    std::vector<std::vector<float>> buffers(100, std::vector<float>(5000));
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < buffers.size(); ++i) {
      std::fill(buffers[i].begin(), buffers[i].end(), float(i + 1) * float(e.rank() + 1));
      tickets.push_back(e.post({.op = Collective::all_reduce,
                                .dtype = DType::f32,
                                .in = buffers[i].data(),
                                .out = buffers[i].data(),
                                .count = 5000,
                                .site = CallSite::here()}));
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
      e.wait(tickets[i], Deadline::after(std::chrono::seconds(20)));
      check<Error>(buffers[i][4999] == 3.0f * float(i + 1), "call {} holds {}", i,
                   buffers[i][4999]);
    }
  }));
}

TEST(comm_local_engine, barrier_lets_nobody_through_early) {
  std::atomic<int> arrived{0};
  expect_clean(as_threads(4, [&](Engine& e) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      e.run({.op = Collective::barrier, .site = CallSite::here()});
      check<Error>(arrived.load() >= 4 * round, "through with {} of {}", arrived.load(), 4 * round);
    }
  }));
}

TEST(comm_local_engine, send_recv_keeps_order_and_bytes_larger_than_the_ring) {
  auto body = [](Engine& e) {
    for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{500000}}) {
      auto give = random_values(DType::f32, count, 5 + uint64_t(e.rank())),
           want = random_values(DType::f32, count, 5 + uint64_t(1 - e.rank()));
      std::vector<unsigned char> got(count * 4);
      // Both send first: crossing streams must not deadlock.
      auto s = e.post({.op = Collective::send,
                       .dtype = DType::f32,
                       .root = 1 - e.rank(),
                       .in = give.data(),
                       .count = count,
                       .site = CallSite::here()});
      auto r = e.post({.op = Collective::recv,
                       .dtype = DType::f32,
                       .root = 1 - e.rank(),
                       .out = got.data(),
                       .count = count,
                       .site = CallSite::here()});
      e.wait(s, Deadline::after(std::chrono::seconds(20)));
      e.wait(r, Deadline::after(std::chrono::seconds(20)));
      check<Error>(got == want, "wrong bytes for count {}", count);
    }
  };
  expect_clean(as_threads(2, body));
}

TEST(comm_local_engine, send_recv_between_processes) {
  expect_clean(as_processes(3, [](Engine& e) {
    // A ring: each to the right, three times round.
    std::vector<int> token(40000, e.rank());
    std::vector<int> in(40000);
    const int right = (e.rank() + 1) % 3, left = (e.rank() + 2) % 3;
    for (int i = 0; i < 3; ++i) {
      auto s = e.post({.op = Collective::send,
                       .dtype = DType::i32,
                       .root = right,
                       .tag = i,
                       .in = token.data(),
                       .count = token.size(),
                       .site = CallSite::here()});
      auto r = e.post({.op = Collective::recv,
                       .dtype = DType::i32,
                       .root = left,
                       .tag = i,
                       .out = in.data(),
                       .count = in.size(),
                       .site = CallSite::here()});
      e.wait(r, Deadline::after(std::chrono::seconds(20)));
      e.wait(s, Deadline::after(std::chrono::seconds(20)));
      token = in;
    }
    check<Error>(token[39999] == e.rank(), "token of rank {} came home to {}", token[39999],
                 e.rank());
  }));
}

TEST(comm_local_engine, average_of_integers_is_refused_and_the_group_lives) {
  expect_clean(as_threads(2, [](Engine& e) {
    int v = 3;
    try {
      e.run({.op = Collective::all_reduce,
             .dtype = DType::i32,
             .red = ReduceOp::avg,
             .in = &v,
             .out = &v,
             .count = 1,
             .site = CallSite::here()});
      throw Error("not refused");
    } catch (const UsageError& error) {
      check<Error>(std::string(error.what()).find("avg of int32") != std::string::npos, "{}",
                   error.what());
    }
    e.run({.op = Collective::all_reduce,
           .dtype = DType::i32,
           .in = &v,
           .out = &v,
           .count = 1,
           .site = CallSite::here()});
    check<Error>(v == 6, "{}", v);
  }));
}

TEST(comm_local_engine, all_reduce_reads_only_its_chunk_of_each_peer) {
  expect_clean(as_threads(4, [](Engine& e) {
    std::vector<float> v(1 << 20, 1.0f);
    e.run({.op = Collective::all_reduce,
           .dtype = DType::f32,
           .in = v.data(),
           .out = v.data(),
           .count = v.size(),
           .site = CallSite::here()});
    check<Error>(e.bytes_read() == v.size() * 4 / 4 * 3, "{} bytes", e.bytes_read());
  }));
}

}  // namespace engine_test
