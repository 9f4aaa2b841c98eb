// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/snapshot_format.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme {
namespace {

constexpr char kSnapshotMagic[] = "TRSNAPSH";
constexpr uint64_t kMagicBytes = 8, kSnapshotPage = OutputFile::kPage;
constexpr uint64_t kVersionAt = 8, kMarkAt = 12, kNumbersAt = 16, kNumbers = 11;
constexpr uint64_t kHeadSumAt = kNumbersAt + 8 * kNumbers;
constexpr uint64_t kMostText = uint64_t{128} << 20;
constexpr uint64_t kNoteRoom = uint64_t{16} << 10;  // a longer note seldom moves the end

/// As version 1 has it.
struct NoteOfVersion1 {
  std::string save, run_dir;
  int64_t step = 0, rank = 0, world = 1, keep = 1;
  bool partial = false;
  std::string layout;
  std::map<std::string, SnapshotValue> values;
  TRIREME_FIELDS(save, run_dir, step, rank, world, keep, partial, layout, values)

  SnapshotNote note() && {
    SnapshotNote n;
    n.save = std::move(save), n.run_dir = std::move(run_dir), n.layout = std::move(layout);
    n.step = step, n.rank = rank, n.world = world, n.keep = keep, n.partial = partial;
    n.values = std::move(values);
    return n;
  }
};

uint64_t whole(uint64_t bytes, uint64_t of) { return (bytes + of - 1) / of * of; }
uint64_t sum_of(std::string_view bytes) { return Checksum::number_of(bytes.data(), bytes.size()); }

template <class T>
T load(const uint8_t* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

template <class Layout>
auto numbers_of(Layout& l) {
  return std::array{&l.size,    &l.plan_at,    &l.plan_bytes, &l.plan_sum,
                    &l.note_at, &l.note_bytes, &l.note_sum,   &l.sums_at,
                    &l.sums,    &l.data_at,    &l.data_bytes};
}

bool within(uint64_t begin, uint64_t bytes, uint64_t size) {
  return begin <= size && bytes <= size - begin;
}

/// One of the texts, copied before it is looked at.
template <class T>
T text_at(std::span<const uint8_t> memory, uint64_t at, uint64_t bytes, uint64_t sum,
          const char* what) {
  check<Corrupt>(bytes <= kMostText && within(at, bytes, memory.size()),
                 "its {} has {} bytes at {}, and its memory {}", what, bytes, at, memory.size());
  const std::string text(reinterpret_cast<const char*>(memory.data()) + at, bytes);
  check<Corrupt>(sum_of(text) == sum, "the checksum of its {} does not fit", what);
  try {
    return decode<T>(text);
  } catch (const Mismatch& e) {
    fail<Corrupt>("its {} is of another type: {}", what, e.what());
  }
}

void check_plan(const SnapshotPlan& plan, const SnapshotLayout& layout) {
  uint64_t blocks = 0;
  std::pair<int64_t, int64_t> before{-1, 0};  // file, end
  for (const auto& [file, at, bytes, offset] : plan.writes) {
    check<Corrupt>(file >= 0 && static_cast<uint64_t>(file) < plan.files.size(),
                   "it writes to file {} of {}", file, plan.files.size());
    check<Corrupt>(
        at >= 0 && bytes > 0 && at <= INT64_MAX - bytes && offset >= 0 &&
            within(static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes), layout.data_bytes),
        "it writes {} bytes from {} of {} to {} of a file", bytes, offset, layout.data_bytes, at);
    check<Corrupt>(std::pair(file, at) >= before, "its writes overlap or are in no order");
    before = {file, at + bytes};
    blocks += blocks_in_write(bytes);
  }
  check<Corrupt>(blocks == layout.sums, "it has {} checksums for {} blocks", layout.sums, blocks);
}

void check_note(const SnapshotNote& note) {
  check<Corrupt>(note.step >= 0 && note.world >= 1 && note.rank >= 0 && note.rank < note.world &&
                     note.keep >= 1,
                 "it is of step {}, rank {} of {}, keep {}", note.step, note.rank, note.world,
                 note.keep);
  check<Corrupt>(note.save.starts_with(".tmp-" + step_folder_name(note.step) + "-") &&
                     note.save.find('/') == std::string::npos,
                 "its temporary folder is called '{}'", note.save);
  check<Corrupt>(note.run_dir.starts_with('/') && note.run_dir.find('\0') == std::string::npos &&
                     note.save.find('\0') == std::string::npos,
                 "its run folder '{}' is no absolute path", note.run_dir);
  check<Corrupt>(is_layout_text(note.layout), "its layout is no text");
}

}  // namespace

SnapshotValue SnapshotValue::from(const IndexValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return {*i, {}, {}};
  if (const auto* d = std::get_if<double>(&v)) return {{}, *d, {}};
  return {{}, {}, std::get<std::string>(v)};
}

IndexValue SnapshotValue::value() const {
  if (i) return *i;
  if (d) return *d;
  check<Corrupt>(s.has_value(), "checkpoint: a value of no type");
  return *s;
}

SnapshotLabel::SnapshotLabel(const WriteOrders& orders, std::string index_text)
    : offsets_(memory_layout(orders)) {
  SnapshotPlan plan;
  plan.index = std::move(index_text);
  for (const PlannedFile& file : orders.files) plan.files.emplace_back(file.name, file.head);
  for (size_t i = 0; i < orders.writes.size(); ++i) {
    const PlannedWrite& w = orders.writes[i];
    if (w.bytes == 0) continue;
    plan.writes.push_back(
        {static_cast<int64_t>(w.file), w.at, w.bytes, static_cast<int64_t>(offsets_[i])});
    layout_.sums += blocks_in_write(w.bytes);
  }
  plan_ = encode(plan);
  layout_.plan_at = kSnapshotPage;
  layout_.plan_bytes = plan_.size();
  layout_.plan_sum = sum_of(plan_);
  layout_.sums_at = whole(layout_.plan_at + layout_.plan_bytes, 8);
  layout_.data_at = whole(layout_.sums_at + 8 * layout_.sums, kSnapshotPage);
  layout_.data_bytes = offsets_.back();
  layout_.note_at = whole(layout_.data_at + layout_.data_bytes, kSnapshotPage);
}

void SnapshotLabel::set_note(const SnapshotNote& note) {
  note_ = encode(note);
  layout_.note_bytes = note_.size();
  layout_.note_sum = sum_of(note_);
  layout_.size = layout_.note_at + whole(note_.size(), kNoteRoom);
}

void SnapshotLabel::put_into(uint8_t* memory, uint64_t old_plan) const {
  mark_snapshot(memory, false);
  put_layout(memory, layout_);
  if (old_plan != layout_.plan_sum)
    std::memcpy(memory + layout_.plan_at, plan_.data(), plan_.size());
  std::memset(memory + layout_.sums_at, 0, 8 * layout_.sums);
  std::memcpy(memory + layout_.note_at, note_.data(), note_.size());
}

void put_layout(uint8_t* memory, const SnapshotLayout& layout) {
  std::memcpy(memory, kSnapshotMagic, kMagicBytes);
  std::memcpy(memory + kVersionAt, &kSnapshotVersion, sizeof kSnapshotVersion);
  uint8_t* to = memory + kNumbersAt;
  for (const uint64_t* number : numbers_of(layout)) std::memcpy(to, number, 8), to += 8;
  const uint64_t sum = Checksum::number_of(memory + kNumbersAt, 8 * kNumbers);
  std::memcpy(memory + kHeadSumAt, &sum, sizeof sum);
}

void mark_snapshot(uint8_t* memory, bool complete) {
  // Nothing moves past it, in either direction: what was written before is there with the mark, and
  // what is written after it is gone is not.
  std::atomic_ref(*reinterpret_cast<uint32_t*>(memory + kMarkAt))
      .exchange(complete ? 1 : 0, std::memory_order_acq_rel);
}

void put_checksums(uint8_t* memory, const SnapshotLayout& layout,
                   const std::vector<uint64_t>& checksums) {
  check<Error>(checksums.size() == layout.sums, "a snapshot of {} blocks has {} checksums",
               layout.sums, checksums.size());
  std::memcpy(memory + layout.sums_at, checksums.data(), 8 * checksums.size());
}

std::optional<ParsedSnapshot> parse_snapshot(std::span<const uint8_t> memory) {
  check<Corrupt>(memory.size() >= kSnapshotPage, "it has {} bytes, less than its head",
                 memory.size());
  std::array<uint8_t, kSnapshotPage> head;  // its writer may be at work still
  std::memcpy(head.data(), memory.data(), head.size());
  // Memory that nothing was copied into yet.
  if (std::all_of(head.begin(), head.end(), [](uint8_t byte) { return byte == 0; })) return {};
  check<Corrupt>(std::memcmp(head.data(), kSnapshotMagic, kMagicBytes) == 0,
                 "it does not begin as a snapshot");
  const auto version = load<uint32_t>(head.data() + kVersionAt);
  check<UsageError>(version <= kSnapshotVersion,
                    "a snapshot of version {}; this launcher reads up to {}: use one build",
                    version, kSnapshotVersion);
  check<Corrupt>(version >= 1, "there is no version {} of snapshots", version);
  const auto mark = load<uint32_t>(head.data() + kMarkAt);
  check<Corrupt>(mark <= 1, "its mark is {}", mark);
  if (mark == 0) return {};
  check<Corrupt>(Checksum::number_of(head.data() + kNumbersAt, 8 * kNumbers) ==
                     load<uint64_t>(head.data() + kHeadSumAt),
                 "the checksum of its head does not fit");
  ParsedSnapshot parsed;
  const uint8_t* from = head.data() + kNumbersAt;
  for (uint64_t* number : numbers_of(parsed.layout)) *number = load<uint64_t>(from), from += 8;
  const SnapshotLayout& l = parsed.layout;
  check<Corrupt>(l.size <= memory.size() && within(l.data_at, l.data_bytes, l.size) &&
                     l.sums <= l.size / 8 && within(l.sums_at, 8 * l.sums, l.size) &&
                     l.data_at % kSnapshotPage == 0 && l.sums_at % 8 == 0,
                 "its parts are not within its {} bytes", memory.size());
  parsed.plan = text_at<SnapshotPlan>(memory, l.plan_at, l.plan_bytes, l.plan_sum, "plan");
  parsed.note =
      version == 1
          ? text_at<NoteOfVersion1>(memory, l.note_at, l.note_bytes, l.note_sum, "note").note()
          : text_at<SnapshotNote>(memory, l.note_at, l.note_bytes, l.note_sum, "note");
  check_plan(parsed.plan, l);
  check_note(parsed.note);
  return parsed;
}

}  // namespace trireme
