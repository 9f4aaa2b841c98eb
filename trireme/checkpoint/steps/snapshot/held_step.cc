// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/held_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/step_writer.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme {
namespace {

constexpr auto kBlockBytes = static_cast<uint64_t>(CheckpointIndex::kBlock);

/// Where a part lies in its file.
struct PlacedPart {
  uint64_t begin, end;
  IndexPart* part;
};

/// The parts of a file as its header places them, in the order of bytes.
std::vector<PlacedPart> placed_parts(const interop::SafetensorsHeader& header,
                                     const std::map<std::string, IndexPart*>& parts,
                                     const std::string& where) {
  std::vector<PlacedPart> placed;
  for (const auto& array : header.arrays) {
    const auto part = parts.find(array.name);
    check<Corrupt>(part != parts.end() && part->second->slice.lengths == array.shape,
                   "{}: tensor '{}' is not as the index says", where, array.name);
    if (array.end > array.begin) placed.push_back({array.begin, array.end, part->second});
  }
  check<Corrupt>(header.arrays.size() == parts.size(), "{}: has {} tensors; the index says {}",
                 where, header.arrays.size(), parts.size());
  std::sort(placed.begin(), placed.end(),
            [](const PlacedPart& a, const PlacedPart& b) { return a.begin < b.begin; });
  return placed;
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

/// Reads what the stretches of a file say.
class HeldStep::Reader : public PartSource {
 public:
  Reader(std::string path, const File& file, const IndexFile& expected)
      : PartSource(std::move(path)), file_(file) {
    take_head(bytes_of(file.head), expected);
  }
  void read(uint64_t at, std::span<uint8_t> to) const override {
    auto s = std::partition_point(
        file_.stretches.begin(), file_.stretches.end(),
        [&](const Stretch& stretch) { return stretch.at + stretch.size <= at; });
    for (; !to.empty(); ++s) {
      check<Corrupt>(s != file_.stretches.end() && s->at <= at,
                     "{}: byte {} is in no rank's memory", path(), at);
      const size_t n = std::min<uint64_t>(to.size(), s->at + s->size - at);
      std::memcpy(to.data(), s->bytes + (at - s->at), n);
      at += n;
      to = to.subspan(n);
    }
  }

 private:
  const File& file_;
};

HeldStep::HeldStep(std::vector<std::unique_ptr<const HeldSnapshot>> ranks)
    : ranks_(std::move(ranks)) {
  check<Error>(!ranks_.empty(), "a step of no ranks");
  const SnapshotNote& first = note();
  name_ = fmt::format("the snapshot of step {} for {}", first.step, first.run_dir);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const SnapshotNote& mine = ranks_[r]->note();
    check<Corrupt>(mine.rank == static_cast<int64_t>(r) && mine.save == first.save &&
                       mine.step == first.step && mine.run_dir == first.run_dir &&
                       mine.world == static_cast<int64_t>(ranks_.size()),
                   "{}: rank {} of {} is not of this save", name_, r, ranks_.size());
    check<Corrupt>(!mine.partial, "{}: rank {} has some of its state in files alone", name_, r);
  }
  take_index();
  take_files();
  place_writes();
}

void HeldStep::take_index() {
  index_ = parse_index(ranks_[0]->plan().index, name_);
  check<Corrupt>(
      index_.version == CheckpointIndex::kVersion && index_.block == CheckpointIndex::kBlock,
      "{}: its index is of another version", name_);
  index_.step = note().step;
  index_.world = note().world;
  index_.layout = note().layout;
  for (const auto& [name, value] : note().values) index_.values[name] = value.value();
  for (auto& [name, tensor] : index_.tensors)
    for (IndexPart& part : tensor.parts) std::fill(part.blocks.begin(), part.blocks.end(), 0);
}

void HeldStep::take_files() {
  for (const auto& [name, file] : index_.files) files_[name];
  for (const auto& rank : ranks_)
    for (const auto& [name, head] : rank->plan().files) {
      const auto file = files_.find(name);
      check<Corrupt>(file != files_.end(), "{}: the index knows no file '{}'", name_, name);
      check<Corrupt>(head.empty() || file->second.head.empty(), "{}: file '{}' has two heads",
                     name_, name);
      if (!head.empty()) file->second.head = head;
    }
}

void HeldStep::place_writes() {
  std::map<std::string, std::map<std::string, IndexPart*>> parts;
  for (auto& [name, tensor] : index_.tensors)
    for (IndexPart& part : tensor.parts) parts[part.file][place_of(name).key] = &part;
  std::map<std::string, std::vector<PlacedPart>> placed;
  for (const auto& [name, file] : files_) {
    const std::string where = name_ + ": " + name;
    const std::string sum = Checksum::of(file.head.data(), file.head.size());
    check<Corrupt>(sum == index_.files[name].head,
                   "{}: the checksum of its header does not fit: it is {}; the index says {}",
                   where, sum, index_.files[name].head);
    placed[name] = placed_parts(
        interop::read_safetensors_header(bytes_of(file.head), index_.files[name].size, where),
        parts[name], where);
  }
  for (const auto& rank : ranks_) {
    size_t block = 0;  // of the rank's
    for (const auto& [file, at, bytes, offset] : rank->plan().writes) {
      const auto& name = std::get<0>(rank->plan().files[static_cast<size_t>(file)]);
      const std::vector<PlacedPart>& of_file = placed[name];
      const auto begin = static_cast<uint64_t>(at), size = static_cast<uint64_t>(bytes);
      const auto p =
          std::partition_point(of_file.begin(), of_file.end(),
                               [&](const PlacedPart& part) { return part.end <= begin; });
      check<Corrupt>(p != of_file.end() && p->begin <= begin && begin + size <= p->end &&
                         (begin - p->begin) % kBlockBytes == 0 &&
                         (begin + size == p->end || size % kBlockBytes == 0),
                     "{}: {} bytes at {} of '{}' are no blocks of a tensor", name_, bytes, at,
                     name);
      uint64_t* checksums = p->part->blocks.data() + (begin - p->begin) / kBlockBytes;
      for (size_t i = 0; i < blocks_in_write(bytes); ++i) checksums[i] = rank->checksum(block++);
      files_[name].stretches.push_back({begin, size, rank->data() + offset, checksums});
    }
  }
  for (auto& [name, file] : files_) {
    std::sort(file.stretches.begin(), file.stretches.end(),
              [](const Stretch& a, const Stretch& b) { return a.at < b.at; });
    uint64_t end = file.head.size();
    for (const Stretch& s : file.stretches) {
      check<Corrupt>(s.at == end, "{}: bytes {} to {} of '{}' are in no rank's memory, or in two",
                     name_, std::min(s.at, end), std::max(s.at, end), name);
      end += s.size;
    }
    check<Corrupt>(end == index_.files[name].size,
                   "{}: bytes from {} of '{}' are in no rank's memory", name_, end, name);
  }
}

void HeldStep::sum_blocks() {
  for (auto& [name, file] : files_)
    for (Stretch& s : file.stretches)
      for (uint64_t done = 0; done < s.size; done += kBlockBytes)
        if (uint64_t& sum = s.checksums[done / kBlockBytes]; sum == 0)
          sum = Checksum::number_of(s.bytes + done, std::min(kBlockBytes, s.size - done));
}

void HeldStep::verify(size_t share, size_t shares) const {
  check<Error>(share < shares, "share {} of {}", share, shares);
  const auto blocks_in = [](const Stretch& s) { return (s.size + kBlockBytes - 1) / kBlockBytes; };
  uint64_t all = 0, before = 0;
  for (const auto& [name, file] : files_)
    for (const Stretch& s : file.stretches) all += blocks_in(s);
  const uint64_t begin = all * share / shares, end = all * (share + 1) / shares;
  for (const auto& [name, file] : files_)
    for (const Stretch& s : file.stretches) {
      const uint64_t blocks = blocks_in(s);
      for (uint64_t i = std::clamp(begin, before, before + blocks) - before;
           i < std::clamp(end, before, before + blocks) - before; ++i) {
        const uint64_t at = i * kBlockBytes, bytes = std::min(kBlockBytes, s.size - at);
        check<Corrupt>(
            s.checksums[i] == 0 || s.checksums[i] == Checksum::number_of(s.bytes + at, bytes),
            "{}: {}: bytes {} to {} have changed since their checksum was made", name_, name,
            s.at + at, s.at + at + bytes - 1);
      }
      before += blocks;
    }
}

std::unique_ptr<PartSource> HeldStep::open(const std::string& file) const {
  return std::make_unique<Reader>(name_ + ": " + file, files_.at(file), index_.files.at(file));
}

uint64_t HeldStep::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, file] : index_.files) bytes += file.size;
  return bytes;
}

void HeldStep::let_go() {
  files_.clear();
  ranks_.clear();
}

// By the writer of every rank, as if this process were all of them, one after the other.
void HeldStep::write(const std::string& folder) {
  WriteOrders orders;
  std::vector<const Stretch*> writes;
  for (const auto& [name, file] : files_) {
    for (const Stretch& s : file.stretches) {
      orders.writes.push_back(
          {0, 0, orders.files.size(), static_cast<int64_t>(s.at), static_cast<int64_t>(s.size)});
      writes.push_back(&s);
    }
    orders.files.push_back({name, file.head, 0, 0});
  }
  const std::vector<uint64_t> checksums = write_step_files(
      folder, orders, [&](size_t i) { return writes[i]->bytes; }, BytesLast::to_the_end);
  auto sum = checksums.begin();
  for (const Stretch* s : writes)
    for (size_t i = 0; i < blocks_in_write(static_cast<int64_t>(s->size)); ++i, ++sum) {
      check<Corrupt>(s->checksums[i] == 0 || s->checksums[i] == *sum,
                     "{}: it has changed since its checksums were made", name_);
      s->checksums[i] = *sum;
    }
  write_index(folder, index_);
}

}  // namespace trireme
