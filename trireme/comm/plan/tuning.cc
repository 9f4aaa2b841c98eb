// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/tuning.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/file.h"
#include "trireme/base/file/result_file.h"

namespace trireme {
namespace {

using nlohmann::json;

constexpr const char* kMagic = "trireme.tuning";
constexpr size_t kFileLimit = size_t{1} << 20;
constexpr size_t kMeasurementLimit = 10'000;
constexpr size_t kTextLimit = 256;
constexpr int64_t kCountLimit = int64_t{1} << 20;  // cores, ranks
constexpr int64_t kBytesLimit = int64_t{1} << 53;  // exact in every JSON reader
constexpr int kDepthLimit = 4;

/// Parses JSON without duplicate member names or deep nesting.
json strict_json(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  try {
    return json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
      check<Corrupt>(depth <= kDepthLimit, "{}: nested too deeply", path);
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key)
        check<Corrupt>(keys.back().insert(parsed.get<std::string>()).second,
                       "{}: two members named {}", path, parsed.get<std::string>());
      return true;
    });
  } catch (const json::exception&) {
    fail<Corrupt>("{}: not JSON. Remove it and measure again (trireme bench --tune)", path);
  }
}

const json& member(const json& object, const char* key, const std::string& path) {
  check<Corrupt>(object.is_object() && object.contains(key), "{}: no \"{}\"", path, key);
  return object.at(key);
}

int64_t integer(const json& object, const char* key, int64_t least, int64_t most,
                const std::string& path) {
  const json& v = member(object, key, path);
  const bool fits = v.is_number_unsigned() ? v.get<uint64_t>() <= static_cast<uint64_t>(most) &&
                                                 v.get<uint64_t>() >= static_cast<uint64_t>(least)
                                           : v.is_number_integer() && v.get<int64_t>() >= least &&
                                                 v.get<int64_t>() <= most;
  check<Corrupt>(fits, "{}: \"{}\" is not an integer from {} to {}", path, key, least, most);
  return v.get<int64_t>();
}

std::string string(const json& object, const char* key, const std::string& path) {
  const json& v = member(object, key, path);
  check<Corrupt>(v.is_string() && v.get_ref<const std::string&>().size() <= kTextLimit,
                 "{}: \"{}\" is not a string of at most {} bytes", path, key, kTextLimit);
  return v.get<std::string>();
}

void make_folders(const std::string& folder) {
  for (size_t at = folder.find('/', 1);; at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
      fail<ResourceError>("cannot make the folder {}: {}", part, errno_text());
    if (at == std::string::npos) return;
  }
}

}  // namespace

std::string cpu_name(std::string_view cpuinfo) {
  const std::string_view key = "model name";
  const size_t at = cpuinfo.find(key);
  if (at == std::string_view::npos) return "unknown";
  std::string_view line = cpuinfo.substr(at, cpuinfo.find('\n', at) - at);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return "unknown";
  std::string name;  // printable, single spaces
  for (char c : line.substr(colon + 1)) {
    if (c > ' ' && c < 127) {
      name += c;
    } else if (!name.empty() && name.back() != ' ') {
      name += ' ';
    }
  }
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.empty() ? "unknown" : name.substr(0, kTextLimit);
}

HostShape HostShape::here(int ranks, std::string backend) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // Not the cores that this process is bound to: a rank with a binding and one without share a
  // table.
  const auto cores = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return {cpu_name(text), cores, ranks, std::move(backend)};
}

std::string HostShape::hash() const {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : fmt::format("{}\n{}\n{}\n{}", cpu, cores, ranks, backend))
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", h);
}

void TuningTable::add(const Measurement& m) {
  check<UsageError>(
      !m.op.empty() && m.op.size() <= kTextLimit && m.ranks >= 1 && m.ranks <= kCountLimit &&
          m.bytes <= static_cast<size_t>(kBytesLimit) && std::isfinite(m.seconds) && m.seconds > 0,
      "not a measurement: {} of {} ranks, {} bytes in {} s", m.op, m.ranks, m.bytes, m.seconds);
  const Key key{m.op, m.ranks, m.bytes, m.algorithm};
  check<UsageError>(measured_.size() < kMeasurementLimit || measured_.count(key),
                    "a tuning table holds at most {} measurements", kMeasurementLimit);
  measured_[key] = m.seconds;
}

std::vector<TuningTable::Measurement> TuningTable::measurements() const {
  std::vector<Measurement> all;
  for (const auto& [key, seconds] : measured_)
    all.push_back({key.op, key.ranks, key.bytes, key.algorithm, seconds});
  return all;
}

std::optional<Algorithm> TuningTable::choose(std::string_view op, int ranks, size_t bytes,
                                             const std::function<bool(Algorithm)>& allowed) const {
  // The nearest in ratio; of two equally near, the smaller.
  auto distance = [bytes](size_t other) {
    return std::abs(std::log2(static_cast<double>(other) + 1) -
                    std::log2(static_cast<double>(bytes) + 1));
  };
  const Key* best = nullptr;
  double seconds = 0;
  for (const auto& [key, time] : measured_) {
    if (key.op != op || key.ranks != ranks || (allowed && !allowed(key.algorithm))) continue;
    const bool nearer = !best || distance(key.bytes) < distance(best->bytes);
    if (nearer || (key.bytes == best->bytes && time < seconds)) best = &key, seconds = time;
  }
  if (!best) return std::nullopt;
  return best->algorithm;
}

std::string TuningTable::text() const {
  json all = json::array();
  for (const Measurement& m : measurements())
    all.push_back({{"op", m.op},
                   {"ranks", m.ranks},
                   {"bytes", m.bytes},
                   {"algorithm", name_of(m.algorithm)},
                   {"seconds", m.seconds}});
  // One measurement per line, for readers and for diff.
  std::string lines;
  for (const json& one : all) lines += (lines.empty() ? "\n  " : ",\n  ") + one.dump();
  const json shape{{"cpu", shape_.cpu},
                   {"cores", shape_.cores},
                   {"ranks", shape_.ranks},
                   {"backend", shape_.backend}};
  return fmt::format(
      "{{\"magic\": \"{}\", \"version\": {},\n \"shape\": {}, \"hash\": \"{}\",\n \"measured\": "
      "[{}\n ]}}\n",
      kMagic, kVersion, shape.dump(), shape_.hash(), lines);
}

TuningTable TuningTable::parse(std::string_view text, const std::string& path) {
  check<Corrupt>(text.size() <= kFileLimit, "{}: larger than {} bytes", path, kFileLimit);
  const json root = strict_json(text, path);
  check<Corrupt>(root.is_object() && root.contains("magic") && root.at("magic") == kMagic,
                 "{}: not a tuning table of Trireme", path);
  const int64_t version = integer(root, "version", 1, kCountLimit, path);
  check<UsageError>(version <= kVersion,
                    "{} is of version {}, this trireme reads up to {}. Remove it and measure again "
                    "(trireme bench --tune)",
                    path, version, kVersion);
  const json& s = member(root, "shape", path);
  TuningTable table(
      {string(s, "cpu", path), static_cast<int>(integer(s, "cores", 1, kCountLimit, path)),
       static_cast<int>(integer(s, "ranks", 1, kCountLimit, path)), string(s, "backend", path)});
  check<Corrupt>(string(root, "hash", path) == table.shape_.hash(),
                 "{}: its hash does not match its shape", path);
  const json& all = member(root, "measured", path);
  check<Corrupt>(all.is_array() && all.size() <= kMeasurementLimit,
                 "{}: \"measured\" is not a list of at most {}", path, kMeasurementLimit);
  for (const json& one : all) {
    const std::string algorithm = string(one, "algorithm", path);
    const auto known = algorithm_named(algorithm);
    check<Corrupt>(known.has_value(), "{}: there is no algorithm '{}'", path, algorithm);
    const json& time = member(one, "seconds", path);
    check<Corrupt>(time.is_number() && time.get<double>() > 0 && std::isfinite(time.get<double>()),
                   "{}: \"seconds\" is not a time", path);
    const std::string op = string(one, "op", path);
    check<Corrupt>(!op.empty(), "{}: a measurement without an operation", path);
    table.add({op, static_cast<int>(integer(one, "ranks", 1, kCountLimit, path)),
               static_cast<size_t>(integer(one, "bytes", 0, kBytesLimit, path)), *known,
               time.get<double>()});
  }
  return table;
}

std::string TuningTable::path_for(const HostShape& shape,
                                  const std::function<const char*(const char*)>& env) {
  auto value = [&](const char* name) {
    const char* text = env ? env(name) : std::getenv(name);
    return std::string(text && *text == '/' ? text : "");
  };
  std::string cache = value("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = value("HOME");
    check<ResourceError>(!home.empty(),
                         "no place for the tuning table: set XDG_CACHE_HOME or HOME to an absolute "
                         "path");
    cache = home + "/.cache";
  }
  return cache + "/trireme/tuning-" + shape.hash() + ".json";
}

bool TuningTable::any_in_cache() {
  try {
    const std::filesystem::path path = path_for(HostShape{});
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path()))
      if (entry.path().filename().string().rfind("tuning-", 0) == 0) return true;
  } catch (const std::exception&) {  // no home, no folder
  }
  return false;
}

void TuningTable::save(const std::string& path) const {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) make_folders(path.substr(0, slash));
  write_result_file(path, text());
}

std::optional<TuningTable> TuningTable::load(const HostShape& shape, const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
  TuningTable table = parse(read_file(path, kFileLimit), path);
  check<Corrupt>(table.shape_ == shape,
                 "{} is of another kind of host: {} with {} cores, {} ranks on {}", path,
                 table.shape_.cpu, table.shape_.cores, table.shape_.ranks, table.shape_.backend);
  return table;
}

}  // namespace trireme
