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

// Which algorithm was fastest on this kind of host: measured once (trireme bench --tune), kept in
// the user's cache.
//
// The file is JSON:
//   {"magic": "trireme.tuning", "version": 1,
//    "shape": {"cpu", "cores", "ranks", "backend"}, "hash": "<16 hex>",
//    "measured": [{"op", "ranks", "bytes", "algorithm", "seconds"}, …]}
// `hash` is of the shape and names the file. Bytes of it are not trusted: at most 1 MiB and 10,000
// measurements.
namespace trireme {

/// What a table holds for. Hosts of the same shape share one.
struct TRIREME_API HostShape {
  std::string cpu;  // "Intel(R) Xeon(R) …", as the system says
  int cores = 1;    // CPUs of the machine
  int ranks = 1;    // on this host
  std::string backend = "local";

  /// Of this machine and process.
  static HostShape here(int ranks, std::string backend);
  /// 16 hexadecimal digits (FNV-1a of all four).
  std::string hash() const;
  bool operator==(const HostShape&) const = default;
};

/// The first model name in the text of /proc/cpuinfo, "unknown" without one.
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

  /// In place of an earlier one of the same op, ranks, bytes and algorithm. UsageError for what
  /// cannot be a measurement.
  void add(const Measurement& m);
  std::vector<Measurement> measurements() const;  // sorted
  bool empty() const { return measured_.empty(); }

  /// The fastest algorithm at the size that is nearest to `bytes` in ratio, of what is allowed;
  /// nothing where nothing allowed was measured for this op and number of ranks.
  std::optional<Algorithm> choose(std::string_view op, int ranks, size_t bytes,
                                  const std::function<bool(Algorithm)>& allowed = {}) const;

  std::string text() const;
  /// Corrupt, naming `path` and what is wrong; UsageError for a newer version, naming both.
  static TuningTable parse(std::string_view text, const std::string& path);

  /// $XDG_CACHE_HOME/trireme/tuning-<hash>.json, else under ~/.cache; ResourceError where neither
  /// variable is an absolute path. `env` is for tests.
  static std::string path_for(const HostShape& shape,
                              const std::function<const char*(const char*)>& env = {});
  /// Whether there is a table of any shape where path_for() puts them.
  static bool any_in_cache();
  /// Makes the folder (0700) and replaces the file as a whole.
  void save(const std::string& path) const;
  void save() const { save(path_for(shape_)); }
  /// Nothing where there is no file; errors as parse(), and Corrupt where the file is of another
  /// shape.
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
