// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/encoding.h"

#include "trireme/base/check.h"

namespace trireme::encoding {
namespace {

constexpr char kMagic[4] = {'T', 'R', 'o', 'b'};
constexpr uint16_t kVersion = 1;
constexpr size_t kLongestType = 64 << 10;

template <class T>
T read(std::string_view& bytes) {
  check<Corrupt>(bytes.size() >= sizeof(T), "an encoded value ends in its header");
  T v;
  std::memcpy(&v, bytes.data(), sizeof v);
  bytes.remove_prefix(sizeof v);
  return v;
}

}  // namespace

Transit::~Transit() = default;

size_t Reader::length(size_t each) {
  uint64_t n;
  take(&n, sizeof n);
  if (n > left_.size() / each) corrupt("a length is larger than what follows");
  return static_cast<size_t>(n);
}

void Reader::take(void* to, size_t n) {
  if (n > left_.size()) corrupt("it ends too early");
  if (n) std::memcpy(to, left_.data(), n);
  left_.remove_prefix(n);
}

Attachment Reader::attachment() {
  if (next_attachment_ == attachments_.size()) corrupt("memory beside its bytes is missing");
  return std::move(attachments_[next_attachment_++]);
}

void Reader::corrupt(const char* what) { fail<Corrupt>("an encoded value is damaged: {}", what); }

std::string with_header(const std::string& type, std::string value) {
  std::string bytes(kMagic, sizeof kMagic);
  auto put = [&](auto v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(kVersion);
  put(uint16_t{0});
  put(static_cast<uint32_t>(type.size()));
  bytes += type;
  put(static_cast<uint64_t>(value.size()));
  return bytes + value;
}

std::string_view without_header(const std::string& type, std::string_view bytes) {
  check<Corrupt>(bytes.substr(0, sizeof kMagic) == std::string_view(kMagic, sizeof kMagic),
                 "this is not an encoded value: it does not begin with TRob");
  bytes.remove_prefix(sizeof kMagic);
  const auto version = read<uint16_t>(bytes);
  check<Mismatch>(version <= kVersion,
                  "an encoded value has version {}, and this build reads up to {}: use the same "
                  "build everywhere",
                  version, kVersion);
  check<Corrupt>(version == kVersion && read<uint16_t>(bytes) == 0,
                 "the header of an encoded value is damaged");
  const auto length = read<uint32_t>(bytes);
  check<Corrupt>(length <= kLongestType && length <= bytes.size(),
                 "the header of an encoded value is damaged");
  const std::string_view sent = bytes.substr(0, length);
  check<Mismatch>(sent == type,
                  "a value of type {} was sent where {} is expected. Both sides must name the same "
                  "C++ type",
                  sent, type);
  bytes.remove_prefix(length);
  check<Corrupt>(read<uint64_t>(bytes) == bytes.size(),
                 "an encoded value is not as long as it says");
  return bytes;
}

void left_over() { fail<Corrupt>("an encoded value is damaged: bytes are left over"); }

void not_bytes_alone(const std::string& type) {
  fail<UsageError>(
      "a value of type {} has memory that travels beside its bytes, and here there is no place for "
      "it: send its tensors by calls for tensors",
      type);
}

}  // namespace trireme::encoding
