// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/zip/zip_writer.h"

#include <utility>

#include "trireme/interop/zip/crc32.h"
#include "trireme/interop/zip/zip_layout.h"

namespace trireme::interop {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kPaddingId = 0x4246;  // "FB": the extra field that torch pads with

class Fields {
 public:
  Fields& u16(uint64_t value) { return raw(value, 2); }
  Fields& u32(uint64_t value) { return raw(value, 4); }
  Fields& u64(uint64_t value) { return raw(value, 8); }
  Fields& text(const std::string& value) {
    bytes_ += value;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  Fields& raw(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> 8 * i);
    return *this;
  }
  std::string bytes_;
};

}  // namespace

ZipWriter::ZipWriter(Sink sink, uint64_t classic_most)
    : sink_(std::move(sink)), classic_most_(classic_most) {}

void ZipWriter::put(const std::string& bytes) {
  sink_(bytes.data(), bytes.size());
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const uint8_t> bytes) {
  const bool wide = bytes.size() > classic_most_;
  Written record{name, at_, bytes.size(), crc32(bytes)};
  std::string extra;
  if (wide) extra = Fields().u16(kZip64Id).u16(16).u64(record.size).u64(record.size).take();
  const uint64_t head = at_ + kLocalBytes + name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - head % kAlignment) % kAlignment;
  extra += Fields().u16(kPaddingId).u16(padding).take() + std::string(padding, 'Z');
  put(Fields()
          .u32(kLocalMark)
          .u16(wide ? 45 : 20)
          .u16(kUtf8Flag)
          .u16(kStored)
          .u32(0)  // no time and no date: the same bytes whenever it is written
          .u32(record.crc)
          .u32(wide ? kIn64 : record.size)
          .u32(wide ? kIn64 : record.size)
          .u16(name.size())
          .u16(extra.size())
          .text(name)
          .text(extra)
          .take());
  sink_(bytes.data(), bytes.size());
  at_ += bytes.size();
  written_.push_back(std::move(record));
}

void ZipWriter::finish() {
  const uint64_t begin = at_;
  for (const Written& record : written_) {
    const bool wide = record.size > classic_most_ || record.header > classic_most_;
    std::string extra;
    if (wide)
      extra = Fields()
                  .u16(kZip64Id)
                  .u16(24)
                  .u64(record.size)
                  .u64(record.size)
                  .u64(record.header)
                  .take();
    put(Fields()
            .u32(kCentralMark)
            .u16(wide ? 45 : 20)
            .u16(wide ? 45 : 20)
            .u16(kUtf8Flag)
            .u16(kStored)
            .u32(0)
            .u32(record.crc)
            .u32(wide ? kIn64 : record.size)
            .u32(wide ? kIn64 : record.size)
            .u16(record.name.size())
            .u16(extra.size())
            .u16(0)
            .u16(0)
            .u16(0)
            .u32(0)
            .u32(wide ? kIn64 : record.header)
            .text(record.name)
            .text(extra)
            .take());
  }
  const uint64_t length = at_ - begin, end = at_, count = written_.size();
  put(Fields()
          .u32(kEnd64Mark)
          .u64(kEnd64Bytes - 12)
          .u16(45)
          .u16(45)
          .u32(0)
          .u32(0)
          .u64(count)
          .u64(count)
          .u64(length)
          .u64(begin)
          .take());
  put(Fields().u32(kLocatorMark).u32(0).u64(end).u32(1).take());
  const uint64_t few = count < 0xFFFF ? count : 0xFFFF;
  put(Fields()
          .u32(kEndMark)
          .u16(0)
          .u16(0)
          .u16(few)
          .u16(few)
          .u32(length > classic_most_ ? kIn64 : length)
          .u32(begin > classic_most_ ? kIn64 : begin)
          .u16(0)
          .take());
}

}  // namespace trireme::interop
