// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/zip/zip_reader.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/interop/shown.h"
#include "trireme/interop/zip/crc32.h"
#include "trireme/interop/zip/zip_layout.h"

namespace trireme::interop {
namespace {

constexpr uint64_t kMostRecords = 1'000'000;

template <class T>
T number_at(std::span<const uint8_t> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// What extracting it by name could never write outside a folder, and a terminal can show.
bool harmless(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != name.npos) return false;
  for (unsigned char c : name)
    if (c < 0x20 || c == 0x7f) return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, slash - begin) == "..") return false;
    begin = slash + 1;
  }
  return true;
}

/// Replaces what is 0xFFFFFFFF by the values of the zip64 field, which has them in this order.
void widen(std::span<const uint8_t> extra, std::initializer_list<uint64_t*> values,
           const std::string& where) {
  const bool any = std::any_of(values.begin(), values.end(),
                               [](const uint64_t* value) { return *value == kIn64; });
  while (any && extra.size() >= 4) {
    const size_t id = number_at<uint16_t>(extra, 0), size = number_at<uint16_t>(extra, 2);
    check<Corrupt>(size <= extra.size() - 4, "{}: an extra field is longer than its record", where);
    auto field = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
    if (id != kZip64Id) continue;
    for (uint64_t* value : values) {
      if (*value != kIn64) continue;
      check<Corrupt>(field.size() >= 8, "{}: its zip64 field is too short", where);
      *value = number_at<uint64_t>(field, 0);
      field = field.subspan(8);
    }
    return;
  }
  check<Corrupt>(!any, "{}: its zip64 field is missing", where);
}

}  // namespace

ZipReader::ZipReader(std::span<const uint8_t> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {
  read_directory();
}

void ZipReader::read_directory() {
  const uint64_t size = bytes_.size();
  check<Corrupt>(size >= kEndBytes && number_at<uint32_t>(bytes_, size - kEndBytes) == kEndMark,
                 "{}: does not end as a zip archive does: it was cut short, or is none", where_);
  const auto end = bytes_.subspan(size - kEndBytes);
  uint64_t directory_end = size - kEndBytes;
  uint64_t count = number_at<uint16_t>(end, 10), count_here = number_at<uint16_t>(end, 8);
  uint64_t length = number_at<uint32_t>(end, 12), begin = number_at<uint32_t>(end, 16);
  uint32_t disks = number_at<uint16_t>(end, 4) + number_at<uint16_t>(end, 6);
  check<Corrupt>(number_at<uint16_t>(end, 20) == 0,
                 "{}: its end announces a comment that is not there", where_);
  if (directory_end >= kLocatorBytes + kEnd64Bytes &&
      number_at<uint32_t>(bytes_, directory_end - kLocatorBytes) == kLocatorMark) {
    const auto locator = bytes_.subspan(directory_end - kLocatorBytes, kLocatorBytes);
    directory_end -= kLocatorBytes + kEnd64Bytes;
    const auto end64 = bytes_.subspan(directory_end, kEnd64Bytes);
    check<Corrupt>(number_at<uint64_t>(locator, 8) == directory_end &&
                       number_at<uint32_t>(end64, 0) == kEnd64Mark &&
                       number_at<uint64_t>(end64, 4) == kEnd64Bytes - 12,
                   "{}: its zip64 end is not where its locator says", where_);
    // Both ends must tell the same, so that no two readers see different archives.
    const uint64_t count64 = number_at<uint64_t>(end64, 32),
                   length64 = number_at<uint64_t>(end64, 40),
                   begin64 = number_at<uint64_t>(end64, 48);
    check<Corrupt>((count == count64 || count == 0xFFFF) &&
                       (length == length64 || length == kIn64) &&
                       (begin == begin64 || begin == kIn64),
                   "{}: its two ends describe different archives", where_);
    count = count64, length = length64, begin = begin64;
    count_here = number_at<uint64_t>(end64, 24);
    disks = number_at<uint32_t>(end64, 16) | number_at<uint32_t>(end64, 20);
  }
  check<UsageError>(disks == 0 && count_here == count,
                    "{}: is a part of an archive over several files: join them first", where_);
  check<UsageError>(count <= kMostRecords, "{}: has {} records; the most that we read is {}",
                    where_, count, kMostRecords);
  check<Corrupt>(begin <= directory_end && length == directory_end - begin,
                 "{}: its directory is not where its end says", where_);
  check<Corrupt>(length / kCentralBytes >= count,
                 "{}: a directory of {} bytes cannot list {} records", where_, length, count);
  records_.reserve(count);
  headers_.reserve(count);
  auto directory = bytes_.subspan(begin, length);
  for (uint64_t i = 0; i < count; ++i) read_record(directory, begin);
  check<Corrupt>(directory.empty(), "{}: its directory is longer than its records", where_);
  check_overlaps(begin);
}

void ZipReader::read_record(std::span<const uint8_t>& directory, uint64_t end_of_records) {
  check<Corrupt>(
      directory.size() >= kCentralBytes && number_at<uint32_t>(directory, 0) == kCentralMark,
      "{}: its directory is damaged at record {}", where_, records_.size());
  const size_t name_bytes = number_at<uint16_t>(directory, 28),
               extra_bytes = number_at<uint16_t>(directory, 30),
               comment_bytes = number_at<uint16_t>(directory, 32);
  const size_t whole = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  check<Corrupt>(directory.size() >= whole, "{}: its directory is damaged at record {}", where_,
                 records_.size());
  ZipRecord record;
  record.name.assign(reinterpret_cast<const char*>(directory.data()) + kCentralBytes, name_bytes);
  check<Corrupt>(harmless(record.name),
                 "{}: a record is called '{}', which no writer of torch gives", where_,
                 shown(record.name));
  const std::string where = where_ + ": record '" + shown(record.name) + "'";
  const unsigned flags = number_at<uint16_t>(directory, 8),
                 method = number_at<uint16_t>(directory, 10);
  check<UsageError>((flags & kEncryptedFlags) == 0, "{} is encrypted: save it without", where);
  check<UsageError>(method == kStored || method == kDeflated,
                    "{} is compressed by method {}, which torch does not write", where, method);
  record.compressed = method != kStored;
  record.crc = number_at<uint32_t>(directory, 16);
  uint64_t packed = number_at<uint32_t>(directory, 20), size = number_at<uint32_t>(directory, 24),
           header = number_at<uint32_t>(directory, 42);
  widen(directory.subspan(kCentralBytes + name_bytes, extra_bytes), {&size, &packed, &header},
        where);
  directory = directory.subspan(whole);
  check<Corrupt>(record.compressed || packed == size,
                 "{} is not compressed and yet has {} bytes for {}", where, packed, size);

  check<Corrupt>(header <= end_of_records && end_of_records - header >= kLocalBytes &&
                     number_at<uint32_t>(bytes_, header) == kLocalMark,
                 "{}: no header at byte {}", where, header);
  const auto local = bytes_.subspan(header, kLocalBytes);
  const uint64_t local_name = number_at<uint16_t>(local, 26),
                 local_extra = number_at<uint16_t>(local, 28);
  const uint64_t head = kLocalBytes + local_name + local_extra;
  check<Corrupt>(head <= end_of_records - header && packed <= end_of_records - header - head,
                 "{}: its {} bytes from byte {} on are not all there", where, packed, header);
  check<Corrupt>(
      local_name == name_bytes &&
          std::memcmp(bytes_.data() + header + kLocalBytes, record.name.data(), name_bytes) == 0 &&
          number_at<uint16_t>(local, 8) == method,
      "{}: its header describes another record", where);
  record.begin = header + head;
  record.end = record.begin + packed;
  check<Corrupt>(by_name_.emplace(record.name, records_.size()).second, "{} is there twice", where);
  records_.push_back(std::move(record));
  headers_.push_back(header);
}

void ZipReader::check_overlaps(uint64_t end_of_records) const {
  std::vector<size_t> order(records_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return headers_[a] < headers_[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t next = i + 1 < order.size() ? headers_[order[i + 1]] : end_of_records;
    check<Corrupt>(records_[order[i]].end <= next, "{}: record '{}' reaches into what follows it",
                   where_, shown(records_[order[i]].name));
  }
}

const ZipRecord* ZipReader::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &records_[found->second];
}

std::span<const uint8_t> ZipReader::bytes(const ZipRecord& record) const {
  check<UsageError>(
      !record.compressed,
      "{}: record '{}' is compressed, as torch never writes it: open the file in Python "
      "with torch.load and save it again with torch.save",
      where_, shown(record.name));
  return bytes_.subspan(record.begin, record.end - record.begin);
}

void ZipReader::verify(const ZipRecord& record) const {
  check<Corrupt>(crc32(bytes(record)) == record.crc,
                 "{}: record '{}' does not have its CRC-32: take another copy", where_,
                 shown(record.name));
}

}  // namespace trireme::interop
