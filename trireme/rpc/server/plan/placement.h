// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"

// Which server has what. Workers and servers compute it, each for itself, from the same numbers.
namespace trireme::rpc::plan {

/// The server of each parameter, given their sizes in bytes in the order of their names: the
/// largest ones first, each to the server that has the fewest bytes. A parameter stays whole, so
/// that optimizers which look at a whole one (LARS, LAMB, Adafactor) do what they do elsewhere.
/// UsageError: no servers.
TRIREME_API std::vector<int> place(const std::vector<uint64_t>& bytes, int servers);

/// Where a parameter lies in the buffer of its dtype at its server, in elements; each begins at a
/// multiple of kAligned.
inline constexpr int64_t kAligned = 64;
struct Places {
  std::vector<int64_t> offsets;
  int64_t size = 0;
};
TRIREME_API Places places(const std::vector<int64_t>& numels);

/// Row i of a table is row i / servers at server i % servers: neighbours, which in many tables are
/// about equally popular, are at different servers.
inline int64_t rows_at(int64_t rows, int servers, int server) {
  return (rows - server + servers - 1) / servers;
}

/// Rows that some lookups touch, each once.
struct DistinctRows {
  std::vector<int64_t> rows;    // at their servers, ascending for each server
  std::vector<int64_t> begins;  // of each server's in `rows`, and the end
  std::vector<int64_t> place;   // of each lookup: which of `rows`
};
/// `ids`: rows of the whole table, each from 0 to rows - 1.
TRIREME_API DistinctRows distinct_rows(const int64_t* ids, int64_t n, int64_t rows, int servers);

}  // namespace trireme::rpc::plan
