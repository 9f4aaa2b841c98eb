// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/step_writer.h"

// What the memory of a snapshot says of itself, so that another process can make files of it when
// its own has died. All numbers are little-endian:
//
//   head   page 0: "TRSNAPSH", u32 version, u32 mark (0 being made, 1 complete), then as u64: bytes
//          of it all; begin, bytes and XXH3 of the plan, and of the note; begin and number of the
//          checksums; begin and bytes of the data; XXH3 of these eleven numbers
//   plan   SnapshotPlan, as base/encoding.h has it: what this rank writes where
//   sums   u64 for each block of its writes, in their order: XXH3; 0: not known yet
//   data   the bytes of the writes
//   note   SnapshotNote: of which step and save
//
// The mark is set last. Whoever reads it trusts nothing.
namespace trireme {

inline constexpr uint32_t kSnapshotVersion = 2;

struct SnapshotPlan {
  std::vector<std::tuple<std::string, std::string>> files;  // name; head, if this rank writes it
  std::vector<std::array<int64_t, 4>> writes;  // file, byte in it, bytes, byte in the data
  std::string index;                           // rank 0's: index_text(), without checksums, values
  TRIREME_FIELDS(files, writes, index)
};

struct TRIREME_API SnapshotValue {
  std::optional<int64_t> i;
  std::optional<double> d;
  std::optional<std::string> s;
  TRIREME_FIELDS(i, d, s)

  static SnapshotValue from(const IndexValue& v);
  IndexValue value() const;  // Corrupt: of no type
};

struct SnapshotNote {
  std::string save;  // the step's temporary folder: the same for all ranks, and for no other save
  std::string run_dir;  // absolute
  int64_t step = 0, rank = 0, world = 1, keep = 1;
  bool partial = false;  // some of what this rank writes is not here but in files
  std::string layout;
  std::map<std::string, SnapshotValue> values;  // rank 0's
  /// rank 0's: what `latest` named when the snapshot was made; "": there was none. Version 1 does
  /// not say.
  std::optional<std::string> latest;
  /// The program, started again, takes the step from the launcher's memory. Version 1: false.
  bool resumes = false;
  TRIREME_FIELDS(save, run_dir, step, rank, world, keep, partial, layout, values, latest, resumes)
};

/// Where what lies in the memory. Data and plan begin with a page.
struct SnapshotLayout {
  uint64_t size = 0, plan_at = 0, plan_bytes = 0, plan_sum = 0, note_at = 0, note_bytes = 0,
           note_sum = 0, sums_at = 0, sums = 0, data_at = 0, data_bytes = 0;
};

/// The texts of a snapshot of these orders, and their place. The note may change from one snapshot
/// to the next without moving anything.
struct TRIREME_API SnapshotLabel {
  SnapshotLabel() = default;
  SnapshotLabel(const WriteOrders& orders, std::string index_text);

  void set_note(const SnapshotNote& note);
  const SnapshotLayout& layout() const { return layout_; }
  /// Into memory of layout().size bytes: all but the data. The checksums are not known, the mark is
  /// not set; `old_plan` is there already if it is this one.
  void put_into(uint8_t* memory, uint64_t old_plan) const;
  const std::vector<size_t>& offsets() const { return offsets_; }  // memory_layout() of the orders

 private:
  std::vector<size_t> offsets_;
  std::string plan_, note_;
  SnapshotLayout layout_;
};

/// The head without the mark.
TRIREME_API void put_layout(uint8_t* memory, const SnapshotLayout& layout);
TRIREME_API void mark_snapshot(uint8_t* memory, bool complete);
/// Takes the checksums of all blocks, in the order of the writes.
TRIREME_API void put_checksums(uint8_t* memory, const SnapshotLayout& layout,
                               const std::vector<uint64_t>& checksums);

struct ParsedSnapshot {
  SnapshotLayout layout;
  SnapshotPlan plan;
  SnapshotNote note;
};

/// Nothing: it was being made. Corrupt, saying what is wrong; UsageError for a newer version. Takes
/// some four times as much memory as the texts have bytes, of which there are at most 128 MiB. What
/// it returns holds together: every write lies in the data and has its checksums.
TRIREME_API std::optional<ParsedSnapshot> parse_snapshot(std::span<const uint8_t> memory);

}  // namespace trireme
