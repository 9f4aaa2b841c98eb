// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/verify_step.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme {
namespace {

constexpr uint64_t kPiece = uint64_t{1} << 20;  // what is read at once

using PartOfTensor = std::pair<const IndexTensor*, const IndexPart*>;

std::string blocks_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("block {} does not fit its checksum", first)
                       : fmt::format("blocks {} to {} do not fit their checksums", first, last);
}

// "tensor 'a' in it was"; "3 tensors in it ('a', 'b', …) were".
std::string names_text(const std::vector<PartOfTensor>& parts) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> names;
  for (const auto& [tensor, part] : parts)
    if (names.size() < kNamed) names.push_back(fmt::format("'{}'", place_of(part->slice.name).key));
  if (parts.size() == 1) return fmt::format("tensor {} in it was", names[0]);
  if (parts.size() > kNamed) names.push_back("…");
  return fmt::format("{} tensors in it ({}) were", parts.size(), fmt::join(names, ", "));
}

struct BlockFault {
  std::string unread;  // why the bytes could not be read
  std::string sums;    // else: of the block, and what the index says
};

class FileVerifier {
 public:
  FileVerifier(const std::string& folder, std::string name, const CheckpointIndex& index,
               StepVerdict* verdict)
      : name_(std::move(name)),
        block_(static_cast<uint64_t>(index.block)),
        file_(folder, name_, index.files.at(name_)),
        verdict_(verdict) {
    verdict_->bytes_read += file_.head_size();
  }

  void verify(const std::vector<PartOfTensor>& parts) {
    check<Corrupt>(file_.count() == parts.size(), "{} has {} tensors; the index says {}",
                   file_.path(), file_.count(), parts.size());
    for (const auto& [tensor, part] : parts) {
      try {
        verify(*part, file_.find(*part, tensor->dtype));
      } catch (const Corrupt& e) {
        verdict_->faults.push_back({.file = name_, .tensor = part->slice.name, .what = e.what()});
      }
    }
  }

 private:
  void verify(const IndexPart& part, const interop::SafetensorsEntry& array) {
    const uint64_t size = array.end - array.begin;
    if (size == 0) return;
    const uint64_t block = block_ == 0 ? size : block_;
    for (uint64_t begin = 0, i = 0; begin < size; ++i) {
      const uint64_t end = begin + std::min(block, size - begin);
      const auto fault = fault_in(array.begin + begin, end - begin, part.blocks.at(i));
      if (fault) add(part, static_cast<int64_t>(i), begin, end, size, *fault);
      begin = end;
    }
  }

  std::optional<BlockFault> fault_in(uint64_t at, uint64_t size, uint64_t expected) {
    Checksum checksum;
    try {
      while (size > 0) {
        const size_t n = static_cast<size_t>(std::min(size, kPiece));
        buffer_.resize(n);
        file_.read(at, buffer_);
        checksum.add(buffer_.data(), n);
        verdict_->bytes_read += n;
        at += n, size -= n;
      }
    } catch (const ResourceError& e) {
      return BlockFault{e.what(), ""};
    }
    if (checksum.number() == expected) return {};
    return BlockFault{
        "", fmt::format("it is {}; the index says {}", checksum.hex(), Checksum::hex_of(expected))};
  }

  // Neighbours are one fault: a file that was overwritten has as many bad blocks as it is long.
  void add(const IndexPart& part, int64_t block, uint64_t begin, uint64_t end, uint64_t size,
           const BlockFault& found) {
    const auto& [unread, sums] = found;
    auto& faults = verdict_->faults;
    const bool goes_on = !faults.empty() && unread == last_unread_ && faults.back().file == name_ &&
                         faults.back().tensor == part.slice.name &&
                         faults.back().last_block == block - 1;
    if (!goes_on)
      faults.push_back({.file = name_,
                        .tensor = part.slice.name,
                        .first_block = block,
                        .begin = begin,
                        .unread = !unread.empty()});
    StepFault& fault = faults.back();
    fault.last_block = block;
    fault.end = end;
    fault.what = fmt::format("{}: tensor '{}': {} (bytes {} to {} of {})", file_.path(),
                             place_of(part.slice.name).key,
                             unread.empty() ? blocks_text(fault.first_block, block) : unread,
                             fault.begin, end - 1, size);
    if (!goes_on) first_sums_ = sums;
    if (!first_sums_.empty())
      fault.what += fault.first_block == block
                        ? ": " + first_sums_
                        : fmt::format(": of block {} {}", fault.first_block, first_sums_);
    last_unread_ = unread;
  }

  std::string name_;
  uint64_t block_;
  StepFile file_;
  StepVerdict* verdict_;
  std::vector<uint8_t> buffer_;
  std::string last_unread_, first_sums_;
};

bool is_of_the_disk(const Error& e) { return dynamic_cast<const ResourceError*>(&e) != nullptr; }

StepVerdict read_index(const std::string& folder) {
  StepVerdict verdict;
  try {
    verdict.index = read_step_index(folder);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    verdict.faults.push_back(
        {.file = CheckpointIndex::kFileName, .what = e.what(), .unread = is_of_the_disk(e)});
  }
  return verdict;
}

}  // namespace

StepVerdict glance_at_step(const std::string& folder) {
  StepVerdict verdict = read_index(folder);
  if (!verdict.index) return verdict;
  for (const auto& [name, expected] : verdict.index->files) try {
      if (const std::string fault = fault_at_sight(folder, name, expected); !fault.empty())
        verdict.faults.push_back(
            {.file = name, .what = fmt::format("{}/{} {}", folder, name, fault)});
    } catch (const ResourceError& e) {
      verdict.faults.push_back({.file = name, .what = e.what(), .unread = true});
    }
  return verdict;
}

StepVerdict verify_step(const std::string& folder) {
  StepVerdict verdict = read_index(folder);
  if (!verdict.index) return verdict;
  const CheckpointIndex& index = *verdict.index;
  std::map<std::string, std::vector<PartOfTensor>> parts;
  for (const auto& [name, t] : index.tensors)
    for (const auto& part : t.parts) parts[part.file].emplace_back(&t, &part);
  for (const auto& [name, expected] : index.files) {
    try {
      FileVerifier(folder, name, index, &verdict).verify(parts[name]);
    } catch (const Error& e) {
      const std::vector<PartOfTensor>& lost = parts[name];
      verdict.faults.push_back(
          {.file = name,
           .what =
               lost.empty() ? e.what() : fmt::format("{}; {} not read", e.what(), names_text(lost)),
           .unread = is_of_the_disk(e)});
    }
  }
  return verdict;
}

void check_not_deleted(const std::string& folder) {
  struct stat found {};
  check<ResourceError>(file_calls::stat(folder, &found) == 0 || errno != ENOENT,
                       "{} was deleted while it was read (a running job keeps only its newest "
                       "steps): name a newer one",
                       folder);
}

}  // namespace trireme
