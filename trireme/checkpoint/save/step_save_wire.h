// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/step_files.h"

// Inside checkpoint: what ranks and rank 0 send each other before a save.
namespace trireme::step_save {

// IndexValue for the wire.
struct WireValue {
  std::optional<int64_t> i;
  std::optional<double> d;
  std::optional<std::string> s;
  TRIREME_FIELDS(i, d, s)

  static WireValue from(const IndexValue& v) {
    if (const auto* i = std::get_if<int64_t>(&v)) return {*i, {}, {}};
    if (const auto* d = std::get_if<double>(&v)) return {{}, *d, {}};
    return {{}, {}, std::get<std::string>(v)};
  }
  IndexValue value() const {
    if (i) return *i;
    if (d) return *d;
    check<Corrupt>(s.has_value(), "checkpoint: a rank sent a value of no type");
    return *s;
  }
};

struct WireTensor {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets, lengths, flat;  // flat: {} or {begin, count}
  TRIREME_FIELDS(name, dtype, shape, offsets, lengths, flat)

  static WireTensor from(const HeldTensor& t) {
    WireTensor w{t.slice.name, t.dtype, t.slice.global_shape, t.slice.offsets, t.slice.lengths, {}};
    if (t.slice.flat) w.flat = {t.slice.flat->begin, t.slice.flat->count};
    return w;
  }
  HeldTensor held() const {
    HeldTensor t{{name, shape, offsets, lengths}, dtype};
    if (flat.size() == 2) t.slice.flat = FlatRange{flat[0], flat[1]};
    return t;
  }
};

// Rank → rank 0: what it holds.
struct Holding {
  RankFailure failure;
  std::string host, layout;
  int64_t step = 0, keep = 0;
  bool as_before = false;  // its tensors are those of its last save, and are not here
  std::vector<WireTensor> tensors;
  std::map<std::string, WireValue> values;
  TRIREME_FIELDS(failure, host, layout, step, keep, as_before, tensors, values)

  void take_values(const HeldState& held) {
    for (const auto& [name, v] : held.values) values[name] = WireValue::from(v);
  }
  /// Into what rank 0 knows of the rank.
  void put_into(HeldState& held) const {
    if (!as_before) {
      held.tensors.clear();
      for (const auto& t : tensors) held.tensors.push_back(t.held());
    }
    held.values.clear();
    for (const auto& [name, v] : values) held.values[name] = v.value();
  }
};

// Rank 0 → all: a folder that rank 0, there, has made in the run folder.
struct Begun {
  RankFailure failure;
  std::string temporary, host;
  TRIREME_FIELDS(failure, temporary, host)
};

// Rank → rank 0.
struct Seen {
  bool sees = false;
  std::string path;  // where it looked
  TRIREME_FIELDS(sees, path)
};

// Rank 0 → rank: what it writes where.
struct Orders {
  RankFailure failure;
  bool as_before = false;  // what it wrote in its last save, and that is not here
  std::vector<std::tuple<std::string, std::string>> files;  // name, head
  std::vector<std::array<int64_t, 5>> writes;
  TRIREME_FIELDS(failure, as_before, files, writes)

  void take(const WriteOrders& o) {
    for (const PlannedFile& f : o.files) files.emplace_back(f.name, f.head);
    for (const PlannedWrite& w : o.writes)
      writes.push_back(
          {static_cast<int64_t>(w.tensor), w.from, static_cast<int64_t>(w.file), w.at, w.bytes});
  }
  WriteOrders orders(const Collector& state) const {
    WriteOrders o;
    for (const auto& [name, head] : files) o.files.push_back({name, head, 0, 0});
    for (const auto& [tensor, from, file, at, bytes] : writes) {
      check<Corrupt>(tensor >= 0 && file >= 0 && from >= 0 && at >= 0 && bytes >= 0 &&
                         static_cast<size_t>(tensor) < state.tensors.size() &&
                         static_cast<size_t>(file) < files.size() &&
                         static_cast<uint64_t>(from) + static_cast<uint64_t>(bytes) <=
                             state.tensors[static_cast<size_t>(tensor)].nbytes(),
                     "checkpoint: rank 0 sent orders that do not fit the tensors of this rank");
      o.writes.push_back({static_cast<size_t>(tensor), from, static_cast<size_t>(file), at, bytes});
    }
    return o;
  }
};

}  // namespace trireme::step_save
