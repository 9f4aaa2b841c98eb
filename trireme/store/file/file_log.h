// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

// The bytes of a FileStore's file, and what they add up to. Pure: no file is touched here.
//   offset  0  magic    8 bytes "TRIRFILE"
//           8  version  u16     1
//          10  records, the first of them `begin`:
//              length   u32     of the payload
//              checksum u64     stable_hash (base/philox.h) of the payload
//              payload          type u8, then
//                begin 1   job id string, attempt u32, world size u32, token string
//                put   2   key string, value string
//                erase 3   key string
//                enter 4   client u32 (counting from 0), rank u32 (kNoRank: a further connection of
//                          a rank), process u64, host string
//                will  5   client u32, key string ("": no will any more), value string
//                leave 6   client u32, in order
//                lost  7   client u32, without; its will's key has its value from here on
// Little-endian; strings after their u32 length. A record that ends after the file does was cut
// short by its writer's death, and the next writer overwrites it.
namespace trireme::detail {

inline constexpr uint16_t kFileLogVersion = 1;
inline constexpr size_t kFileStartBytes = 10;
inline constexpr size_t kMaxRecordBytes = size_t{16} << 20;
inline constexpr uint32_t kNoRank = UINT32_MAX;

struct FileRecord {
  enum class Type : uint8_t { begin = 1, put, erase, enter, will, leave, lost };
  Type type = Type::put;
  std::string key, value;  // begin: job id, token; enter: "", host
  uint32_t client = 0;     // begin: attempt
  uint32_t rank = 0;       // begin: world size
  uint64_t process = 0;
  bool operator==(const FileRecord&) const = default;
};

std::string file_start();  // magic and version
std::string encode(const FileRecord& record);
/// Corrupt for bytes that begin no such file (`where` names it), Mismatch for another version.
/// False: too short to tell.
bool check_file_start(std::string_view bytes, std::string_view where);
/// The first record of `bytes`, which begin one; nullopt: it does not end in them. Corrupt for
/// anything else. `*taken`: its bytes.
std::optional<FileRecord> decode_record(std::string_view bytes, size_t* taken);

/// A log's state after each of its records.
class FileState {
 public:
  struct Client {
    uint32_t rank = kNoRank;
    uint64_t process = 0;
    std::string host;
    enum class End : uint8_t { none, left, lost } end = End::none;
    std::string will_key, will_value;  // "": none
  };

  /// Corrupt for a record that makes no sense at its place.
  void apply(const FileRecord& record);

  bool begun() const { return begun_; }
  const std::string& job_id() const { return job_id_; }
  const std::string& token() const { return token_; }
  uint32_t attempt() const { return attempt_; }
  uint32_t world_size() const { return world_size_; }
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }
  const std::map<uint32_t, Client>& clients() const { return clients_; }
  std::optional<std::string> find(std::string_view key) const;

 private:
  Client& client(uint32_t number);

  bool begun_ = false;
  std::string job_id_, token_;
  uint32_t attempt_ = 0, world_size_ = 0;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<uint32_t, Client> clients_;
};

}  // namespace trireme::detail
