// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/tune_buckets.h"

#include <filesystem>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/comm.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/tuning/bucket_sizes.h"

namespace trireme {
namespace {

/// Identifies the kind of run for which a result is valid.
std::string identity_of(const Group& group, const NamedTensors& parameters,
                        const Batches& batches) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : ParameterTable(parameters).fingerprint())
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{} ranks on {}, {} parameters {:016x}, {} × {} samples a rank", group.size(),
                     group.backend(), parameters.size(), hash, batches.micro, batches.accumulation);
}

std::string file_of_rank0(Group group, const std::string& path) {
  std::string text;
  if (group.rank() == 0 && !path.empty() && std::filesystem::exists(path))
    text = read_file(path, size_t{1} << 16);
  return broadcast_object(group, text, 0);
}

}  // namespace

std::unique_ptr<TuneBuckets> TuneBuckets::make(const Config& c, Group group,
                                               const NamedTensors& parameters) {
  const auto comm = c.section<CommSection>();
  const bool tune = comm.tune_buckets;
  const std::string path = comm.buckets_file.value_or("");
  if (!tune && path.empty()) return nullptr;
  std::unique_ptr<TuneBuckets> t(new TuneBuckets);
  t->file_ = path;
  t->rank_ = group.rank();
  t->of_ = identity_of(group, parameters, c.resolve_batches(group.size()));
  const auto asked = static_cast<size_t>(comm.bucket_mb * 1048576);
  const BucketSizes sizes = bucket_sizes_for(group, asked, 0);
  BucketSetting start{static_cast<int64_t>(sizes.bytes), BucketOrder::arrival,
                      BucketAlgorithm::all_reduce};
  const std::string text = file_of_rank0(group, path);
  if (!text.empty()) {
    const BucketsFile found = buckets_of_text(text, path);
    if (found.of == t->of_) {
      t->text_ = "buckets as tuned: " + trireme::describe(found.setting);
      t->buckets_ = std::make_shared<BucketTuning>(found.setting, std::nullopt, sizes.first_bytes);
      return t;
    }
    check<UsageError>(tune,
                      "{}: comm.buckets_file {} is for {}; this run is {}: set comm.tune_buckets "
                      "to tune again, or remove the file",
                      c.origin("comm.buckets_file"), path, found.of, t->of_);
  }
  check<UsageError>(tune,
                    "{}: comm.buckets_file {} is not there: set comm.tune_buckets to make one",
                    c.origin("comm.buckets_file"), path);
  int64_t all = 0;
  for (const auto& [name, p] : parameters) all += static_cast<int64_t>(p.nbytes());
  std::set<int64_t> others;
  for (int64_t bytes : {start.bytes / 4, start.bytes * 4, start.bytes * 16, all})
    if (bytes >= 65536 && bytes <= all && bytes != start.bytes) others.insert(bytes);
  t->text_ = fmt::format("tuning buckets, from {}", trireme::describe(start));
  t->buckets_ = std::make_shared<BucketTuning>(
      start, BucketTuner(start, {others.begin(), others.end()}, {.budget = comm.tuning_budget}),
      sizes.first_bytes);
  return t;
}

std::string TuneBuckets::news() {
  const BucketTuner* tuner = buckets_->tuner();
  if (reported_ || !tuner || !tuner->done()) return "";
  reported_ = true;
  const BucketsFile found{of_, tuner->best(), 1e3 * tuner->seconds_before(),
                          1e3 * tuner->seconds_after()};
  if (!file_.empty() && rank_ == 0) write_file_atomic(file_, to_text(found));
  std::string text =
      fmt::format("tuned: {}, of {} tried", trireme::describe(found.setting), tuner->tried());
  if (found.ms_before > 0)
    text += fmt::format(" ({:.1f} ms a step, {:.1f} before)", found.ms_after, found.ms_before);
  return text;
}

}  // namespace trireme
