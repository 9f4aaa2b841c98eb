// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/local_link.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/comm/local/engine.h"

namespace trireme::doctor {
namespace {

constexpr int kCalls = 500, kEchoes = 500, kLarge = 5;
constexpr size_t kLargeBytes = size_t{4} << 20;

/// The best of five tries, per call.
template <class Body>
double best_of(int calls, const Body& body) {
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    best = std::min(best, seconds_since(begin) / calls);
  }
  return best;
}

local::Call call_of(Collective op, void* data, size_t bytes, int peer = 0) {
  local::Call call;
  call.op = op;
  call.dtype = local::DType::u8;
  call.root = peer;
  call.in = call.out = data;
  call.count = bytes;
  call.site = CallSite::here();
  return call;
}

/// One way; on the asking side.
double ping(local::Engine& engine, int peer, void* data, size_t bytes, int calls, bool asks) {
  const auto send = call_of(Collective::send, data, bytes, peer),
             recv = call_of(Collective::recv, data, bytes, peer);
  return best_of(calls,
                 [&] {
                   engine.run(asks ? send : recv);
                   engine.run(asks ? recv : send);
                 }) /
         2;
}

}  // namespace

LocalFigures measure_local(Store& store, const std::string& prefix, int rank, int size,
                           Duration timeout) {
  LocalFigures figures;
  try {
    const local::Exchange exchange{
        [&](const std::string& key, const std::string& value) { store.set(prefix + key, value); },
        [&](const std::string& key, Deadline deadline) {
          return store.get(prefix + key, deadline);
        },
        [&](const std::string& key) { return store.try_get(prefix + key); }};
    local::Engine engine(local::process_host(rank, size, exchange, Deadline::after(timeout)),
                         timeout);
    void* data = engine.host().allocate(kLargeBytes);
    std::memset(data, 1, kLargeBytes);
    const auto barrier = call_of(Collective::barrier, nullptr, 0);
    const auto all_reduce = call_of(Collective::all_reduce, data, 8);
    figures.barrier = best_of(kCalls, [&] { engine.run(barrier); });
    figures.all_reduce = best_of(kCalls, [&] { engine.run(all_reduce); });
    for (int peer = 1; peer < size; ++peer) {
      engine.run(barrier);
      if (rank != 0 && rank != peer) continue;
      const int other = rank == 0 ? peer : 0;
      const double small = ping(engine, other, data, 8, kEchoes, rank == 0),
                   large = ping(engine, other, data, kLargeBytes, kLarge, rank == 0);
      figures.links.push_back(link_model(small, large, static_cast<double>(kLargeBytes)));
    }
    engine.run(barrier);
    engine.host().deallocate(data);
    engine.leave();
  } catch (const Error& e) {
    figures.error = e.what();
  }
  return figures;
}

}  // namespace trireme::doctor
