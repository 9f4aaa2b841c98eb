// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/process/signals.h"
#include "trireme/comm/flight/ring.h"

// Rings on disk: one file for each rank and group. Written only with write(2), so that a signal
// handler can do it; read by dump_reader.h; analysed by `trireme trace flight`.
//
//   DumpHeader · calls: record_count × Record · pairs: pair_count × Record · sites × Site ·
//   checksum
//
// in the byte order of the writer. Records that were being overwritten are zero.
namespace trireme {

/// Writes the last calls of every rank and group of this process into `folder` (created if missing)
/// as <group>-<generation>-rank<r>.flight. Returns the number of files.
TRIREME_API int flight_dump(const std::string& folder);

namespace flight {

constexpr char kDumpMagic[8] = {'T', 'r', 'F', 'l', 'i', 'g', 'h', 't'};
constexpr uint32_t kDumpVersion = 1;
constexpr uint32_t kByteOrder = 0x01020304;

/// Why a dump was written. The numbers are part of the file format.
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
  int32_t writer;  // reason by_peer: the rank that wrote it for a dead or stuck one; else rank
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
  char group[64];  // its end, if it is longer
  char host[64];
  char why[512];  // reason failure: what the rank threw
};
static_assert(sizeof(DumpHeader) % 8 == 0);

/// The checksum of a dump, over everything before it.
class Checksum {
 public:
  void add(const void* bytes, size_t n) noexcept;  // n: a multiple of 8
  uint64_t value() const noexcept { return sum_; }

 private:
  uint64_t sum_ = 0x9E3779B97F4A7C15u;
};

/// The owner of a ring.
struct Owner {
  std::string backend, group = "world";  // group "": never dumped
  int rank = 0, size = 1, world_rank = 0;
  uint64_t generation = 0;
};

/// The folder of base/process/flight_variables.h; "": dumps are written only on request.
TRIREME_API std::string flight_folder();

/// Creates a folder and its parents, using only mkdir(2). Returns whether this call created it.
TRIREME_API bool make_folder(const char* folder) noexcept;

/// A ring that can be dumped by its owner, by a signal handler, and by peers that hold the ring of
/// a rank that no longer can.
class TRIREME_API Dumper final : public SignalWriter {
 public:
  /// `ring` must outlive this object. folder: where dumps go unless another is given; "" for
  /// nowhere.
  Dumper(const Ring* ring, const Owner& owner, const std::string& folder = flight_folder());
  ~Dumper() override;

  bool write_down(int signal, const char* folder) noexcept override;
  /// Dumps because this rank failed. Returns whether a file was written.
  bool dump_failure(const char* why) noexcept;
  /// Dumps the ring of another rank of the same group, unless it has already been dumped.
  bool dump_for(const Ring& ring, int rank, int world_rank, int pid) noexcept;

 private:
  bool write(const Ring& ring, DumpHeader& header, const char* folder) const noexcept;
  void path_of(const DumpHeader& header, const char* folder, char* path,
               size_t room) const noexcept;

  const Ring* ring_;
  DumpHeader header_{};  // the constant fields
  const std::string folder_;
  SignalEnrolment enrolment_;  // constructed last, destroyed first
};

}  // namespace flight
}  // namespace trireme
