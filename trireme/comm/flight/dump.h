// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/process/signals.h"
#include "trireme/comm/flight/ring.h"

// Rings on disk: one file for each rank and group. Written by write(2) alone, so that a signal
// handler can do it; read by dump_reader.h; explained by `trireme trace flight`.
//
//   DumpHeader · calls: record_count × Record · pairs: pair_count × Record · sites × Site ·
//   checksum
//
// in the byte order of the writer. Records that were being rewritten are zero.
namespace trireme {

/// Every rank and group of this process writes its last calls into `folder` (made if it is not
/// there): <group>-<generation>-rank<r>.flight. How many files that made.
TRIREME_API int flight_dump(const std::string& folder);

namespace flight {

constexpr char kDumpMagic[8] = {'T', 'r', 'F', 'l', 'i', 'g', 'h', 't'};
constexpr uint32_t kDumpVersion = 1;
constexpr uint32_t kByteOrder = 0x01020304;

/// Why a dump was written. The numbers are in files.
enum class DumpReason : uint32_t { asked = 0, failure = 1, signal = 2, by_peer = 3 };

struct DumpHeader {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;
  uint32_t header_bytes;
  uint32_t record_bytes;
  uint32_t site_bytes;
  DumpReason reason;
  int32_t signal;  // reason signal
  int32_t writer;  // reason by_peer: the rank that wrote this for a dead or stuck one; else rank
  int32_t rank, size;
  int32_t world_rank;
  int32_t pid;
  uint64_t generation;  // one life of one group; 0 where the backend has none
  uint64_t record_count, pair_count, site_count;
  uint64_t born_ticks;
  int64_t born_ns;  // steady clock
  uint64_t dump_ticks;
  int64_t dump_ns;       // steady clock
  int64_t dump_wall_ns;  // since 1970
  char backend[16];
  char group[64];  // the end of it where it is longer
  char host[64];
  char why[512];  // reason failure: what the rank threw
};
static_assert(sizeof(DumpHeader) % 8 == 0);

/// The checksum of a dump: of all that stands before it.
class Checksum {
 public:
  void add(const void* bytes, size_t n) noexcept;  // n: a multiple of 8
  uint64_t value() const noexcept { return sum_; }

 private:
  uint64_t sum_ = 0x9E3779B97F4A7C15u;
};

/// Who a ring belongs to.
struct Owner {
  std::string backend, group = "world";  // group "": it is never written down
  int rank = 0, size = 1, world_rank = 0;
  uint64_t generation = 0;
};

/// TRIREME_FLIGHT_DIR; "" where it is not set: then nothing is written unasked.
TRIREME_API std::string flight_folder();

/// With those above it, by mkdir(2) alone. Tells whether this call made it.
TRIREME_API bool make_folder(const char* folder) noexcept;

/// A ring that can be written down: by its owner, by a signal handler, and by peers that hold the
/// ring of a rank that cannot any more.
class TRIREME_API Dumper final : public SignalWriter {
 public:
  /// The ring lives longer. folder: where dumps go unasked; "" nowhere.
  Dumper(const Ring* ring, const Owner& owner, const std::string& folder = flight_folder());
  ~Dumper() override;

  bool write_down(int signal, const char* folder) noexcept override;
  /// This rank failed. Tells whether a file was written.
  bool dump_failure(const char* why) noexcept;
  /// The ring of another rank of the same group, unless there is a dump of it already.
  bool dump_for(const Ring& ring, int rank, int world_rank, int pid) noexcept;

 private:
  bool write(const Ring& ring, DumpHeader& header, const char* folder) const noexcept;
  void path_of(const DumpHeader& header, const char* folder, char* path,
               size_t room) const noexcept;

  const Ring* ring_;
  DumpHeader header_{};  // what does not change
  const std::string folder_;
  SignalEnrolment enrolment_;  // the last to come, the first to go
};

}  // namespace flight
}  // namespace trireme
