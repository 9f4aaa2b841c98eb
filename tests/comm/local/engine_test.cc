// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/comm/local/oracle.h"
#include "tests/support/ranks.h"

using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16,
                            DType::i64, DType::i32, DType::u8};
constexpr RedOp kOps[] = {RedOp::sum, RedOp::avg, RedOp::min, RedOp::max};

void expect_clean(const Outcomes& outcomes) {
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r], "") << "rank " << r;
}

// Every collective with this count, dtype and reduction against the serial oracle, bit for bit.
// `arena`: buffers from the host.
void one_round(Engine& e, DType t, RedOp op, size_t count, bool arena, uint64_t seed) {
  const auto n = static_cast<size_t>(e.size());
  const size_t item = size_of(t);
  Buffers mine(e, arena);
  auto input = [&](int rank, size_t elements, uint64_t salt) {
    return random_values(t, elements, seed ^ salt ^ (uint64_t(rank) << 32));
  };
  auto expect = [&](const void* got, const std::vector<unsigned char>& want, const char* what) {
    check<Error>(want.empty() || std::memcmp(got, want.data(), want.size()) == 0,
                 "{} of {}[{}] {} differs from the oracle on rank {}", what, name_of(t), count,
                 name_of(op), e.rank());
  };
  auto all_inputs = [&](size_t elements, uint64_t salt) {
    std::vector<std::vector<unsigned char>> in;
    for (int q = 0; q < e.size(); ++q) in.push_back(input(q, elements, salt));
    return in;
  };
  {
    auto in = all_inputs(count, 1);
    void* buffer = mine.take(in[size_t(e.rank())]);
    e.run({.op = OpKind::all_reduce,
           .dtype = t,
           .red = op,
           .in = buffer,
           .out = buffer,
           .count = count,
           .site = CallSite::here()});
    expect(buffer, oracle_reduce(t, op, in), "all_reduce");
  }
  for (int root : {0, e.size() - 1}) {
    auto in = all_inputs(count, 2);
    void* buffer = mine.take(in[size_t(e.rank())]);
    e.run({.op = OpKind::broadcast,
           .dtype = t,
           .root = root,
           .in = buffer,
           .out = buffer,
           .count = count,
           .site = CallSite::here()});
    expect(buffer, in[size_t(root)], "broadcast");
    auto in2 = all_inputs(count, 3);
    void* buffer2 = mine.take(in2[size_t(e.rank())]);
    e.run({.op = OpKind::reduce,
           .dtype = t,
           .red = op,
           .root = root,
           .in = buffer2,
           .out = buffer2,
           .count = count,
           .site = CallSite::here()});
    expect(buffer2, e.rank() == root ? oracle_reduce(t, op, in2) : in2[size_t(e.rank())], "reduce");
  }
  {
    auto in = all_inputs(count, 4);
    void* buffer = mine.take(in[size_t(e.rank())]);
    void* out = mine.take(std::vector<unsigned char>(n * count * item));
    e.run({.op = OpKind::all_gather,
           .dtype = t,
           .in = buffer,
           .out = out,
           .count = count,
           .site = CallSite::here()});
    std::vector<unsigned char> want;
    for (auto& part : in) want.insert(want.end(), part.begin(), part.end());
    expect(out, want, "all_gather");
  }
  {
    auto in = all_inputs(count * n, 5);
    void* buffer = mine.take(in[size_t(e.rank())]);
    void* out = mine.take(std::vector<unsigned char>(count * item));
    e.run({.op = OpKind::reduce_scatter,
           .dtype = t,
           .red = op,
           .in = buffer,
           .out = out,
           .count = count,
           .site = CallSite::here()});
    auto whole = oracle_reduce(t, op, in);
    auto from = whole.begin() + static_cast<long>(size_t(e.rank()) * count * item);
    expect(out, {from, from + static_cast<long>(count * item)}, "reduce_scatter");
  }
}

void all_rounds(Engine& e, bool arena) {
  uint64_t seed = 7;
  for (DType t : kTypes)
    for (RedOp op : kOps) {
      if (op == RedOp::avg && is_integer(t)) continue;
      // Empty, one line, inline, small, just above small, several segments with a ragged end.
      for (size_t count :
           {size_t{0}, size_t{1}, size_t{5}, size_t{1000}, size_t{8193}, size_t{70001}})
        one_round(e, t, op, count, arena, seed++);
    }
  for (size_t count : {size_t{200003}, size_t{1000000}})
    one_round(e, DType::f32, RedOp::sum, count, arena, seed++);
}

}  // namespace

TEST(comm_local_engine, two_threads_equal_the_oracle) {
  expect_clean(as_threads(2, [](Engine& e) { all_rounds(e, true); }));
}
TEST(comm_local_engine, three_threads_equal_the_oracle) {
  expect_clean(as_threads(3, [](Engine& e) { all_rounds(e, false); }));
}
TEST(comm_local_engine, eight_threads_on_fewer_cores_equal_the_oracle) {
  expect_clean(as_threads(8, [](Engine& e) {
    for (DType t : kTypes) one_round(e, t, RedOp::sum, 8193, true, 3);
    one_round(e, DType::f32, RedOp::avg, 100001, true, 4);
  }));
}
TEST(comm_local_engine, ten_threads_take_the_path_of_many_sources) {
  expect_clean(as_threads(10, [](Engine& e) {
    one_round(e, DType::bf16, RedOp::avg, 5000, true, 3);
    one_round(e, DType::f32, RedOp::sum, 5000, true, 4);
  }));
}
TEST(comm_local_engine, one_rank_alone_is_the_identity) {
  expect_clean(as_threads(1, [](Engine& e) { all_rounds(e, true); }));
}
TEST(comm_local_engine, two_processes_in_the_arena_equal_the_oracle) {
  expect_clean(as_processes(2, [](Engine& e) { all_rounds(e, true); }));
}
TEST(comm_local_engine, two_processes_with_ordinary_memory_equal_the_oracle) {
  expect_clean(as_processes(2, [](Engine& e) { all_rounds(e, false); }));
}
TEST(comm_local_engine, five_processes_equal_the_oracle) {
  expect_clean(as_processes(5, [](Engine& e) {
    for (bool arena : {true, false})
      for (DType t : {DType::f32, DType::f16, DType::i64})
        one_round(e, t, RedOp::sum, 70001, arena, 11);
  }));
}

TEST(comm_local_engine, more_posted_than_slots_completes_in_order) {
  expect_clean(as_threads(2, [](Engine& e) {
    std::vector<std::vector<float>> buffers(100, std::vector<float>(5000));
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < buffers.size(); ++i) {
      std::fill(buffers[i].begin(), buffers[i].end(), float(i + 1) * float(e.rank() + 1));
      tickets.push_back(e.post({.op = OpKind::all_reduce,
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
      e.run({.op = OpKind::barrier, .site = CallSite::here()});
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
      auto s = e.post({.op = OpKind::send,
                       .dtype = DType::f32,
                       .root = 1 - e.rank(),
                       .in = give.data(),
                       .count = count,
                       .site = CallSite::here()});
      auto r = e.post({.op = OpKind::recv,
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
      auto s = e.post({.op = OpKind::send,
                       .dtype = DType::i32,
                       .root = right,
                       .tag = i,
                       .in = token.data(),
                       .count = token.size(),
                       .site = CallSite::here()});
      auto r = e.post({.op = OpKind::recv,
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
      e.run({.op = OpKind::all_reduce,
             .dtype = DType::i32,
             .red = RedOp::avg,
             .in = &v,
             .out = &v,
             .count = 1,
             .site = CallSite::here()});
      throw Error("not refused");
    } catch (const UsageError& error) {
      check<Error>(std::string(error.what()).find("avg of int32") != std::string::npos, "{}",
                   error.what());
    }
    e.run({.op = OpKind::all_reduce,
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
    e.run({.op = OpKind::all_reduce,
           .dtype = DType::f32,
           .in = v.data(),
           .out = v.data(),
           .count = v.size(),
           .site = CallSite::here()});
    check<Error>(e.bytes_read() == v.size() * 4 / 4 * 3, "{} bytes", e.bytes_read());
  }));
}
