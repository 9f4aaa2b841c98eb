// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/plan/algorithm.h"

// Which algorithm was fastest on this kind of host. `trireme bench --tune` measures it once and
// stores it in the user's cache.
//
// The file is JSON:
//   {"magic": "trireme.tuning", "version": 1,
//    "shape": {"cpu", "cores", "ranks", "backend"}, "hash": "<16 hex>",
//    "measured": [{"op", "ranks", "bytes", "algorithm", "seconds"}, …]}
// `hash` is computed from the shape and is part of the file's name. The file is untrusted: at most
// 1 MiB and 10,000 measurements.
namespace trireme {

/// The kind of host that a table describes. Hosts of the same shape share one table.
struct TRIREME_API HostShape {
  std::string cpu;  // "Intel(R) Xeon(R) …", as the system reports it
  int cores = 1;    // CPUs of the machine
  int ranks = 1;    // on this host
  std::string backend = "local";

  /// The shape of this machine and process.
  static HostShape here(int ranks, std::string backend);
  /// 16 hexadecimal digits (FNV-1a of all four).
  std::string hash() const;
  bool operator==(const HostShape&) const = default;
};

/// Returns the first model name in the text of /proc/cpuinfo, or "unknown".
TRIREME_API std::string cpu_name(std::string_view cpuinfo);

class TRIREME_API TuningTable {
 public:
  static constexpr int kVersion = 1;

  struct Measurement {
    std::string op;  // "all_reduce"
    int ranks = 0;   // of the group
    size_t bytes = 0;
    Algorithm algorithm = Algorithm::direct;
    double seconds = 0;
  };

  explicit TuningTable(HostShape shape) : shape_(std::move(shape)) {}
  const HostShape& shape() const { return shape_; }

  /// Replaces an earlier measurement of the same op, ranks, bytes and algorithm. Throws UsageError
  /// for values that cannot be a measurement.
  void add(const Measurement& m);
  std::vector<Measurement> measurements() const;  // sorted
  bool empty() const { return measured_.empty(); }

  /// Returns the fastest allowed algorithm at the measured size nearest to `bytes` in ratio, or
  /// nothing if no allowed one was measured for this op and number of ranks.
  std::optional<Algorithm> choose(std::string_view op, int ranks, size_t bytes,
                                  const std::function<bool(Algorithm)>& allowed = {}) const;

  std::string text() const;
  /// Throws Corrupt naming `path` and what is wrong, or UsageError naming both versions if the file
  /// is newer.
  static TuningTable parse(std::string_view text, const std::string& path);

  /// Returns $XDG_CACHE_HOME/trireme/tuning-<hash>.json, or the same under ~/.cache. Throws
  /// ResourceError if neither variable is an absolute path. `env` is for tests.
  static std::string path_for(const HostShape& shape,
                              const std::function<const char*(const char*)>& env = {});
  /// Whether the folder of path_for() holds a table of any shape.
  static bool any_in_cache();
  /// Creates the folder (mode 0700) and replaces the file atomically.
  void save(const std::string& path) const;
  void save() const { save(path_for(shape_)); }
  /// Returns nothing if there is no file. Throws as parse() does, and Corrupt if the file is of
  /// another shape.
  static std::optional<TuningTable> load(const HostShape& shape, const std::string& path);
  static std::optional<TuningTable> load(const HostShape& shape) {
    return load(shape, path_for(shape));
  }

 private:
  struct Key {
    std::string op;
    int ranks;
    size_t bytes;
    Algorithm algorithm;
    auto operator<=>(const Key&) const = default;
  };
  HostShape shape_;
  std::map<Key, double> measured_;
};

}  // namespace trireme
