// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/base/export.h"

// Zip archives as torch writes them: records that are stored, not compressed, so that a record is a
// range of the file. Nothing in the file is trusted.
namespace trireme::interop {

struct ZipRecord {
  std::string name;
  uint64_t begin = 0, end = 0;  // its bytes, from the start of the archive
  uint32_t crc = 0;
  bool compressed = false;  // TorchScript compresses its code; such a record is listed, not read
};

/// The directory of an archive, zip64 included. Corrupt for whatever does not hold together: a
/// record outside the file or over another, two of one name, a name that would leave a folder.
/// UsageError for what we do not read: encryption, several disks, more than 1,000,000 records.
class TRIREME_API ZipReader {
 public:
  /// `bytes` is one whole archive and outlives the reader; `where` begins every message.
  ZipReader(std::span<const uint8_t> bytes, std::string where);

  const std::vector<ZipRecord>& records() const { return records_; }  // as the directory lists them
  const ZipRecord* find(const std::string& name) const;               // nullptr: not there
  /// UsageError for a compressed record.
  std::span<const uint8_t> bytes(const ZipRecord& record) const;
  /// Corrupt where the record's bytes do not give its CRC-32. Reads them all.
  void verify(const ZipRecord& record) const;

 private:
  void read_directory();
  void read_record(std::span<const uint8_t>& directory, uint64_t end_of_records);
  void check_overlaps(uint64_t end_of_records) const;

  std::span<const uint8_t> bytes_;
  std::string where_;
  std::vector<ZipRecord> records_;
  std::vector<uint64_t> headers_;  // where the local header of each begins
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace trireme::interop
