// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/server/plan/recovery.h"

// What workers and servers of parameters say to each other: arguments and results of the calls in
// server/node.h. Whoever takes them apart checks them, since anybody in the job may have sent them.
namespace trireme::rpc::server {

/// A parameter, as a worker describes it. Keys of a server are in the order of their names.
struct Key {
  std::string name;
  int32_t dtype = 0;  // at::ScalarType's number
  std::vector<int64_t> sizes;
  bool trained = true;  // false: it keeps the value that it began with
  bool operator==(const Key&) const = default;
  TRIREME_FIELDS(name, dtype, sizes, trained)
};

/// A table, of which this server has the rows r with r % servers == server.
struct TableKey {
  std::string name;
  int64_t rows = 0, width = 0;
  int32_t dtype = 0;
  double init_std = 0;
  uint64_t seed = 0;
  bool operator==(const TableKey&) const = default;
  TRIREME_FIELDS(name, rows, width, dtype, init_std, seed)
};

struct Join {
  int32_t rank = 0, server = 0, servers = 0;
  std::vector<Key> keys;
  std::vector<TableKey> tables;
  std::vector<at::Tensor> values;  // of the keys, from rank 0; from others: none
  TRIREME_FIELDS(rank, server, servers, keys, tables, values)
};
struct Joined {
  plan::Standing standing;
  bool synchronous = true;
  int64_t clock = 0;  // the step that this server expects of the worker, where it takes them alone
  TRIREME_FIELDS(standing, synchronous, clock)
};

/// A worker that is here for as long as this call waits.
struct Attend {
  int32_t rank = 0;
  int64_t clock = -1;  // its next step; -1: the one that the server expects
  TRIREME_FIELDS(rank, clock)
};

struct Ask {
  int32_t rank = 0;
  uint64_t epoch = 0;  // the one that the worker knows
  std::vector<std::string> servers;
  std::vector<plan::Standing> standings;
  TRIREME_FIELDS(rank, epoch, servers, standings)
};
struct Begin {
  int32_t rank = 0;
  plan::Decision decision;
  TRIREME_FIELDS(rank, decision)
};

/// Whether what was asked for has been done.
enum class Answer : uint8_t {
  done,
  over  // the epoch is over: servers have gone back, or are about to
};

/// Gradients of one step of one worker, or some of them.
struct Push {
  int32_t rank = 0;
  uint64_t epoch = 0;
  int64_t step = 0;
  int64_t attempt = 0;  // gradients of an earlier one are dropped
  double lr = 0;
  int64_t total = -1;  // gradients of keys in all messages of the attempt; -1: more will come
  std::vector<uint32_t> keys = {};
  std::vector<at::Tensor> gradients = {};
  std::vector<uint32_t> tables = {};           // with the last message only
  std::vector<at::Tensor> rows = {};           // at this server, ascending, each once
  std::vector<at::Tensor> row_gradients = {};  // [n, width]
  TRIREME_FIELDS(rank, epoch, step, attempt, lr, total, keys, gradients, tables, rows,
                 row_gradients)
};

/// What a worker wants that is about to make a step: it waits until it may.
struct Wanted {
  int32_t rank = 0;
  uint64_t epoch = 0;
  int64_t step = 0;
  TRIREME_FIELDS(rank, epoch, step)
};
struct Weights {
  Answer answer = Answer::done;
  std::vector<at::Tensor> buffers;  // one for each dtype, in the order of their numbers
  TRIREME_FIELDS(answer, buffers)
};
struct Lookup {
  Wanted wanted;
  uint32_t table = 0;
  at::Tensor rows;  // at this server
  TRIREME_FIELDS(wanted, table, rows)
};
struct Rows {
  Answer answer = Answer::done;
  at::Tensor rows;
  TRIREME_FIELDS(answer, rows)
};

}  // namespace trireme::rpc::server
