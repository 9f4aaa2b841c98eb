// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_log.h"

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/net/bytes.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

constexpr std::string_view kMagic = "TRIRFILE";
constexpr size_t kFrameBytes = 12;  // length and checksum
constexpr size_t kMaxName = 4096;   // job ids, tokens, hosts
using Type = FileRecord::Type;

std::string payload_of(const FileRecord& r) {
  net::Writer out;
  out.u8(static_cast<uint8_t>(r.type));
  switch (r.type) {
    case Type::begin:
      out.string(r.key).u32(r.client).u32(r.rank).string(r.value);
      break;
    case Type::put:
      out.string(r.key).string(r.value);
      break;
    case Type::erase:
      out.string(r.key);
      break;
    case Type::enter:
      out.u32(r.client).u32(r.rank).u64(r.process).string(r.value);
      break;
    case Type::will:
      out.u32(r.client).string(r.key).string(r.value);
      break;
    case Type::leave:
    case Type::lost:
      out.u32(r.client);
      break;
  }
  return out.take();
}

FileRecord parse_payload(std::string_view payload) {
  net::Reader in(payload, "record of a store's file");
  FileRecord out;
  uint8_t type = in.u8();
  check<Corrupt>(
      type >= static_cast<uint8_t>(Type::begin) && type <= static_cast<uint8_t>(Type::lost),
      "a record of the unknown type {}", type);
  out.type = static_cast<Type>(type);
  switch (out.type) {
    case Type::begin:
      out.key = in.string(kMaxName);
      out.client = in.u32();
      out.rank = in.u32();
      out.value = in.string(kMaxName);
      break;
    case Type::put:
      out.key = in.string(Store::kMaxKeyBytes);
      out.value = in.string(Store::kMaxValueBytes);
      break;
    case Type::erase:
      out.key = in.string(Store::kMaxKeyBytes);
      break;
    case Type::enter:
      out.client = in.u32();
      out.rank = in.u32();
      out.process = in.u64();
      out.value = in.string(kMaxName);
      break;
    case Type::will:
      out.client = in.u32();
      out.key = in.string(Store::kMaxKeyBytes);
      out.value = in.string(Store::kMaxValueBytes);
      break;
    case Type::leave:
    case Type::lost:
      out.client = in.u32();
      break;
  }
  in.finish();
  return out;
}

}  // namespace

std::string file_start() { return net::Writer().raw(kMagic).u16(kFileLogVersion).take(); }

bool check_file_start(std::string_view bytes, std::string_view where) {
  auto begins = bytes.substr(0, kMagic.size());
  check<Corrupt>(begins == kMagic.substr(0, begins.size()),
                 "{} is not the file of a Trireme store: name a file that does not exist yet",
                 where);
  if (bytes.size() < kFileStartBytes) return false;
  net::Reader in(bytes.substr(kMagic.size()), where);
  uint16_t version = in.u16();
  check<Mismatch>(version == kFileLogVersion,
                  "{} has version {} of the store's file, and this program writes version {}: run "
                  "the same release of Trireme on every rank",
                  where, version, kFileLogVersion);
  return true;
}

std::string encode(const FileRecord& record) {
  std::string payload = payload_of(record);
  return net::Writer()
      .u32(static_cast<uint32_t>(payload.size()))
      .u64(stable_hash(payload))
      .raw(payload)
      .take();
}

std::optional<FileRecord> decode_record(std::string_view bytes, size_t* taken) {
  if (bytes.size() < sizeof(uint32_t)) return std::nullopt;
  net::Reader in(bytes, "record of a store's file");
  uint32_t length = in.u32();
  check<Corrupt>(length > 0 && length <= kMaxRecordBytes, "a record of {} bytes", length);
  if (bytes.size() < kFrameBytes + length) return std::nullopt;
  uint64_t checksum = in.u64();
  auto payload = in.raw(length);
  check<Corrupt>(checksum == stable_hash(payload), "a record whose checksum is wrong");
  *taken = kFrameBytes + length;
  return parse_payload(payload);
}

FileState::Client& FileState::client(uint32_t number) {
  auto at = clients_.find(number);
  check<Corrupt>(at != clients_.end(), "a record of client {}, who never came", number);
  check<Corrupt>(at->second.end == Client::End::none, "a record of client {}, who had left",
                 number);
  return at->second;
}

void FileState::apply(const FileRecord& r) {
  check<Corrupt>(begun_ == (r.type != Type::begin), "its records begin in the wrong order");
  switch (r.type) {
    case Type::begin:
      check<Corrupt>(r.rank >= 1 && r.rank < kNoRank, "a world of {} ranks", r.rank);
      begun_ = true;
      job_id_ = r.key;
      token_ = r.value;
      attempt_ = r.client;
      world_size_ = r.rank;
      break;
    case Type::put:
      check<Corrupt>(!r.key.empty(), "an empty key");
      values_[r.key] = r.value;
      break;
    case Type::erase:
      values_.erase(r.key);
      break;
    case Type::enter:
      check<Corrupt>(r.client == clients_.size(), "client {} comes as number {}", r.client,
                     clients_.size());
      check<Corrupt>(r.rank == kNoRank || r.rank < world_size_, "rank {} of a world of {}", r.rank,
                     world_size_);
      clients_[r.client] = {r.rank, r.process, r.value, Client::End::none, "", ""};
      break;
    case Type::will: {
      auto& c = client(r.client);
      c.will_key = r.key;
      c.will_value = r.value;
      break;
    }
    case Type::leave:
    case Type::lost: {
      auto& c = client(r.client);
      if (r.type == Type::lost && !c.will_key.empty()) values_[c.will_key] = c.will_value;
      c.end = r.type == Type::lost ? Client::End::lost : Client::End::left;
      c.will_key.clear();
      c.will_value.clear();
      break;
    }
  }
}

std::optional<std::string> FileState::find(std::string_view key) const {
  auto at = values_.find(key);
  return at == values_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace trireme::detail
