// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/strict_json.h"
#include "trireme/train/build/tune_buckets.h"

namespace trireme {
namespace {

constexpr const char* kMagic = "trireme.buckets";
constexpr int64_t kVersion = 1;
constexpr const char* kOrders[] = {"arrival", "registration"};
constexpr const char* kAlgorithms[] = {"all_reduce", "scatter_gather"};

size_t index_of(const std::string& word, const char* const (&words)[2], const std::string& where,
                const char* what) {
  for (size_t i = 0; i < 2; ++i)
    if (word == words[i]) return i;
  fail<Corrupt>("{}: {} is '{}': {} or {}", where, what, word, words[0], words[1]);
}

double milliseconds(const nlohmann::json& value, const std::string& where) {
  const double ms = value.is_number() ? value.get<double>() : -1;
  check<Corrupt>(std::isfinite(ms) && ms >= 0, "{}: no time of a step", where);
  return ms;
}

}  // namespace

std::string describe(const BucketSetting& s) {
  return fmt::format("{:.2f} MiB buckets in order of {}, {}",
                     static_cast<double>(s.bytes) / 1048576, kOrders[static_cast<size_t>(s.order)],
                     kAlgorithms[static_cast<size_t>(s.algorithm)]);
}

std::string to_text(const BucketsFile& file) {
  nlohmann::ordered_json json;
  json["magic"] = kMagic;
  json["version"] = kVersion;
  json["of"] = file.of;
  json["bucket_bytes"] = file.setting.bytes;
  json["order"] = kOrders[static_cast<size_t>(file.setting.order)];
  json["algorithm"] = kAlgorithms[static_cast<size_t>(file.setting.algorithm)];
  json["ms_before"] = file.ms_before;
  json["ms_after"] = file.ms_after;
  return json.dump(2) + "\n";
}

BucketsFile buckets_of_text(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_strict_json(text, where, 4);
  check<Corrupt>(json.is_object(), "{}: no file of tuned buckets: it does not begin with {{",
                 where);
  check<Corrupt>(json_text(json_member(json, "magic", where), where, "magic") == kMagic,
                 "{}: no file of tuned buckets: its magic is another", where);
  const int64_t version = json_size(json_member(json, "version", where), where, "version");
  check<UsageError>(version <= kVersion,
                    "{}: version {} of the format; this program reads up to {}: take a newer one",
                    where, version, kVersion);
  BucketsFile file;
  file.of = json_text(json_member(json, "of", where), where, "of");
  file.setting.bytes = json_size(json_member(json, "bucket_bytes", where), where, "bucket_bytes");
  check<Corrupt>(file.setting.bytes > 0, "{}: bucket_bytes is 0", where);
  file.setting.order = static_cast<BucketOrder>(index_of(
      json_text(json_member(json, "order", where), where, "order"), kOrders, where, "order"));
  file.setting.algorithm = static_cast<BucketAlgorithm>(
      index_of(json_text(json_member(json, "algorithm", where), where, "algorithm"), kAlgorithms,
               where, "algorithm"));
  file.ms_before = milliseconds(json_member(json, "ms_before", where), where);
  file.ms_after = milliseconds(json_member(json, "ms_after", where), where);
  return file;
}

}  // namespace trireme
