// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/dump_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/comm/flight/dump.h"

namespace trireme::flight {
namespace {

constexpr size_t kMostBytes =
    sizeof(DumpHeader) + 2 * kRecords * sizeof(Record) + kSites * sizeof(Site) + sizeof(uint64_t);

template <size_t n>
std::string text_of(const char (&text)[n]) {
  std::string found(text, ::strnlen(text, n));
  for (char& c : found)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';  // it goes to a terminal
  return found;
}

template <class T>
T take(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Record as stored in a file.
struct Times {
  const DumpHeader& h;
  double per_tick;
  double of(uint64_t ticks) const {  // seconds since 1970
    if (ticks == 0) return 0;
    const auto before = static_cast<int64_t>(h.dump_ticks - ticks);
    return static_cast<double>(h.dump_wall_ns) * 1e-9 -
           static_cast<double>(before) * per_tick * 1e-9;
  }
};

Times times_of(const DumpHeader& h) {
  const auto ticks = static_cast<double>(h.dump_ticks - h.born_ticks);
  const auto ns = static_cast<double>(h.dump_ns - h.born_ns);
  return {h, ticks > 0 && ns > 0 ? ns / ticks : 0};
}

std::vector<Entry> read_records(std::string_view bytes, size_t at, uint64_t count,
                                const std::vector<std::string>& sites, const Times& times) {
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t base = at + i * sizeof(Record);
    Entry e;
    e.seq = take<uint64_t>(bytes, base);
    if (e.seq == 0) continue;
    e.count = take<uint64_t>(bytes, base + 8);
    e.posted = times.of(take<uint64_t>(bytes, base + 16));
    e.done = times.of(take<uint64_t>(bytes, base + 24));
    e.op = static_cast<Collective>(take<uint8_t>(bytes, base + 32));
    e.dtype = static_cast<DType>(take<uint8_t>(bytes, base + 33));
    e.red = static_cast<ReduceOp>(take<uint8_t>(bytes, base + 34));
    e.state = static_cast<CallState>(take<uint8_t>(bytes, base + 35));
    e.root = take<int32_t>(bytes, base + 36);
    e.tag = take<int32_t>(bytes, base + 40);
    const auto site = take<uint32_t>(bytes, base + 44);
    if (site < sites.size()) e.site = sites[site];
    entries.push_back(std::move(e));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.seq < b.seq; });
  return entries;
}

}  // namespace

History read_dump(std::string_view bytes, const std::string& name) {
  check<Corrupt>(bytes.size() >= sizeof kDumpMagic + 8 &&
                     std::memcmp(bytes.data(), kDumpMagic, sizeof kDumpMagic) == 0,
                 "{} is not a dump of the flight recorder", name);
  const auto version = take<uint32_t>(bytes, 8), order = take<uint32_t>(bytes, 12);
  check<UsageError>(
      order == kByteOrder,
      "{} was written on a machine of the other byte order; read it on such a machine", name);
  check<UsageError>(version <= kDumpVersion,
                    "{} has version {} of the recorder's dumps, this Trireme reads up to version "
                    "{}: use the Trireme that wrote it",
                    name, version, kDumpVersion);
  check<Corrupt>(version == kDumpVersion && bytes.size() >= sizeof(DumpHeader) + 8,
                 "{} is truncated or damaged", name);
  const auto h = take<DumpHeader>(bytes, 0);
  check<Corrupt>(h.header_bytes == sizeof(DumpHeader) && h.record_bytes == sizeof(Record) &&
                     h.site_bytes == sizeof(Site) && h.record_count <= kRecords &&
                     h.pair_count <= kRecords && h.site_count <= kSites && h.size >= 1 &&
                     h.rank >= 0 && h.rank < h.size,
                 "{} is damaged: its header is invalid", name);
  const size_t pairs_at = sizeof(DumpHeader) + h.record_count * sizeof(Record),
               sites_at = pairs_at + h.pair_count * sizeof(Record),
               end = sites_at + h.site_count * sizeof(Site);
  check<Corrupt>(bytes.size() == end + 8,
                 "{} is truncated or damaged: it has {} bytes instead of {}", name, bytes.size(),
                 end + 8);
  Checksum sum;
  sum.add(bytes.data(), end);
  check<Corrupt>(sum.value() == take<uint64_t>(bytes, end),
                 "{} is damaged: its checksum does not match", name);

  History history;
  history.group = text_of(h.group);
  history.backend = text_of(h.backend);
  history.host = text_of(h.host);
  history.why = text_of(h.why);
  history.generation = h.generation;
  history.rank = h.rank;
  history.size = h.size;
  history.world_rank = h.world_rank;
  history.pid = h.pid;
  history.writer = h.writer;
  history.signal = h.signal;
  history.written = static_cast<double>(h.dump_wall_ns) * 1e-9;
  std::vector<std::string> sites;
  for (uint64_t i = 0; i < h.site_count; ++i)
    sites.push_back(text_of(take<Site>(bytes, sites_at + i * sizeof(Site)).text));
  const Times times = times_of(h);
  history.calls = read_records(bytes, sizeof(DumpHeader), h.record_count, sites, times);
  history.pairs = read_records(bytes, pairs_at, h.pair_count, sites, times);
  return history;
}

std::vector<History> read_dumps(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".flight") paths.push_back(entry.path().string());
  check<UsageError>(!error, "cannot read the folder {}: {}", folder, error.message());
  check<UsageError>(!paths.empty(),
                    "there are no dumps (*.flight) in {}: ranks write them to the folder "
                    "TRIREME_FLIGHT_DIR when a group fails, on SIGUSR2 and on fatal signals",
                    folder);
  std::sort(paths.begin(), paths.end());
  std::vector<History> all;
  for (const std::string& path : paths) all.push_back(read_dump(read_file(path, kMostBytes), path));
  // A life of a group is over if one of its ranks wrote later as a member of another life.
  std::map<std::pair<std::string, int>, std::pair<double, uint64_t>> newest;
  for (const History& h : all) {
    auto& found = newest[{h.group, h.world_rank}];
    found = std::max(found, {h.written, h.generation});
  }
  std::set<std::pair<std::string, uint64_t>> over;
  for (const History& h : all)
    if (newest[{h.group, h.world_rank}].second != h.generation)
      over.insert({h.group, h.generation});
  std::erase_if(all, [&](const History& h) { return over.count({h.group, h.generation}) != 0; });
  std::sort(all.begin(), all.end(), [](const History& a, const History& b) {
    return std::tie(a.group, a.generation, a.rank) < std::tie(b.group, b.generation, b.rank);
  });
  return all;
}

}  // namespace trireme::flight
