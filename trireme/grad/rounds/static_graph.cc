// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/static_graph.h"

#include "trireme/base/check.h"

namespace trireme {

StaticGraph::StaticGraph(Reducer& reducer)
    : RoundDecorator(reducer), differs_(reducer.record().add([this] {
        // The parameter's number + 1: every rank has the same names.
        return static_cast<double>(changed() < size() ? changed() + 1 : 0);
      })) {
  inner_.expect(std::vector<int>(size(), Reducer::kAtClose));
}

// The record goes out as soon as all counts are reached, so what comes after it would be missed;
// an excess is an error of the reducer's, at once.
size_t StaticGraph::changed() const {
  if (!learnt_) return size();
  for (size_t i = 0; i < size(); ++i)
    if (got_[i] != counts_[i]) return i;
  return size();
}

void StaticGraph::open() {
  got_.assign(size(), 0);
  inner_.open();
}

void StaticGraph::ready(size_t i) {
  ++got_[i];
  inner_.ready(i);
}

void StaticGraph::close() {
  inner_.close();
  if (learnt_) return;
  learnt_ = true;
  counts_ = got_;
  inner_.expect(counts_);
}

void StaticGraph::check(const std::vector<bool>& has_batch) {
  const auto all = inner_.record().of(differs_);
  size_t rank = 0;
  while (rank < all.size() && (all[rank] == 0 || !has_batch[rank])) ++rank;
  if (rank == all.size()) return;
  const auto i = static_cast<size_t>(all[rank]) - 1;
  throw Mismatch(
      fmt::format("static_graph: on rank {} parameter '{}' did not get as many gradients in this "
                  "round as in the first one. Build DistributedDataParallel without static_graph",
                  rank, name(i)),
      {static_cast<int>(rank), -1, "backward", inner_.stats().rounds});
}

}  // namespace trireme
